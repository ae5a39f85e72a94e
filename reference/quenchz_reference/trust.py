"""Which issuers are trusted and with which keys: metadata (RFC 8414) and key sets (RFC 7517) by HTTP."""

import json
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, cast
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt

from quenchz_reference.clock import NANOSECONDS, Clock

logger = logging.getLogger(__name__)

TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""What may follow the base URL of `--trust-tenants`."""

_ALGORITHMS: dict[tuple[str, str | None], str] = {
    ("EC", "P-256"): "ES256",
    ("OKP", "Ed25519"): "EdDSA",
    ("RSA", None): "RS256",
}
_MAX_DOCUMENT_BYTES = 256 * 1024
_MAX_KEYS = 64


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key and the one algorithm that it verifies (RFC 8725 section 3.1).

    Attributes:
        kid: key id, or None if its issuer gave it none.
        algorithm: JWS algorithm name.
        key: the key object of `cryptography`.
    """

    kid: str | None
    algorithm: str
    key: Any


class Trust(Protocol):
    """Where gate 1 finds keys."""

    def names(self) -> Sequence[str]:
        """The issuers to name in the resource metadata (RFC 9728 `authorization_servers`)."""
        ...

    async def keys(self, issuer: str, kid: str | None) -> Sequence[VerificationKey]:
        """The keys that may have signed a token of `issuer` with key id `kid`; none if the issuer is not trusted."""
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...


class AnyOf:
    """Several sources of trust as one; the first that has keys decides.

    Args:
        sources: in the order in which they are asked.
    """

    def __init__(self, sources: Sequence[Trust]) -> None:
        self._sources = tuple(sources)

    def names(self) -> Sequence[str]:
        """All names of all sources."""
        return tuple(name for source in self._sources for name in source.names())

    async def keys(self, issuer: str, kid: str | None) -> Sequence[VerificationKey]:
        """The keys of the first source that has any."""
        for source in self._sources:
            if found := await source.keys(issuer, kid):
                return found
        return ()

    async def aclose(self) -> None:
        """Close every source."""
        for source in self._sources:
            await source.aclose()


class DocumentUnavailableError(Exception):
    """An issuer's metadata or key set could not be had or not be believed."""


T = TypeVar("T")


@dataclass
class _Kept(Generic[T]):
    """A document that was read, and when an attempt to read it was made."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    value: T | None = None
    read_ns: int | None = None
    tried_ns: int | None = None


class HttpIssuers:
    """Issuers whose keys are found by HTTP: exact URLs, and tenants below base URLs.

    A document is used for `keep` seconds. An unknown key id causes at most one fetch per `pause` seconds and issuer, so
    that made-up key ids cannot make this server hammer an issuer; a failure is remembered as long, from its end on.
    Whoever needs a key has it, or is told that there is none, within `timeout` seconds, however many others need it and
    whatever the issuer does. Redirects are not followed: the issuer's own document has to say where its keys are.

    Args:
        issuers: trusted issuers, compared as strings.
        tenant_bases: every `BASE/<slug>` is trusted.
        clock: its monotonic side measures the two periods.
        keep: seconds.
        pause: seconds.
        timeout: seconds for metadata and key set together.
        limit: documents remembered per kind; the least recently used is forgotten first.
    """

    def __init__(
        self,
        issuers: Sequence[str],
        tenant_bases: Sequence[str],
        clock: Clock,
        *,
        keep: float = 300.0,
        pause: float = 5.0,
        timeout: float = 5.0,
        limit: int = 10_000,
    ) -> None:
        self._issuers = tuple(issuers)
        self._bases = tuple(base.rstrip("/") for base in tenant_bases)
        self._clock = clock
        self._keep_ns = round(keep * NANOSECONDS)
        self._pause_ns = round(pause * NANOSECONDS)
        self._timeout = timeout
        self._limit = limit
        self._places: OrderedDict[str, _Kept[str]] = OrderedDict()
        self._key_sets: OrderedDict[str, _Kept[tuple[VerificationKey, ...]]] = OrderedDict()
        self._client: httpx2.AsyncClient | None = None

    def names(self) -> Sequence[str]:
        """The exact issuers, and the base URLs of the tenants."""
        return (*self._issuers, *self._bases)

    def knows(self, issuer: str) -> bool:
        """Whether `issuer` is one of the exact URLs, or a base URL followed by one path segment."""
        if issuer in self._issuers:
            return True
        base, _, slug = issuer.rpartition("/")
        return base in self._bases and TENANT.fullmatch(slug) is not None and slug not in (".", "..")

    async def keys(self, issuer: str, kid: str | None) -> Sequence[VerificationKey]:
        """The keys of a trusted issuer that fit `kid`; none if its documents cannot be had."""
        if not self.knows(issuer):
            return ()
        try:
            with anyio.fail_after(self._timeout):
                found = await self._key_set(await self._place(issuer), kid)
        except (DocumentUnavailableError, TimeoutError) as reason:
            logger.warning("keys of issuer %a are unavailable: %s", issuer, str(reason) or "not in time")
            return ()
        return tuple(key for key in found if kid is None or key.kid == kid)

    async def aclose(self) -> None:
        """Close the kept connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _place(self, issuer: str) -> str:
        """Where the issuer's key set is, from its own metadata."""

        async def read() -> str:
            return _read_place(issuer, await self._fetch(metadata_url(issuer)))

        return await self._current(_remembered(self._places, issuer, self._limit), read, lambda _: True)

    async def _key_set(self, place: str, kid: str | None) -> tuple[VerificationKey, ...]:
        async def read() -> tuple[VerificationKey, ...]:
            return _read_keys(await self._fetch(place))

        def has_key(keys: tuple[VerificationKey, ...]) -> bool:
            return kid is None or any(key.kid == kid for key in keys)

        return await self._current(_remembered(self._key_sets, place, self._limit), read, has_key)

    async def _current(self, kept: "_Kept[T]", read: Callable[[], Awaitable[T]], enough: Callable[[T], bool]) -> T:
        """What is remembered, read (again) if it is too old or not enough and an attempt is due."""
        # Most requests need nothing read: they do not wait for those that do.
        is_young = kept.read_ns is not None and self._clock.monotonic_ns() - kept.read_ns < self._keep_ns
        if is_young and kept.value is not None and enough(kept.value):
            return kept.value
        async with kept.lock:  # of many requests that need the same document, one fetches it
            now = self._clock.monotonic_ns()
            if kept.read_ns is not None and now - kept.read_ns >= self._keep_ns:
                kept.value = kept.read_ns = None
            unsatisfying = kept.value is None or not enough(kept.value)
            if unsatisfying and (kept.tried_ns is None or now - kept.tried_ns >= self._pause_ns):
                try:
                    # If this fails, what is known stays known until it is too old: trying does not make it younger.
                    kept.value, kept.read_ns = await read(), now
                finally:
                    # From the end on: else those who waited for a slow issuer would try it again, one after the other.
                    kept.tried_ns = self._clock.monotonic_ns()
            if kept.value is None:
                raise DocumentUnavailableError("the last attempt failed and the next is not due yet")
            return kept.value

    async def _fetch(self, url: str) -> object:
        """The JSON document at `url`.

        Raises:
            DocumentUnavailableError: if there is no answer, no 200, too long a body or no JSON.
        """
        if self._client is None:
            # Built on first use: an SSL context costs 20 ms. A loopback issuer is never reached through a proxy.
            self._client = httpx2.AsyncClient(
                timeout=self._timeout,
                follow_redirects=False,
                limits=httpx2.Limits(max_connections=16),
                mounts={"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None},
            )
        body = bytearray()
        try:
            async with self._client.stream("GET", url, headers={"accept": "application/json"}) as response:
                if response.status_code != 200:
                    raise DocumentUnavailableError(f"{url} answered {response.status_code}, not 200")
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > _MAX_DOCUMENT_BYTES:
                        raise DocumentUnavailableError(f"{url} is longer than {_MAX_DOCUMENT_BYTES} bytes")
            return json.loads(body)
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError) as error:
            raise DocumentUnavailableError(f"{url}: {type(error).__name__}") from error


def metadata_url(issuer: str) -> str:
    """Where an issuer's metadata is: the well-known part goes between host and path (RFC 8414 section 3.1)."""
    parts = urlsplit(issuer)
    return f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path.rstrip('/')}"


def _remembered(table: OrderedDict[str, _Kept[T]], name: str, limit: int) -> _Kept[T]:
    kept = table.get(name)
    if kept is None:
        if len(table) >= limit:
            table.popitem(last=False)
        kept = table[name] = _Kept[T]()
    table.move_to_end(name)
    return kept


def _read_place(issuer: str, document: object) -> str:
    metadata = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    # RFC 8414 section 3.3: metadata of another issuer MUST NOT be used.
    if metadata.get("issuer") != issuer:
        raise DocumentUnavailableError("the metadata does not name this issuer")
    place = metadata.get("jwks_uri")
    if not isinstance(place, str) or not place.startswith(("https://", "http://")):
        raise DocumentUnavailableError("the metadata has no jwks_uri")
    return place


def _read_keys(document: object) -> tuple[VerificationKey, ...]:
    listed: Any = cast("dict[str, Any]", document).get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise DocumentUnavailableError("the key set has no keys")
    keys = (_read_key(entry) for entry in cast("list[object]", listed)[:_MAX_KEYS])
    return tuple(key for key in keys if key is not None)


def _read_key(entry: object) -> VerificationKey | None:
    """A usable public signing key, or None: a set may hold keys for other uses (RFC 7517 section 5)."""
    if not isinstance(entry, dict):
        return None
    jwk = cast("dict[str, Any]", entry)
    kind, curve, kid = jwk.get("kty"), jwk.get("crv"), jwk.get("kid")
    algorithm = _ALGORITHMS.get((kind, curve)) if isinstance(kind, str) and isinstance(curve, str | None) else None
    if algorithm is None or jwk.get("alg", algorithm) != algorithm or jwk.get("use", "sig") != "sig" or "d" in jwk:
        return None
    if not isinstance(kid, str | None):
        return None
    try:
        return VerificationKey(kid, algorithm, jwt.PyJWK(jwk, algorithm).key)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None

"""Gate 1: a token is admitted if and only if it was issued for this resource.

The signature is PyJWT's business; every claim is compared here by hand. PyJWT accepts a list that contains the
audience, a fractional or a textual date, and a payload that says the same thing twice; this gate accepts none of them.
"""

import hashlib
import json
import logging
import math
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import anyio
import jwt
from jwt.utils import base64url_decode
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quenchz_reference.caller import Caller, enter
from quenchz_reference.clock import Clock
from quenchz_reference.trust import Trust, VerificationKey

logger = logging.getLogger(__name__)

ALGORITHMS = frozenset({"ES256", "RS256", "EdDSA"})
"""The signature algorithms that are accepted (RFC 8725 section 3.1)."""

TYPES = frozenset({"at+jwt", "application/at+jwt", "jwt", None})
"""The header types that are accepted, in lower case; None is an absent one.

RFC 9068 section 4 demands one of the first two. An issuer that does not claim that profile sends the others.
"""

_SIGNATURES = jwt.PyJWS()
_COMPACT = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_MAX_TOKEN_BYTES = 8192
_MAX_NAME_LENGTH = 1024
_MAX_DATE = 2**53  # beyond it, two JSON readers may read two numbers
_CLOCK_SKEW_SECONDS = 60
_CACHE_ENTRIES = 20_000
# How long a withdrawn key still counts for a token that it verified, from when its key set was no longer believed.
_CACHE_SECONDS = 300.0


class TokenRefusedError(Exception):
    """A presented token is not good here; the reason is for the operator's log and never for the caller."""


class NoCredentialsError(Exception):
    """The request presents no bearer token at all."""


@dataclass(frozen=True)
class Verified:
    """A caller, until when its token may be believed unseen, and when it expires (both in seconds since 1970)."""

    caller: Caller
    until: float
    expires: float = math.inf


@dataclass
class Audience:
    """The decisions of gate 1, one small method each.

    Attributes:
        resource: the resource identifier that tokens must be for, compared as a string.
        trust: where keys come from.
        clock: its wall-clock side is compared with the dates in a token.
    """

    resource: str
    trust: Trust
    clock: Clock

    async def verify(self, token: bytes) -> Verified:
        """The caller that `token` proves.

        Raises:
            TokenRefusedError: for every other token.
        """
        if len(token) > _MAX_TOKEN_BYTES or not _COMPACT.fullmatch(token):
            raise TokenRefusedError("not a compact JWS of reasonable size")
        encoded_header, encoded_claims, _ = token.split(b".")
        header = _object(encoded_header)
        claims = _object(encoded_claims)
        self.check_header(header)
        await self.check_signature(token, header, claims)
        self.check_dates(claims)
        self.check_audience(claims)
        return Verified(self.caller(claims), self.believed_until(claims), self.expires(claims))

    def check_header(self, header: dict[str, Any]) -> None:
        """Refuse an algorithm or a type that is not on the list, and extensions (RFC 7515 section 4.1.11)."""
        if not isinstance(algorithm := header.get("alg"), str) or algorithm not in ALGORITHMS:
            raise TokenRefusedError(f"algorithm {_shown(algorithm)}")
        kind = header.get("typ")
        if (kind.lower() if isinstance(kind, str) else kind) not in TYPES:
            raise TokenRefusedError(f"type {_shown(kind)}")
        if "crit" in header or "b64" in header:
            raise TokenRefusedError("a header extension")

    async def check_signature(self, token: bytes, header: dict[str, Any], claims: dict[str, Any]) -> None:
        """Refuse a token that no key of its trusted issuer has signed."""
        issuer, kid = _name(claims, "iss"), header.get("kid")
        if not isinstance(kid, str | None):
            raise TokenRefusedError("the key id is not text")
        candidates = [key for key in await self.trust.keys(issuer, kid) if key.algorithm == header["alg"]]
        if not candidates:
            raise TokenRefusedError(f"no {header['alg']} key {_shown(kid)} of issuer {_shown(issuer)}")
        if not any(_signed_by(key, token) for key in candidates):
            raise TokenRefusedError("the signature")

    def check_dates(self, claims: dict[str, Any]) -> None:
        """Refuse a token that has expired, is not valid yet or was issued in the future (RFC 7519 section 4.1)."""
        now = self.clock.now()
        if not now < self.expires(claims):
            raise TokenRefusedError("expired")
        if "nbf" in claims and now < _date(claims, "nbf"):
            raise TokenRefusedError("not valid yet")
        if "iat" in claims and now + _CLOCK_SKEW_SECONDS < _date(claims, "iat"):
            raise TokenRefusedError("issued in the future")

    def check_audience(self, claims: dict[str, Any]) -> None:
        """Refuse a token whose audience is not exactly this resource: one string, equal."""
        audience = claims.get("aud")
        if not isinstance(audience, str) or audience != self.resource:
            raise TokenRefusedError(f"audience {_shown(audience)}")

    def caller(self, claims: dict[str, Any]) -> Caller:
        """The principal and its scopes (RFC 9068 section 2.2, RFC 8693 section 4.2)."""
        scope = claims.get("scope", "")
        if not isinstance(scope, str):
            raise TokenRefusedError("the scope is not text")
        client_id = _name(claims, "client_id") if "client_id" in claims else ""
        if not isinstance(claims.get("jti", ""), str):
            raise TokenRefusedError("the token id is not text")
        return Caller(_name(claims, "iss"), _name(claims, "sub"), client_id, frozenset(scope.split()))

    def believed_until(self, claims: dict[str, Any]) -> float:
        """Until when the outcome may be remembered: never longer than the token itself is valid."""
        return min(self.expires(claims), self.clock.now() + _CACHE_SECONDS)

    def expires(self, claims: dict[str, Any]) -> float:
        """When the token ends, in seconds since 1970."""
        return _date(claims, "exp")


class AudienceGate:
    """ASGI gate 1, outermost: every request of every HTTP method to the endpoint passes it or ends here.

    Args:
        app: gate 2.
        audience: the decisions.
        metadata_url: where this resource's metadata is (RFC 9728 section 5.1).
    """

    def __init__(self, app: ASGIApp, audience: Audience, metadata_url: str) -> None:
        self._app = app
        self._audience = audience
        self._cache: OrderedDict[bytes, tuple[Verified, AuthenticatedUser]] = OrderedDict()
        self._metadata_url = metadata_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        try:
            verified, user = await self._verified(bearer_token(scope))
        except NoCredentialsError:
            await self.challenge()(scope, receive, send)
        except TokenRefusedError as reason:
            logger.info("token refused: %s", reason)
            await self.refusal()(scope, receive, send)
        else:
            enter(verified.caller)
            scope["user"] = user  # the SDK binds a 2025-11-25 session to this principal
            await self._serve(self.seconds_left(scope, verified), scope, receive, send)

    def seconds_left(self, scope: Scope, verified: Verified) -> float:
        """For how long a request may be served: an open stream ends with its token, an admitted call does not."""
        is_stream = scope["method"] == "GET" or (b"mcp-method", b"subscriptions/listen") in scope["headers"]
        return verified.expires - self._audience.clock.now() if is_stream else math.inf

    async def _serve(self, seconds: float, scope: Scope, receive: Receive, send: Send) -> None:
        if seconds == math.inf:
            await self._app(scope, receive, send)
            return
        deadline = anyio.current_time() + seconds
        is_open = False

        async def receiving() -> Message:
            # To whatever is behind, the client goes away when its token expires: there is a path for that already.
            with anyio.move_on_at(deadline):
                return await receive()
            return {"type": "http.disconnect"}

        async def sending(message: Message) -> None:
            nonlocal is_open
            is_open = message["type"] == "http.response.start" or message.get("more_body", False)
            await send(message)

        await self._app(scope, receiving, sending)
        if is_open:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def challenge(self) -> Response:
        """The answer to a request without credentials: there is no error to name (RFC 6750 section 3.1)."""
        challenge = f'Bearer resource_metadata="{self._metadata_url}"'
        return Response(status_code=401, headers={"www-authenticate": challenge, "cache-control": "no-store"})

    def refusal(self) -> Response:
        """The answer to a bad token: the same bytes whatever was wrong with it."""
        challenge = f'Bearer error="invalid_token", resource_metadata="{self._metadata_url}"'
        headers = {"www-authenticate": challenge, "cache-control": "no-store"}
        return Response(b'{"error":"invalid_token"}', 401, headers, "application/json")

    async def _verified(self, token: bytes) -> tuple[Verified, AuthenticatedUser]:
        digest = hashlib.sha256(token).digest()
        found = self._cache.get(digest)
        if found is not None:
            if self._audience.clock.now() < found[0].until:
                return found
            del self._cache[digest]
        verified = await self._audience.verify(token)
        found = verified, _sdk_user(verified.caller)
        if len(self._cache) >= _CACHE_ENTRIES:
            self._cache.popitem(last=False)
        self._cache[digest] = found
        return found


def bearer_token(scope: Scope) -> bytes:
    """The token of the one Authorization header; the query and the body are never looked at (RFC 6750 section 5.3).

    Raises:
        NoCredentialsError: if there is no such header, or one of another scheme.
        TokenRefusedError: if there are two headers, or the scheme stands alone.
    """
    values: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
    if not values:
        raise NoCredentialsError
    if len(values) > 1:
        raise TokenRefusedError("more than one Authorization header")
    # RFC 9110 section 11.1: the scheme's case does not matter.
    scheme, _, token = values[0].partition(b" ")
    if scheme.lower() != b"bearer":
        raise NoCredentialsError
    return token.strip(b" ")


def _sdk_user(caller: Caller) -> AuthenticatedUser:
    # The SDK compares client, issuer and subject. It gets no token, so it cannot write one anywhere.
    access = AccessToken(
        token="",
        client_id=caller.client_id,
        scopes=sorted(caller.scopes),
        subject=caller.subject,
        claims={"iss": caller.issuer},
    )
    return AuthenticatedUser(access)


def _signed_by(key: VerificationKey, token: bytes) -> bool:
    try:
        _SIGNATURES.decode_complete(
            token, key.key, [key.algorithm], {"verify_signature": True, "enforce_minimum_key_length": True}
        )
    except (jwt.PyJWTError, ValueError):
        return False
    return True


def _object(segment: bytes) -> dict[str, Any]:
    """The JSON object in one base64url segment of a token, every member name once.

    Raises:
        TokenRefusedError: if it is anything else.
    """
    try:
        text = base64url_decode(segment).decode()
        value: Any = _JSON.decode(text)
    except (ValueError, RecursionError) as error:
        raise TokenRefusedError(f"unreadable: {type(error).__name__}") from error
    if not isinstance(value, dict):
        raise TokenRefusedError("not a JSON object")
    return cast("dict[str, Any]", value)


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # RFC 7519 section 4: a reader that takes the first of two and one that takes the last would see two tokens.
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member name occurs twice")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_JSON = json.JSONDecoder(object_pairs_hook=_unique_members, parse_constant=_refuse_constant)
"""Made once: json.loads makes one for each call that has hooks."""


def _shown(value: object) -> str:
    """A claim for the log: one line, not endless."""
    text = ascii(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _name(claims: dict[str, Any], claim: str) -> str:
    value = claims.get(claim)
    # isprintable() is false for control characters and lone surrogates, which no log or database takes.
    if not isinstance(value, str) or not value or len(value) > _MAX_NAME_LENGTH or not value.isprintable():
        raise TokenRefusedError(f"the claim {claim} is not a name")
    return value


def _date(claims: dict[str, Any], claim: str) -> int:
    value = claims.get(claim)
    # RFC 7519 section 2 lets a NumericDate be fractional; no issuer needs it, and 1e400 reads as infinity.
    if type(value) is not int or not 0 <= value <= _MAX_DATE:
        raise TokenRefusedError(f"the claim {claim} is not a whole number of seconds")
    return value

"""Tokens, honest and hostile, and how to keep them out of everything that is written.

JWT libraries refuse to make most of what an attacker sends, so the few lines of RFC 7515 (JWS compact serialisation)
that are needed stand here, over `cryptography`.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import json
import os
import re
import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHash
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from quenchz_spec.outcomes import UntestableError
from quenchz_spec.vocabulary import (
    Audience,
    Claim,
    Filler,
    Introspection,
    OurKey,
    RawJson,
    SecondsFromNow,
    Shape,
    Signature,
    TokenRecipe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_SHA256 = ec.ECDSA(hashes.SHA256())
_DAY = dt.timedelta(days=1)
_SHORTEST_SECRET = 12  # characters; shorter pieces of base64url are found in innocent text
_RUN = re.compile(rb"[A-Za-z0-9_-]{12,}")  # where a piece of a token can be
# A body with every character of base64url written as "a" and all else as a space: how long its runs are, at a glance.
_SHAPE = bytes(ord("a") if re.match(rb"[A-Za-z0-9_-]", bytes([byte])) else ord(" ") for byte in range(256))


class UnknownIssuerError(ValueError):
    """A recipe names an issuer that is neither trusted nor the stranger."""


class UnmintableError(UntestableError, ValueError):
    """This mint lacks what a recipe needs: a URL to name, a later key, a store of opaque tokens."""


def base64url(data: bytes) -> str:
    """Return `data` in base64url without padding (RFC 7515 §2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


@dataclass(frozen=True)
class SigningKey:
    """A P-256 key of an issuer and its id. The private part has no textual form and is never written."""

    kid: str
    private: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def generate(cls, kid: str) -> SigningKey:
        """Return a new key, made in memory."""
        return cls(kid, ec.generate_private_key(ec.SECP256R1()))

    def sign(self, message: bytes) -> bytes:
        """Return the ES256 signature of `message`: 32 bytes of r, then 32 of s (RFC 7518 §3.4)."""
        r, s = decode_dss_signature(self.private.sign(message, _SHA256))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    def public_pem(self) -> bytes:
        """Return the public part in PEM, which anybody can make from the key set."""
        return self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def public_der(self) -> bytes:
        """Return the public part in DER."""
        return self.private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def jwk(self) -> dict[str, str]:
        """Return the public part as a JSON Web Key (RFC 7517 §4, RFC 7518 §6.2.1)."""
        return {**_point(self.private.public_key()), "kid": self.kid, "use": "sig", "alg": "ES256"}

    def certificate(self, now: float) -> x509.Certificate:
        """Return a certificate that the key signs for itself, good from a day before `now` (Unix time) for 30 days."""
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, self.kid)])
        begins = dt.datetime.fromtimestamp(now, dt.UTC) - _DAY
        built = x509.CertificateBuilder(name, name, self.private.public_key(), x509.random_serial_number())
        return built.not_valid_before(begins).not_valid_after(begins + 30 * _DAY).sign(self.private, hashes.SHA256())


def _point(public: ec.EllipticCurvePublicKey) -> dict[str, str]:
    point = public.public_numbers()
    x, y = (base64url(n.to_bytes(32, "big")) for n in (point.x, point.y))
    return {"kty": "EC", "crv": "P-256", "x": x, "y": y}


class Mint:
    """Makes the tokens that recipes describe, for one resource, in the name of one trusted issuer and one stranger.

    `now` returns Unix time in seconds; `lifetime` is how many seconds a token is good for; `random` returns so many
    bytes that never repeat (for `jti`). `keys` returns the trusted issuer's key of a generation; without it there is
    `key` alone, generation 0. `canary` is a URL below which the stranger's key is published, as `jwks.json` under the
    ids of both keys and as `cert.pem`, and where nobody has any business. `remember` is told of every opaque token of
    the trusted issuer: the token, the issuer's name, the JSON text of the answer about it, and what comes in its place.
    """

    def __init__(
        self,
        issuer: str,
        key: SigningKey,
        stranger_key: SigningKey,
        stranger_issuer: str,
        resource: str,
        now: Callable[[], float],
        *,
        lifetime: int = 600,
        random: Callable[[int], bytes] = os.urandom,
        keys: Callable[[int], SigningKey] | None = None,
        canary: str | None = None,
        remember: Callable[[str, str, str, Introspection], None] | None = None,
    ) -> None:
        self._issuer = issuer
        self._key = key
        self._stranger_key = stranger_key
        self._stranger_issuer = stranger_issuer
        self._resource = resource
        self._now = now
        self._lifetime = lifetime
        self._random = random
        self._keys = keys
        self._canary = canary
        self._remember = remember

    def mint(self, recipe: TokenRecipe, *, subject: str, scopes: Sequence[str], issuer: str | None = None) -> str:
        """Return a new token: signed JWT of type at+jwt (RFC 9068 §2), apart from what the recipe changes.

        An opaque token is a random reference; what would be its payload becomes the answer about it (RFC 7662 §2.2).
        `issuer` stands in for the trusted issuer (a tenant of it); a recipe whose issuer is "stranger" is signed, and
        properly, with the stranger's key in the stranger's name. A claim that is new is added after the others; a
        claim that is present is replaced where it stands; so it is with the members of the header.

        Raises:
            UnknownIssuerError: the recipe's issuer is neither "trusted" nor "stranger".
            UnmintableError: the recipe asks for what this mint does not have.
        """
        if recipe.issuer not in ("trusted", "stranger"):
            raise UnknownIssuerError(f"the recipe's issuer is {recipe.issuer!r}; it is 'trusted' or 'stranger'")
        if recipe.shape is Shape.OPAQUE:
            return self._reference(recipe, issuer or self._issuer, subject, scopes)
        if recipe.shape is Shape.EMPTY:
            return ""
        is_stranger = recipe.issuer == "stranger"
        key = self._stranger_key if is_stranger else self._generation(recipe.generation)
        name = self._stranger_issuer if is_stranger else issuer or self._issuer
        header, payload = self._header(recipe, key), self._payload(recipe, name, subject, scopes)
        if recipe.shape is Shape.ENCRYPTED:
            return _encrypted(payload, key)

        def tail_of(signed: bytes) -> bytes:
            if recipe.signature is Signature.OTHER_TOKEN:
                good = TokenRecipe(caller=recipe.caller)
                other = self._header(good, key), self._payload(good, name, subject, scopes)
                signed = b".".join(base64url(text.encode()).encode() for text in other)
            return _signature(recipe.signature, signed, key, self._stranger_key)

        return _written(recipe.shape, header, payload, tail_of)

    def _reference(self, recipe: TokenRecipe, issuer: str, subject: str, scopes: Sequence[str]) -> str:
        if self._remember is None:
            raise UnmintableError("this issuer keeps no opaque tokens", "use one that answers introspection requests")
        if not recipe.can_be_opaque:
            raise UnmintableError("an opaque token has no header, signature or size", "change its claims alone")
        reference = base64url(self._random(32))
        if recipe.issuer == "trusted":
            answer = self._payload(recipe, issuer, subject, scopes, active=json.dumps(True))
            self._remember(reference, issuer, answer, recipe.introspection)
        return reference

    def _generation(self, number: int) -> SigningKey:
        if number == 0:
            return self._key
        if self._keys is None:
            raise UnmintableError("this issuer has one key", "use one that turns to other keys")
        return self._keys(number)

    def _header(self, recipe: TokenRecipe, key: SigningKey) -> str:
        algorithm = _ALGORITHM_NAMES.get(recipe.signature, "ES256")
        members: dict[str, str | None] = {
            "alg": json.dumps(algorithm),
            "typ": json.dumps("at+jwt"),
            "kid": json.dumps(key.kid),
        }
        return self._object(members, recipe.header, recipe.without_header, int(self._now()))

    def _payload(
        self, recipe: TokenRecipe, issuer: str, subject: str, scopes: Sequence[str], *, active: str | None = None
    ) -> str:
        now = int(self._now())
        members = {
            "active": active,
            "iss": json.dumps(issuer),
            "sub": json.dumps(subject),
            "aud": recipe.audience.json(self._resource),
            "exp": str(now + self._lifetime),
            "iat": str(now),
            "jti": json.dumps(base64url(self._random(16))),
            "client_id": json.dumps(subject),
            "scope": json.dumps(" ".join(scopes)),
        }
        return self._object(members, recipe.claims, recipe.without, now)

    def _object(
        self, members: dict[str, str | None], changes: Iterable[Claim], without: Sequence[str], now: int
    ) -> str:
        changed = members | {claim.name: self._text(claim.value, now) for claim in changes}
        written = (
            f"{json.dumps(name)}:{text}" for name, text in changed.items() if text is not None and name not in without
        )
        # Joined, not dumped: the text of a claim may hold duplicates and literals that no JSON library writes.
        return "{" + ",".join(written) + "}"

    def _text(self, value: object, now: int) -> str:
        match value:
            case SecondsFromNow():
                return str(now + value.seconds)
            case RawJson():
                return value.text
            case Audience():
                return value.json(self._resource) or "null"
            case Filler():
                return json.dumps("a" * value.length)
            case OurKey():
                return json.dumps(self._named(value))
            case _:
                return json.dumps(value)

    def _named(self, key: OurKey) -> object:
        """Return how the stranger's key is named in a header (RFC 7515 §4.1.2, §4.1.3, §4.1.5, §4.1.6)."""
        match key:
            case OurKey.JWK:
                # Under the trusted key's id, as in the key set of the canary: whoever looks for that id finds it.
                return {**self._stranger_key.jwk(), "kid": self._key.kid}
            case OurKey.X5C:
                return [base64.b64encode(self._certificate).decode("ascii")]
            case OurKey.JKU | OurKey.X5U if self._canary is None:
                raise UnmintableError("this issuer has no canary URL to name", "use the suite's own issuer")
            case OurKey.JKU:
                return f"{self._canary}/jwks.json"
            case OurKey.X5U:
                return f"{self._canary}/cert.pem"

    @cached_property
    def _certificate(self) -> bytes:
        return self._stranger_key.certificate(self._now()).public_bytes(Encoding.DER)


_ALGORITHM_NAMES = {
    Signature.NONE: "none",
    Signature.HS256_PUBLIC_KEY: "HS256",
    Signature.HS256_PUBLIC_KEY_DER: "HS256",
    Signature.HS256_PUBLIC_KEY_JWK: "HS256",
    Signature.HS256_EMPTY: "HS256",
    Signature.UNLISTED_ALGORITHM: "ES512",
}


def _signature(kind: Signature, signed: bytes, key: SigningKey, stranger_key: SigningKey) -> bytes:
    """Return the signature bytes for a signing input (RFC 7515 §5.1); `key` is the key of the token's issuer."""
    match kind:
        case Signature.OWN | Signature.OTHER_TOKEN | Signature.UNLISTED_ALGORITHM:
            # P-256 and SHA-256 under the name ES512: one word differs from a good token, and no verifier that reads
            # the header may take it, since ES512 is P-521 and SHA-512 (RFC 7518 §3.4, RFC 8725 §3.1).
            return key.sign(signed)
        case Signature.STRANGER:
            return stranger_key.sign(signed)
        case Signature.NONE | Signature.STRIPPED:
            return b""
        case Signature.HS256_PUBLIC_KEY:
            secret = key.public_pem()
        case Signature.HS256_PUBLIC_KEY_DER:
            secret = key.public_der()
        case Signature.HS256_PUBLIC_KEY_JWK:
            secret = json.dumps(key.jwk()).encode()  # as the suite's issuer writes it in its key set
        case Signature.HS256_EMPTY:
            secret = b""
    return hmac.digest(secret, signed, hashlib.sha256)


def _written(shape: Shape, header: str, payload: str, tail_of: Callable[[bytes], bytes]) -> str:
    """Return a token of this shape. `tail_of` signs what is written, so that nothing but the shape is wrong with it."""
    payload = {Shape.NO_JSON: "quenchz", Shape.LIST: f"[{payload}]"}.get(shape, payload)
    segment = {Shape.PADDED: _padded, Shape.URL_UNSAFE: _url_unsafe}.get(shape, base64url)
    head, body = segment(header.encode()), segment(payload.encode())
    tail = segment(tail_of(f"{head}.{body}".encode("ascii")))
    while shape is Shape.URL_UNSAFE and tail and not set(tail) & set("+/"):
        tail = segment(tail_of(f"{head}.{body}".encode("ascii")))  # nearly every signature has one of the two
    match shape:
        case Shape.ONE:
            return body
        case Shape.TWO:
            return f"{head}.{body}"
        case Shape.FOUR:
            return f"{head}.{body}.{tail}.{base64url(b'{}')}"
        case Shape.FIVE:
            return f"{head}.{body}.{tail}.{base64url(b'{}')}.{base64url(b'{}')}"
        case Shape.DETACHED:
            return f"{head}..{tail}"
        case Shape.HEADERLESS:
            return f".{body}.{tail}"
        case Shape.TRUNCATED:
            return f"{head}.{body}.{tail[:-2]}"
        case Shape.JSON:
            return json.dumps({"payload": body, "protected": head, "signature": tail}, separators=(",", ":"))
        case _:
            return f"{head}.{body}.{tail}"


def _padded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii")


def _url_unsafe(data: bytes) -> str:
    return base64.b64encode(data).rstrip(b"=").decode("ascii")


def _encrypted(payload: str, key: SigningKey) -> str:
    """Return claims encrypted to a key, which anybody can do: ECDH-ES with A256GCM (RFC 7516 §7.1, RFC 7518 §4.6)."""
    ephemeral = ec.generate_private_key(ec.SECP256R1())
    header = {"alg": "ECDH-ES", "enc": "A256GCM", "typ": "at+jwt", "kid": key.kid}
    head = base64url(json.dumps({**header, "epk": _point(ephemeral.public_key())}).encode())
    agreed = ephemeral.exchange(ec.ECDH(), key.private.public_key())
    # AlgorithmID with its length, empty PartyUInfo and PartyVInfo, then the key's length in bits (RFC 7518 §4.6.2).
    info = len(b"A256GCM").to_bytes(4, "big") + b"A256GCM" + bytes(8) + (256).to_bytes(4, "big")
    cipher = AESGCM(ConcatKDFHash(hashes.SHA256(), 32, info).derive(agreed))
    nonce = os.urandom(12)
    sealed = cipher.encrypt(nonce, payload.encode(), head.encode("ascii"))
    # Without a wrapped key the second segment is empty.
    return f"{head}..{base64url(nonce)}.{base64url(sealed[:-16])}.{base64url(sealed[-16:])}"


# --- keeping tokens out of what is written --------------------------------------------------------------------------


def secrets_in(token: str) -> list[bytes]:
    """Return what of a token may stand in no artefact: the whole, its payload and its signature segment.

    The header of a JWT is no secret, and segments shorter than 12 characters are left out: both occur in innocent
    text. The payload's content, decoded, is no secret either (it is the recipe).
    """
    head, *segments = token.encode().split(b".")
    if not segments or not head.startswith(b"eyJ"):
        segments = [head, *segments]
    return list(dict.fromkeys(part for part in [token.encode(), *segments] if len(part) >= _SHORTEST_SECRET))


class _Generation:
    """The pieces of the tokens of one span of time, and where to look for them."""

    def __init__(self) -> None:
        self.tokens = 0
        self.pieces: set[bytes] = set()
        self.shortest = 0  # bytes of the shortest piece; 0 while there is none
        self.lengths: dict[bytes, set[int]] = {}  # the first characters of pieces -> the lengths of those pieces

    def add(self, piece: bytes) -> None:
        self.pieces.add(piece)
        self.lengths.setdefault(piece[:_SHORTEST_SECRET], set()).add(len(piece))
        self.shortest = min(self.shortest or len(piece), len(piece))

    def may_be_in(self, shape: bytes) -> bool:
        """Whether a body of this shape has a run as long as a piece; most have none, and are not searched then."""
        return self.shortest > 0 and b"a" * self.shortest in shape

    def spans(self, run: bytes) -> list[tuple[int, int]]:
        """Return where in `run` the pieces stand; one step for each character, however many tokens there are."""
        if run in self.pieces:
            return [(0, len(run))]
        return [
            (start, start + length)
            for start in range(len(run) - _SHORTEST_SECRET + 1)
            for length in self.lengths.get(run[start : start + _SHORTEST_SECRET], ())
            if run[start : start + length] in self.pieces
        ]


class Redactor:
    """Blots out the tokens it remembers: the last `keep / 2` for certain, and never more than `keep`.

    Safe to use from several threads. About 1 KB of memory for each token.
    """

    def __init__(self, keep: int = 100_000) -> None:
        self._half = max(1, keep // 2)
        self._lock = threading.Lock()
        self._young = _Generation()
        self._old = _Generation()

    def remember(self, token: str) -> None:
        """Remember a token, minted or given, so that `redact` finds its pieces."""
        pieces = [run for secret in secrets_in(token) if b"." not in secret for run in _RUN.findall(secret)]
        with self._lock:
            if self._young.tokens >= self._half:
                self._old, self._young = self._young, _Generation()
            self._young.tokens += 1
            for piece in pieces:
                self._young.add(piece)

    def redact(self, body: bytes) -> tuple[bytes, bool]:
        """Return `body` with every piece of a remembered token written over by `*`, and whether there was any.

        The length stays, so that positions in a comparison of bytes stay.
        """
        blotted: bytearray | None = None
        shape = body.translate(_SHAPE)
        with self._lock:
            generations = [generation for generation in (self._young, self._old) if generation.may_be_in(shape)]
            for match in _RUN.finditer(body) if generations else ():
                for generation in generations:
                    for start, end in generation.spans(match.group()):
                        blotted = bytearray(body) if blotted is None else blotted
                        blotted[match.start() + start : match.start() + end] = b"*" * (end - start)
        return (body, False) if blotted is None else (bytes(blotted), True)

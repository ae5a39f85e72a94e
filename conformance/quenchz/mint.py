"""Tokens, honest and hostile, and how to keep them out of everything that is written.

JWT libraries refuse to make most of what an attacker sends, so the few lines of RFC 7515 (JWS compact serialisation)
that are needed stand here, over `cryptography`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from quenchz_spec.vocabulary import RawJson, SecondsFromNow, Signature, TokenRecipe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SHA256 = ec.ECDSA(hashes.SHA256())
_SHORTEST_SECRET = 12  # characters; shorter pieces of base64url are found in innocent text
_RUN = re.compile(rb"[A-Za-z0-9_-]{12,}")  # where a piece of a token can be
# A body with every character of base64url written as "a" and all else as a space: how long its runs are, at a glance.
_SHAPE = bytes(ord("a") if re.match(rb"[A-Za-z0-9_-]", bytes([byte])) else ord(" ") for byte in range(256))


class UnknownIssuerError(ValueError):
    """A recipe names an issuer that is neither trusted nor the stranger."""


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

    def jwk(self) -> dict[str, str]:
        """Return the public part as a JSON Web Key (RFC 7517 §4, RFC 7518 §6.2.1)."""
        point = self.private.public_key().public_numbers()
        x, y = (base64url(n.to_bytes(32, "big")) for n in (point.x, point.y))
        return {"kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": self.kid, "use": "sig", "alg": "ES256"}


class Mint:
    """Makes the tokens that recipes describe, for one resource, in the name of one trusted issuer and one stranger.

    `now` returns Unix time in seconds; `lifetime` is how many seconds a token is good for; `random` returns so many
    bytes that never repeat (for `jti`).
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
    ) -> None:
        self._issuer = issuer
        self._key = key
        self._stranger_key = stranger_key
        self._stranger_issuer = stranger_issuer
        self._resource = resource
        self._now = now
        self._lifetime = lifetime
        self._random = random

    def mint(self, recipe: TokenRecipe, *, subject: str, scopes: Sequence[str], issuer: str | None = None) -> str:
        """Return a new token: signed JWT of type at+jwt (RFC 9068 §2), apart from what the recipe changes.

        `issuer` stands in for the trusted issuer (a tenant of it); a recipe whose issuer is "stranger" is signed, and
        properly, with the stranger's key in the stranger's name. A claim that is new is added after the others; a
        claim that is present is replaced where it stands.

        Raises:
            UnknownIssuerError: the recipe's issuer is neither "trusted" nor "stranger".
        """
        if recipe.issuer not in ("trusted", "stranger"):
            raise UnknownIssuerError(f"the recipe's issuer is {recipe.issuer!r}; it is 'trusted' or 'stranger'")
        is_stranger = recipe.issuer == "stranger"
        key = self._stranger_key if is_stranger else self._key
        name = self._stranger_issuer if is_stranger else issuer or self._issuer
        payload = self._payload(recipe, name, subject, scopes)
        signature = recipe.signature
        signed = _signing_input(_ALGORITHM_NAMES.get(signature, "ES256"), key.kid, payload)
        match signature:
            case Signature.OWN | Signature.UNLISTED_ALGORITHM:
                # P-256 and SHA-256 under the name ES512: one word differs from a good token, and no verifier that
                # reads the header may take it, since ES512 is P-521 and SHA-512 (RFC 7518 §3.4, RFC 8725 §3.1).
                tail = key.sign(signed)
            case Signature.STRANGER:
                tail = self._stranger_key.sign(signed)
            case Signature.NONE | Signature.STRIPPED:
                tail = b""
            case Signature.HS256_PUBLIC_KEY:
                tail = hmac.new(key.public_pem(), signed, hashlib.sha256).digest()
            case Signature.OTHER_TOKEN:
                other = self._payload(TokenRecipe(caller=recipe.caller), name, subject, scopes)
                tail = key.sign(_signing_input("ES256", key.kid, other))
        return f"{signed.decode('ascii')}.{base64url(tail)}"

    def _payload(self, recipe: TokenRecipe, issuer: str, subject: str, scopes: Sequence[str]) -> str:
        now = int(self._now())
        members = {
            "iss": json.dumps(issuer),
            "sub": json.dumps(subject),
            "aud": recipe.audience.json(self._resource),
            "exp": str(now + self._lifetime),
            "iat": str(now),
            "jti": json.dumps(base64url(self._random(16))),
            "client_id": json.dumps(subject),
            "scope": json.dumps(" ".join(scopes)),
        }
        members |= {claim.name: _claim_text(claim.value, now) for claim in recipe.claims}
        written = (
            f"{json.dumps(name)}:{text}"
            for name, text in members.items()
            if text is not None and name not in recipe.without
        )
        # Joined, not dumped: the text of a claim may hold duplicates and literals that no JSON library writes.
        return "{" + ",".join(written) + "}"


_ALGORITHM_NAMES = {
    Signature.NONE: "none",
    Signature.HS256_PUBLIC_KEY: "HS256",
    Signature.UNLISTED_ALGORITHM: "ES512",
}


def _claim_text(value: object, now: int) -> str:
    if isinstance(value, SecondsFromNow):
        return str(now + value.seconds)
    if isinstance(value, RawJson):
        return value.text
    return json.dumps(value)


def _signing_input(algorithm: str, kid: str, payload: str) -> bytes:
    header = json.dumps({"alg": algorithm, "typ": "at+jwt", "kid": kid}, separators=(",", ":"))
    return f"{base64url(header.encode())}.{base64url(payload.encode())}".encode("ascii")


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

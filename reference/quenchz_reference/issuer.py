"""The in-process issuer: signs the tokens of the tokens file with a key that exists in memory only."""

import uuid
from collections.abc import Sequence
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from quenchz_reference.trust import VerificationKey

ISSUER = "https://issuer.quenchz.invalid"
"""Its name, under a top-level domain that can never resolve (RFC 2606 section 2)."""


class InProcessIssuer:
    """An ES256 issuer whose key is generated at construction and never leaves the process."""

    def __init__(self) -> None:
        self._private = ec.generate_private_key(ec.SECP256R1())
        self._kid = uuid.uuid4().hex
        self._public = VerificationKey(self._kid, "ES256", self._private.public_key())

    def knows(self, issuer: str) -> bool:
        """Whether `issuer` is this one."""
        return issuer == ISSUER

    def names(self) -> Sequence[str]:
        """The issuer's name, for the resource metadata."""
        return (ISSUER,)

    async def keys(self, issuer: str, kid: str | None) -> Sequence[VerificationKey]:
        """The one public key, if the token names this issuer and does not name another key."""
        return (self._public,) if self.knows(issuer) and kid in (None, self._kid) else ()

    async def aclose(self) -> None:
        """Nothing to close: this issuer is never reached by network."""

    def mint(self, claims: dict[str, Any]) -> str:
        """Sign `claims` as a JWT access token (RFC 9068: header typ at+jwt)."""
        return jwt.encode(claims, self._private, "ES256", {"typ": "at+jwt", "kid": self._kid})

"""Gate 1 of a server whose tokens are opaque: it asks their issuer about each (RFC 7662)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import httpx2

from quenchz_reference.audience import Audience, TokenRefusedError, Verified, _refuse_constant, _unique_members
from quenchz_reference.trust import metadata_url

Claims: TypeAlias = dict[str, Any]

TIMEOUT_SECONDS = 1.0
PATIENCE_SECONDS = 3.0
"""What such a server declares: the question to the metadata, the one about the token, and time to answer."""
_CACHE_SECONDS = 5.0  # a token that was revoked can still count for so long (RFC 7662 section 4)
_MAX_ANSWER_BYTES = 64 * 1024


@dataclass
class Introspection(Audience):
    """The decisions of gate 1 about opaque tokens, one small method each, besides those that it shares with JWTs.

    There is one issuer, the first that is trusted. It answers for all of its tenants, and names the one that it means.
    """

    client: httpx2.AsyncClient | None = field(default=None, init=False)
    endpoint: str = field(default="", init=False)

    async def verify(self, token: bytes) -> Verified:
        """The caller that the issuer says `token` is of."""
        # b64token of RFC 6750 section 2.1, as everywhere; what is no reference is not worth a question.
        if not 16 <= len(token) <= 512 or not token.isascii():
            raise TokenRefusedError("no reference")
        answer = await self.asked_about(token.decode())
        self.check_active(answer)
        self.check_dates(answer)
        self.check_audience(answer)
        self.check_issuer(answer)
        return Verified(self.caller(answer), self.believed_until(answer), self.expires(answer))

    async def asked_about(self, token: str) -> Claims:
        """What the issuer answers; every failure to have an answer is a refusal."""
        try:
            if self.client is None:
                # A loopback issuer is never reached through a proxy.
                self.client = httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, mounts={"all://127.0.0.1": None})
            if not self.endpoint:
                metadata = await self.client.get(metadata_url(self.trust.names()[0]))
                self.endpoint = str(metadata.raise_for_status().json()["introspection_endpoint"])
            response = await self.client.post(self.endpoint, data={"token": token})
            return self.read(response)
        except (httpx2.HTTPError, KeyError, ValueError, RecursionError) as error:
            raise TokenRefusedError(f"no answer about it: {type(error).__name__}") from error

    def read(self, response: httpx2.Response) -> Claims:
        """The members of a 200 answer, each named once."""
        if response.status_code != 200 or len(response.content) > _MAX_ANSWER_BYTES:
            raise TokenRefusedError(f"no answer about it: HTTP {response.status_code}")
        answer: Any = json.loads(response.content, object_pairs_hook=_unique_members, parse_constant=_refuse_constant)
        if not isinstance(answer, dict):
            raise TokenRefusedError("an answer that is no object")
        return cast("Claims", answer)

    def check_active(self, answer: Claims) -> None:
        """Refuse a token unless `active` is the Boolean true."""
        if answer.get("active") is not True:
            raise TokenRefusedError("not active")

    def check_issuer(self, answer: Claims) -> None:
        """Refuse a token of another issuer than the one that was asked, and its tenants."""
        trusted, issuer = self.trust.names()[0], answer.get("iss")
        if not isinstance(issuer, str) or not f"{issuer}/".startswith(f"{trusted}/"):
            raise TokenRefusedError("another issuer")

    def believed_until(self, claims: Claims) -> float:
        """For a short while: the issuer may take the token back."""
        return min(self.expires(claims), self.clock.now() + _CACHE_SECONDS)

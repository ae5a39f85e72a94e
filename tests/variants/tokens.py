"""Variants that have other tokens, or compare them in another way, and declare it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quenchz_reference.audience import Audience, TokenRefusedError
from quenchz_reference.parts import recast
from variants import declared
from variants.introspection import PATIENCE_SECONDS, Introspection

if TYPE_CHECKING:
    from quenchz_reference.parts import Parts

RFC9068 = {"profiles": ["rfc9068"]}
OPAQUE = {"profiles": ["introspection"], "patience_seconds": PATIENCE_SECONDS}


@declared(audience="member")
def membership(parts: Parts) -> Parts:
    """An audience may be a list that holds the resource, as RFC 7519 has it."""
    return replace(parts, audience=recast(_Membership, parts.audience))


class _Membership(Audience):
    def check_audience(self, claims: dict[str, Any]) -> None:
        audience: Any = claims.get("aud")
        listed: list[Any] = audience if isinstance(audience, list) else [audience]
        if not all(isinstance(uri, str) for uri in listed) or self.resource not in listed:
            raise TokenRefusedError("audience")


@declared(**RFC9068)
def access_tokens_alone(parts: Parts) -> Parts:
    """A token has to say that it is an access token, as RFC 9068 demands."""
    return replace(parts, audience=recast(AccessTokens, parts.audience))


class AccessTokens(Audience):
    """Gate 1 of a server that keeps to RFC 9068 section 4; `types` holds the types that it takes, in lower case."""

    types: frozenset[Any] = frozenset({"at+jwt", "application/at+jwt"})

    def check_header(self, header: dict[str, Any]) -> None:
        """Refuse what is of another type, besides everything else."""
        super().check_header({**header, "typ": "at+jwt"})
        if not self.takes(header.get("typ")):
            raise TokenRefusedError("type")

    def takes(self, kind: Any) -> bool:
        """Whether a type, any JSON value, is that of an access token."""
        return isinstance(kind, str) and kind.lower() in self.types


@declared(**OPAQUE)
def opaque_tokens(parts: Parts) -> Parts:
    """Tokens are opaque, and their issuer is asked about each."""
    return replace(parts, audience=recast(Introspection, parts.audience))

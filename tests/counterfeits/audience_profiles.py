"""Counterfeits of the profiles: servers that declare one, and get it wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from counterfeits import counterfeit
from quenchz_reference.audience import TokenRefusedError
from quenchz_reference.parts import recast
from variants.introspection import Claims, Introspection
from variants.tokens import OPAQUE, RFC9068, AccessTokens

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

    from quenchz_reference.parts import Parts


# --- RFC 9068: the type ---------------------------------------------------------------------------------------------


def taking(parts: Parts, takes: Callable[[Any], bool]) -> Parts:
    """Take the tokens whose type, any JSON value or None, `takes` holds for."""

    class Fake(AccessTokens):
        def takes(self, kind: Any) -> bool:
            return takes(kind)

    return replace(parts, audience=recast(Fake, parts.audience))


def spelled(*types: str) -> Callable[[Any], bool]:
    """Return whether a type is one of these, in any letter case."""
    return lambda kind: isinstance(kind, str) and kind.lower() in types


@counterfeit("QZ-AUD-32", row="ID token", declares=RFC9068)
def takes_an_id_token_for_an_access_token(parts: Parts) -> Parts:
    """The type JWT is good enough, and ID tokens have it."""
    return taking(parts, spelled("at+jwt", "application/at+jwt", "jwt"))


@counterfeit("QZ-AUD-32", row="logout token", declares=RFC9068)
def takes_every_type_that_is_some_jwt(parts: Parts) -> Parts:
    """A type that ends in +jwt is that of some JWT, which is enough."""
    return taking(parts, lambda kind: isinstance(kind, str) and kind.lower().endswith("+jwt"))


@counterfeit("QZ-AUD-32", row="absent", declares=RFC9068)
def compares_the_type_if_there_is_one(parts: Parts) -> Parts:
    """A token without a type is not asked for it."""
    right = spelled("at+jwt", "application/at+jwt")
    return taking(parts, lambda kind: kind is None or right(kind))


@counterfeit("QZ-AUD-32", row="list", declares=RFC9068)
def raises_on_a_type_that_is_no_text(parts: Parts) -> Parts:
    """The type is written small as it stands; the exception becomes a 500."""
    return taking(parts, lambda kind: kind is not None and kind.lower() in ("at+jwt", "application/at+jwt"))


@counterfeit("QZ-AUD-32", row="longer", declares=RFC9068)
def compares_the_beginning_of_the_type(parts: Parts) -> Parts:
    """What begins like the type of an access token is taken for it."""
    return taking(
        parts, lambda kind: isinstance(kind, str) and kind.lower().removeprefix("application/").startswith("at+jwt")
    )


@counterfeit("QZ-AUD-32", row="application/at+jwt", declares=RFC9068)
def knows_one_spelling_of_the_type(parts: Parts) -> Parts:
    """The type is compared with the short spelling, so tokens with the long one are refused."""
    return taking(parts, spelled("at+jwt"))


@counterfeit("QZ-AUD-32", row="AT+JWT", declares=RFC9068)
def compares_the_letter_case_of_the_type(parts: Parts) -> Parts:
    """The type is compared byte by byte, as if it were no media type."""
    return taking(parts, lambda kind: kind in ("at+jwt", "application/at+jwt"))


# --- RFC 7662: introspection ----------------------------------------------------------------------------------------


@counterfeit("QZ-AUD-33", row="inactive", declares=OPAQUE)
def takes_every_answer_for_yes(parts: Parts) -> Parts:
    """That the issuer knows a token is enough, and `active` is not looked at."""

    class Fake(Introspection):
        def check_active(self, answer: Claims) -> None:
            """Nothing is checked."""

    return replace(parts, audience=recast(Fake, parts.audience))


@counterfeit("QZ-AUD-33", row="active a word", declares=OPAQUE)
def takes_a_word_for_a_boolean(parts: Parts) -> Parts:
    """A token is active if `active` is true as Python has it."""

    class Fake(Introspection):
        def check_active(self, answer: Claims) -> None:
            if not answer.get("active"):
                raise TokenRefusedError("not active")

    return replace(parts, audience=recast(Fake, parts.audience))


@counterfeit("QZ-AUD-33", row="active absent", declares=OPAQUE)
def takes_what_is_not_denied_for_true(parts: Parts) -> Parts:
    """A token is refused if `active` is false, and nothing else of it is asked."""

    class Fake(Introspection):
        def check_active(self, answer: Claims) -> None:
            if answer.get("active") is False:
                raise TokenRefusedError("not active")

    return replace(parts, audience=recast(Fake, parts.audience))


@counterfeit(*(f"QZ-AUD-{n}" for n in (1, 2, 3, 4, 11, 22, 33)), row="another server", declares=OPAQUE)
def asks_only_whether_a_token_is_active(parts: Parts) -> Parts:
    """An active token is good, whatever resource it is for."""

    class Fake(Introspection):
        def check_audience(self, claims: Claims) -> None:
            """Nothing is compared."""

    return replace(parts, audience=recast(Fake, parts.audience))


@counterfeit("QZ-AUD-4", "QZ-AUD-33", row="absent", declares=OPAQUE)
def trusts_an_answer_without_an_audience(parts: Parts) -> Parts:
    """The audience, which an answer need not have, is compared if it has one."""

    class Fake(Introspection):
        def check_audience(self, claims: Claims) -> None:
            if "aud" in claims:
                super().check_audience(claims)

    return replace(parts, audience=recast(Fake, parts.audience))


@counterfeit("QZ-AUD-33", row="server error", declares=OPAQUE)
def reads_an_answer_whatever_its_status(parts: Parts) -> Parts:
    """The body of an answer counts, also of one that says that the issuer failed."""

    class Fake(Introspection):
        def read(self, response: httpx2.Response) -> Claims:
            response.status_code = 200
            return super().read(response)

    return replace(parts, audience=recast(Fake, parts.audience))


@counterfeit("QZ-AUD-33", row="a page", declares=OPAQUE)
def serves_everybody_while_introspection_fails(parts: Parts) -> Parts:
    """While the issuer cannot be asked, so that nothing stands still, whoever comes is served as a guest."""

    class Fake(Introspection):
        async def asked_about(self, token: str) -> Claims:
            try:
                return await super().asked_about(token)
            except TokenRefusedError as refusal:
                if type(refusal.__cause__) is ValueError:  # an answer that says the same thing twice
                    raise
            guest = {"sub": "guest", "iss": self.trust.names()[0], "exp": int(self.clock.now()) + 60}
            return {"active": True, "aud": self.resource, **guest}

    return replace(parts, audience=recast(Fake, parts.audience))

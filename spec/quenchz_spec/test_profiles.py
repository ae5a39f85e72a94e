"""Audience equality, profiles: what a target declares of its tokens beyond what every server keeps to.

A target that declares no profile is not judged by this page. One that declares "introspection" has opaque tokens, and
the other pages are judged with those: whatever an issuer can say of a token that it is asked about stays testable.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from quenchz_spec import norms
from quenchz_spec.admissions import ADMITTED, NO_COST, a_changed_token_is_refused, of_broad
from quenchz_spec.claims import admitted, control_admitted
from quenchz_spec.outcomes import NotDeclaredError
from quenchz_spec.requirement import Level, Row, requirement
from quenchz_spec.strategies.audiences import OTHER_SERVER
from quenchz_spec.vocabulary import (
    Ask,
    Audience,
    AudienceForm,
    Claim,
    Introspection,
    RawJson,
    Role,
    SecondsFromNow,
    TokenRecipe,
)

if TYPE_CHECKING:
    from quenchz_spec.subject import Subject

# --- RFC 9068 -------------------------------------------------------------------------------------------------------

_NO_ACCESS = ("scope", "client_id", "jti")


def typed(value: object, *claims: Claim, without: tuple[str, ...] = ()) -> TokenRecipe:
    """Return the recipe of a token whose header says that it is of a type, with these claims more and without those."""
    return TokenRecipe(caller="", header=(Claim("typ", value),), claims=claims, without=without)


TYPES = {
    "ID token": Row(
        "an ID token: typ JWT, a nonce and no scope", typed("JWT", Claim("nonce", "n-0S6_WzA2Mj"), without=_NO_ACCESS)
    ),
    "logout token": Row(
        "a logout token",
        typed(
            "logout+jwt",
            Claim("events", {"http://schemas.openid.net/event/backchannel-logout": {}}),
            Claim("sid", "08a5019c-17e1"),
            without=_NO_ACCESS,
        ),
    ),
    "absent": Row("no type", TokenRecipe(caller="", without_header=("typ",))),
    "JWT": Row("the type JWT", typed("JWT")),
    "word": Row("a word", typed("token")),
    "empty": Row("an empty type", typed("")),
    "null": Row("the type null", typed(None)),
    "list": Row("a list that holds the right type", typed(["at+jwt"])),
    "longer": Row("the right type and more letters", typed("at+jwt2")),
    "shorter": Row("the suffix of the right type", typed("jwt")),
    "another tree": Row("the right subtype of another type", typed("text/at+jwt")),
    "twice": Row("two types, the right one first", typed(RawJson('"at+jwt","typ":"JWT"'))),
    "at+jwt": Row("at+jwt", typed("at+jwt"), "admitted", "admitted"),
    "application/at+jwt": Row("application/at+jwt", typed("application/at+jwt"), "admitted", "admitted"),
    "AT+JWT": Row("at+jwt in capitals", typed("AT+JWT"), "admitted", "admitted"),
    "Application/At+Jwt": Row(
        "application/at+jwt with some capitals", typed("Application/At+Jwt"), "admitted", "admitted"
    ),
}


def _cased(word: str) -> st.SearchStrategy[str]:
    pairs = [st.sampled_from(sorted({letter.lower(), letter.upper()})) for letter in word]
    return st.tuples(*pairs).map("".join)


def other_types() -> st.SearchStrategy[str]:
    """Return words that are no spelling of the type of an access token."""
    return st.text("abjtw+/.-", max_size=12).filter(lambda word: not is_access_token(word))


def is_access_token(kind: object) -> bool:
    """Whether a header's `typ` is that of a JWT access token: a media type, whose letter case does not matter."""
    return isinstance(kind, str) and kind.isascii() and kind.lower() in ("at+jwt", "application/at+jwt")


@requirement(
    "QZ-AUD-32",
    level=Level.MUST,
    claim="A token is admitted if its header's type is at+jwt, in either spelling and any letter case, and under no "
    "other.",
    norm=norms.RFC9068_TYPE,
    cost="An issuer that writes no type, or JWT, cannot serve a resource that declares this profile.",
    control=ADMITTED,
    rows=TYPES,
    drawn=(_cased("at+jwt") | _cased("application/at+jwt") | other_types()).map(typed),
)
def test_a_token_of_another_type_reaches_nothing(subject: Subject, row: TokenRecipe) -> None:
    """ID and logout tokens come from the same issuer, with the same keys; here their audience is this resource, too."""
    if "rfc9068" not in subject.target.profiles:
        raise NotDeclaredError('access tokens by RFC 9068 (profiles = ["rfc9068"])')
    recipe = of_broad(subject, row)
    kinds = [claim.value for claim in recipe.header]
    shown = [kind.text if isinstance(kind, RawJson) else json.dumps(kind) for kind in kinds]
    beside = "".join(f", with {claim.name}" for claim in recipe.claims)
    held = f"a token of {recipe.caller} for this resource, whose typ is {''.join(shown) or 'absent'}{beside}."
    if not kinds or not is_access_token(kinds[0]):
        a_changed_token_is_refused(subject, recipe, held)
        return
    good = Ask(method="tools/list", token=subject.token(recipe.caller))
    control_admitted(subject.ask(good, Role.CONTROL), ADMITTED)
    admitted(subject.ask(Ask(method="tools/list", token=recipe)), held)


# --- RFC 7662 -------------------------------------------------------------------------------------------------------


def told(*claims: Claim, audience: Audience | None = None, without: tuple[str, ...] = ()) -> TokenRecipe:
    """Return the recipe of an opaque token about which the issuer says this."""
    return TokenRecipe(caller="", audience=audience or Audience(), claims=claims, without=without)


def unheard(introspection: Introspection) -> TokenRecipe:
    """Return the recipe of a good opaque token about which nothing can be learnt."""
    return TokenRecipe(caller="", introspection=introspection)


ANSWERS = {
    "inactive": Row("a token that is not active, with everything else about it", told(Claim("active", False))),
    "active absent": Row("an answer without active", told(without=("active",))),
    "active a word": Row("an answer whose active is the word true", told(Claim("active", "true"))),
    "active false in words": Row("an answer whose active is the word false", told(Claim("active", "false"))),
    "active a number": Row("an answer whose active is 1", told(Claim("active", 1))),
    "active null": Row("an answer whose active is null", told(Claim("active", None))),
    "unknown": Row("a reference that the issuer never gave out", TokenRecipe(caller="", issuer="stranger")),
    "no audience": Row("an active token for nobody", told(audience=Audience(AudienceForm.ABSENT, ()))),
    "another audience": Row("an active token for another resource", told(audience=OTHER_SERVER)),
    "expired": Row("an active token that expired an hour ago", told(Claim("exp", SecondsFromNow(-3600)))),
    "a page": Row("a page in place of an answer", unheard(Introspection.PAGE)),
    "server error": Row("HTTP 500 with an answer in its body", unheard(Introspection.SERVER_ERROR)),
    "silence": Row("no answer at all", unheard(Introspection.SILENT)),
}
UNKNOWABLE = (401, 502, 503, 504)
"""How a request is refused about whose token nothing can be learnt: no fault of the caller (RFC 9110 §15.6)."""


@requirement(
    "QZ-AUD-33",
    level=Level.MUST,
    claim="An opaque token is admitted only if its issuer answers that it is active, and for this resource.",
    norm=norms.MCP_INVALID,
    cost=f"{NO_COST} While the issuer does not answer, nobody is admitted whose token was not asked about before.",
    control=ADMITTED,
    rows=ANSWERS,
    drawn=st.sampled_from([row.value for name, row in ANSWERS.items() if name != "silence"]),
)
def test_an_opaque_token_that_its_issuer_does_not_vouch_for_reaches_nothing(subject: Subject, row: TokenRecipe) -> None:
    """What an audience may be is for the other pages to say, which are tried through introspection as well.

    No norm says how soon silence is to end in a refusal, so this says nothing of an answer that comes late.
    """
    if "introspection" not in subject.target.profiles:
        raise NotDeclaredError('opaque tokens (profiles = ["introspection"])')
    if row.introspection is Introspection.SILENT and subject.target.patience is None:
        raise NotDeclaredError("within how many seconds a token is refused about which nothing can be had (patience)")
    recipe = of_broad(subject, row)
    held = f"an opaque token of {recipe.caller}: {_said(subject, recipe)}."
    statuses = (401,) if row.introspection is Introspection.ANSWERED else UNKNOWABLE
    a_changed_token_is_refused(subject, recipe, held, statuses)


def _said(subject: Subject, recipe: TokenRecipe) -> str:
    """Return in words what the issuer says of a token that it is asked about."""
    if recipe.introspection is not Introspection.ANSWERED:
        return f"asked about it, the issuer gives {recipe.introspection.value}"
    if recipe.issuer == "stranger":
        return "the issuer does not know it"
    audience = recipe.audience.json(subject.target.resource)
    texts = [f"{claim.name} is {_shown(claim)}" for claim in recipe.claims] + [
        f"{name} absent" for name in recipe.without
    ]
    return f"of it the issuer says: {', '.join([*texts, f'aud is {audience}' if audience else 'aud absent'])}"


def _shown(claim: Claim) -> str:
    value = claim.value
    return value.words if isinstance(value, (RawJson, SecondsFromNow)) else json.dumps(value)

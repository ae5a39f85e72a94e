"""Audience equality, lifetimes: a token is good between two moments and at no other.

Dates are compared with the issuer's clock and the target's, so these properties hold where the two agree to a second.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from quenchz_spec import norms
from quenchz_spec.admissions import ADMITTED, a_changed_token_is_refused, of_broad
from quenchz_spec.claims import admitted, control_admitted, control_past_the_gate, refused
from quenchz_spec.outcomes import NotDeclaredError, ViolationError, VoidError
from quenchz_spec.requirement import Level, Row, requirement
from quenchz_spec.vocabulary import Ask, Claim, Exchange, RawJson, Role, SecondsFromNow, TokenRecipe

if TYPE_CHECKING:
    from quenchz_spec.subject import Subject

LIFETIMES = {
    "expired": Row("expired an hour ago", Claim("exp", SecondsFromNow(-3600))),
    "not yet valid": Row("not valid before an hour from now", Claim("nbf", SecondsFromNow(3600))),
    "expiry zero": Row("expiring in 1970", Claim("exp", 0)),
    "expiry a word": Row("expiring at a word", Claim("exp", "tomorrow")),
    "expiry infinite": Row("expiring at 1e400", Claim("exp", RawJson("1e400"))),
    "expiry null": Row("expiring at null", Claim("exp", None)),
    "nbf a word": Row("not valid before a word", Claim("nbf", "yesterday")),
    "expiry negative": Row("expiring before 1970", Claim("exp", -1)),
    "expiry a fraction": Row("expiring half a second into 1970", Claim("exp", 0.5)),
    "expiry NaN": Row("expiring at NaN", Claim("exp", RawJson("NaN"))),
    "expiry true": Row("expiring at true", Claim("exp", RawJson("true"))),
    "expiry a list": Row("expiring at a list", Claim("exp", [9999999999])),
    "expiry twice": Row("expiring in 1970, after a later moment", Claim("exp", RawJson('9999999999,"exp":0'))),
    "nbf infinite": Row("not valid before 1e400", Claim("nbf", RawJson("1e400"))),
}
"""A later moment written as a fraction may be admitted or refused, so no row has it (RFC 7519 §2)."""


@requirement(
    "QZ-AUD-6",
    level=Level.MUST,
    claim="A token outside its lifetime, or with a lifetime that is no NumericDate, reaches nothing.",
    norm=norms.RFC7519_LIFETIME,
    cost="None beyond clock skew: the rows lie an hour or more away from now.",
    control=ADMITTED,
    rows=LIFETIMES,
    drawn=st.integers(3600, 10**9).map(lambda ago: Claim("exp", SecondsFromNow(-ago))),
)
def test_a_token_outside_its_lifetime_reaches_nothing(subject: Subject, row: Claim) -> None:
    """Some verifiers raise on these, and answer 500; NaN is neither before now nor after it."""
    caller = subject.target.broad
    held = f"a token of {caller}, rightly signed, whose {row.name} is {_shown(row)}."
    a_changed_token_is_refused(subject, TokenRecipe(caller=caller, claims=(row,)), held)


def _shown(claim: Claim) -> str:
    value = claim.value
    return value.words if isinstance(value, (SecondsFromNow, RawJson)) else json.dumps(value)


def _with(name: str, value: object) -> TokenRecipe:
    return TokenRecipe(caller="", claims=(Claim(name, value),))


ENDLESS = {
    "no expiry": Row("no expiry", TokenRecipe(caller="", without=("exp",)), "either"),
    "expiry in quotes": Row("an expiry of digits in quotes", _with("exp", "9999999999"), "either"),
    "issued in the future": Row("issued an hour from now", _with("iat", SecondsFromNow(3600)), "either"),
    "issued at a word": Row("issued at a word", _with("iat", "yesterday"), "either"),
}


@requirement(
    "QZ-AUD-17",
    level=Level.QUENCHZ,
    claim="A token that states no end in seconds, or was issued in the future, reaches nothing.",
    norm=norms.ours("A token says when it ends, as a number, and nobody issued it later than now."),
    contrary=norms.RFC7519_EXPIRY_OPTIONAL,
    cost="An issuer that leaves exp out, which RFC 9068 §2.2 forbids, or whose clock is an hour fast is refused.",
    control=ADMITTED,
    rows=ENDLESS,
    drawn=st.integers(3600, 10**9).map(lambda ahead: _with("iat", SecondsFromNow(ahead))),
)
def test_a_token_without_an_end_reaches_nothing(subject: Subject, row: TokenRecipe) -> None:
    """A token without an end is a password; the leaked one is good for ever."""
    recipe = of_broad(subject, row)
    what = "".join(f"whose {claim.name} is {_shown(claim)}" for claim in recipe.claims) or "without exp"
    a_changed_token_is_refused(subject, recipe, f"a token of {recipe.caller}, rightly signed, {what}.")


LEEWAYS = {
    "expired beyond it": Row("expired two seconds before the leeway", ("exp", 2, "refused"), "either"),
    "expired at its end": Row("expired exactly the leeway ago", ("exp", 0, "refused"), "either"),
    "expired within it": Row(
        "expired two seconds less than the leeway ago", ("exp", -2, "admitted"), "either", "admitted"
    ),
    "valid beyond it": Row("valid two seconds after the leeway", ("nbf", 2, "refused"), "either"),
    "valid at its end": Row("valid exactly the leeway from now", ("nbf", 0, "admitted"), "either", "admitted"),
    "valid within it": Row("valid in two seconds less than the leeway", ("nbf", -2, "admitted"), "either", "admitted"),
}


@requirement(
    "QZ-AUD-18",
    level=Level.QUENCHZ,
    claim="The leeway that a target declares is honoured to the second: so much later or earlier, and no more.",
    norm=norms.ours("A target that declares a leeway keeps to it."),
    contrary=norms.RFC7519_LEEWAY,
    cost="None: the target declares its leeway itself.",
    control=ADMITTED,
    rows=LEEWAYS,
    drawn=st.sampled_from([row.value for row in LEEWAYS.values()]),
)
def test_a_declared_leeway_is_honoured_to_the_second(subject: Subject, row: tuple[str, int, str]) -> None:
    """A row says which claim lies how far beyond the leeway, in seconds, and what follows.

    Two seconds are what an answer may take here; a slower one proves nothing, and the example is run again.
    """
    leeway, (name, beyond, follows) = subject.target.leeway, row
    if leeway is None:
        raise NotDeclaredError("for how many seconds after its expiry a token is admitted (leeway)")
    # A fraction of a second is given away, so that the moment is a whole number of them.
    away = beyond + (math.ceil(leeway) if follows == "refused" else math.floor(leeway))
    if beyond < 0 and away < 1:
        raise NotDeclaredError("a leeway of three seconds or more")
    caller = subject.target.broad
    changed = TokenRecipe(caller=caller, claims=(Claim(name, SecondsFromNow(-away if name == "exp" else away)),))
    control_admitted(subject.ask(Ask(method="tools/list", token=subject.token(caller)), Role.CONTROL), ADMITTED)
    probe = subject.ask(Ask(method="tools/list", token=changed))
    if beyond != 0 and probe.at.first - probe.at.sent > 1:
        raise VoidError("an answer took longer than a second")
    held = f"a leeway of {leeway:g} s, and a token of {caller} whose {name} is {_shown(changed.claims[0])}."
    (refused if follows == "refused" else admitted)(probe, held)


LIFE = 2
"""Seconds between the minting of a token and its expiry, at most: the second it was minted in counts whole."""
SHORT = (Claim("exp", SecondsFromNow(LIFE)),)
RUNS = {
    "tools/list": Row("a session that goes on listing", ("tools/list",)),
    "tools/call": Row("a run of calls and listings", ("tools/call", "tools/list")),
}


@requirement(
    "QZ-AUD-19",
    level=Level.MUST,
    claim="A token that expires in the middle of a session, or of a run of calls, reaches nothing from then on.",
    norm=norms.RFC7519_LIFETIME,
    cost="None: a client gets a new token, and goes on in the same session.",
    control="the same token is admitted before it expires, and a new one of the same caller afterwards",
    rows=RUNS,
    drawn=st.sampled_from([row.value for row in RUNS.values()]),
    slow=True,
)
def test_a_token_that_expires_on_the_way_reaches_nothing_from_then_on(subject: Subject, row: tuple[str, ...]) -> None:
    """A cache of verified tokens, or a session, that remembers longer than the token lives."""
    leeway, caller = subject.target.leeway, subject.target.broad
    if leeway is None:
        raise NotDeclaredError("for how many seconds after its expiry a token is admitted (leeway)")
    short = TokenRecipe(caller=caller, claims=SHORT)
    control_admitted(subject.ask(Ask(method="tools/list", token=subject.token(caller)), Role.CONTROL), ADMITTED)

    def asked(method: str, token: TokenRecipe, role: Role) -> Exchange:
        params: dict[str, Any] = {"name": "quenchz_no_such_tool", "arguments": {}} if method == "tools/call" else {}
        return subject.ask(Ask(method=method, params=params, token=token), role)

    for method in row:
        control_past_the_gate(asked(method, short, Role.CONTROL), f"{method} with a token that is about to expire")
    subject.wait(LIFE + leeway)
    held = f"a token of {caller} that was admitted and has expired since."
    for method in row:
        refused(asked(method, short, Role.PROBE), held)
    again = TokenRecipe(caller=caller, claims=SHORT, serial=1)
    control_past_the_gate(asked(row[-1], again, Role.CONTROL), "a new token of the same caller goes on")


@requirement(
    "QZ-AUD-20",
    level=Level.OBSERVE,
    claim="An open stream ends when the token that opened it expires.",
    norm=norms.RFC7519_LIFETIME,
    cost="A client opens its stream again with a new token.",
    control=ADMITTED,
    rows={"GET": Row("the stream that GET opens", "GET", "either", "ended")},
    drawn=st.just("GET"),
    slow=True,
)
def test_an_open_stream_ends_with_its_token(subject: Subject, row: str) -> None:
    """No standard says what becomes of an answer that has begun; this tells how long one went on at least."""
    caller = subject.target.broad
    control_admitted(subject.ask(Ask(method="tools/list", token=subject.token(caller)), Role.CONTROL), ADMITTED)
    short = TokenRecipe(caller=caller, claims=SHORT)
    last = LIFE + (subject.target.leeway or 0)
    stream = subject.ask(Ask(method="", verb=row, token=short, session=f"{caller}/stream", listen=last + 1.5))
    kind = (stream.response.header("content-type") or "").split(";")[0].strip().lower()
    if stream.status != 200 or kind != "text/event-stream":
        raise NotDeclaredError(f"a stream that {row} opens")
    # The token was minted before it was sent, so it had expired by then at the latest.
    outlived = stream.at.last - stream.at.sent - last
    if outlived > 1:
        raise ViolationError(
            held=f"a token of {caller} with at most {LIFE} seconds to live.",
            sent=f"{stream.ask.words}.",
            received=f"a stream that was still open {outlived:.1f} seconds after the token had expired.",
            expected="the end of the stream, within a second.",
            signature="a stream outlives its token",
        )

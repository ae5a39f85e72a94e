"""Audience equality, placement: where a token stands, and which requests it is asked of."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from quenchz_spec import norms
from quenchz_spec.admissions import ADMITTED, control_refused, of_broad
from quenchz_spec.claims import admitted, control_admitted, control_past_the_gate, refused
from quenchz_spec.discovery import LISTINGS
from quenchz_spec.outcomes import NoAnswerError, NotDeclaredError, ViolationError
from quenchz_spec.requirement import Level, Row, requirement
from quenchz_spec.shapes import items, members
from quenchz_spec.strategies.audiences import OTHER, OTHER_SERVER
from quenchz_spec.strategies.requests import Fields, large, large_tokens
from quenchz_spec.vocabulary import Ask, Credential, Exchange, Place, Role, TokenRecipe

if TYPE_CHECKING:
    from quenchz_spec.subject import Subject

EVERY_REQUEST = {
    f"{verb} {method}".strip(): Row(f"the HTTP method {verb} with {method or 'no body'}", (verb, method))
    for verb, method in (
        ("POST", "initialize"),
        ("POST", "server/discover"),
        ("POST", "ping"),
        ("POST", "tools/list"),
        ("POST", "tools/call"),
        ("POST", "prompts/list"),
        ("POST", "resources/list"),
        ("POST", "notifications/initialized"),
        ("POST", "no/such/method"),
        ("GET", ""),
        ("DELETE", ""),
        ("PUT", ""),
    )
}


def the_gate_refuses(subject: Subject, row: tuple[str, str], bad: TokenRecipe | None, held: str) -> None:
    """Show that a request passes the gate with a good token, and state that it gets 401 with `bad` or none."""
    verb, method = row
    caller = subject.target.broad
    params: dict[str, Any] = {"name": "quenchz_no_such_tool", "arguments": {}} if method == "tools/call" else {}
    # A server that has died answers everything alike, which is no sign that it looked at a token.
    control_admitted(subject.ask(Ask(method="tools/list", token=subject.token(caller)), Role.CONTROL), ADMITTED)
    # DELETE ends a session, so the probe has one to itself, which it must not be able to end.
    session = f"{caller}/{verb}" if verb != "POST" else caller
    answers = {
        role: subject.ask(Ask(method=method, params=params, token=token, verb=verb, session=session), role)
        for role, token in ((Role.PROBE, bad), (Role.CONTROL, subject.token(caller)))
    }
    control_past_the_gate(answers[Role.CONTROL], f"{verb} {method} with a token for this resource passes the gate")
    if {answer.status for answer in answers.values()} == {405}:
        raise NotDeclaredError(f"the HTTP method {verb}")  # nobody reaches anything by it, whatever the token
    refused(answers[Role.PROBE], held)


@requirement(
    "QZ-AUD-11",
    level=Level.MUST,
    claim="The audience is checked on every request and every HTTP method of the endpoint.",
    norm=norms.MCP_NO_DATA,
    cost="None.",
    control="the same request with a token for this resource is let past authentication",
    rows=EVERY_REQUEST,
    drawn=st.sampled_from([row.value for row in EVERY_REQUEST.values()]),
)
def test_the_audience_is_checked_on_every_request(subject: Subject, row: tuple[str, str]) -> None:
    """Also in the middle of a session that a good token opened."""
    caller = subject.target.broad
    foreign = TokenRecipe(caller=caller, audience=OTHER_SERVER)
    the_gate_refuses(subject, row, foreign, f"a token of {caller} for {OTHER.text}.")


@requirement(
    "QZ-AUD-12",
    level=Level.MUST,
    claim="A request without credentials reaches nothing, whatever it asks and in whichever session.",
    norm=norms.MCP_EVERY_REQUEST,
    cost="None: discovery of the authorization server needs no token and stands elsewhere.",
    control="the same request with a token for this resource is let past authentication",
    rows=EVERY_REQUEST,
    drawn=st.sampled_from([row.value for row in EVERY_REQUEST.values()]),
)
def test_a_request_without_credentials_reaches_nothing(subject: Subject, row: tuple[str, str]) -> None:
    """A session id is no credential."""
    the_gate_refuses(subject, row, None, "no credentials.")


# --- where a token stands -------------------------------------------------------------------------------------------

ONE_PLACE_COST = (
    "A client that cannot set the Authorization field (an EventSource of a browser, a webhook) cannot use this server."
)
ELSEWHERE = {
    place.name.lower().replace("_", " "): Row(f"the token {place.value}", place, "either")
    for place in (
        *(Place.QUERY, Place.FORM, Place.BODY, Place.META, Place.COOKIE),
        *(Place.X_FIELD, Place.FORWARDED_FIELD, Place.PROXY_FIELD),
        *(Place.NO_SCHEME, Place.OTHER_SCHEME, Place.BASIC),
    )
}
"""Places of a good token that are not the Bearer credentials of the Authorization field (RFC 6750 §2.1)."""


@requirement(
    "QZ-AUD-21",
    level=Level.QUENCHZ,
    claim="A token elsewhere than in the Authorization field, as Bearer credentials, reaches nothing.",
    norm=norms.ours("A token is taken from one place, where no log, cache, referrer or form can hold it."),
    contrary=norms.RFC6750_QUERY,
    cost=ONE_PLACE_COST,
    control="the same token in the Authorization field lists the tools",
    rows=ELSEWHERE,
    drawn=st.sampled_from([row.value for row in ELSEWHERE.values()]),
)
def test_a_token_elsewhere_reaches_nothing(subject: Subject, row: Place) -> None:
    """The places that RFC 6750 §2.2 and §2.3 permit, and those that gateways and browsers fill in."""
    caller = subject.target.broad
    good = Ask(method="tools/list", token=subject.token(caller), session=caller)
    control_admitted(subject.ask(good, Role.CONTROL), ADMITTED)
    answer = subject.ask(dataclasses.replace(good, place=row))
    refused(answer, f"a good token of {caller}, {row.value}, and no other credentials.")


Said = tuple[tuple[str, Place], ...]
"""Credentials in order: whose token (the broad caller's, another's, or a bad one of the broad caller), and where."""

BAD_AND_GOOD_ELSEWHERE = {
    f"bad, and good in {name}": Row(
        f"a bad token in the Authorization field and a good one {place.value}",
        (("bad", Place.FIELD), ("good", place)),
        "either",
    )
    for name, place in (
        ("the query", Place.QUERY),
        ("a cookie", Place.COOKIE),
        ("the body", Place.BODY),
        ("a field of its own", Place.X_FIELD),
        ("a forwarded field", Place.FORWARDED_FIELD),
    )
}
TWO_FIELDS = {
    f"{one}, then {other}{'' if place is Place.FIELD else ' after a comma'}": Row(
        f"a token that is {one}, then one that is {other}, {'in two fields' if place is Place.FIELD else place.value}",
        ((one, Place.FIELD), (other, place)),
        "either",
    )
    for place in (Place.FIELD, Place.JOINED)
    for one, other in (("bad", "good"), ("good", "bad"), ("good", "another's"), ("good", "good"))
}
SEVERAL = BAD_AND_GOOD_ELSEWHERE | TWO_FIELDS


def several_credentials() -> st.SearchStrategy[Said]:
    """Return two or three credentials of which at least one is good and the first one may be."""
    whose = st.sampled_from(["bad", "good", "another's"])
    fields = st.sampled_from([Place.FIELD, Place.JOINED])
    first = st.tuples(whose, st.just(Place.FIELD))
    more = st.lists(st.tuples(whose, fields), min_size=1, max_size=2)
    drawn = st.tuples(first, more).map(lambda said: (said[0], *said[1]))
    return drawn.filter(lambda said: any(one != "bad" for one, _ in said))


@requirement(
    "QZ-AUD-22",
    level=Level.QUENCHZ,
    claim="A request with two credentials, or with a bad token and a good one elsewhere, reaches nothing.",
    norm=norms.ours("Who reads one of two credentials and who reads the other see two callers, so neither is served."),
    cost="None: clients MUST NOT use more than one method to transmit the token in each request (RFC 6750 §2).",
    control="the good token alone, in the Authorization field, lists the tools",
    rows=SEVERAL,
    drawn=several_credentials(),
)
def test_a_request_with_two_credentials_reaches_nothing(subject: Subject, row: Said) -> None:
    """RFC 6750 §3.1 calls such a request invalid, which is 400; 401 says no less."""
    target = subject.target
    tokens = {
        "good": subject.token(target.broad),
        "another's": subject.token(target.narrow),
        "bad": TokenRecipe(caller=target.broad, audience=OTHER_SERVER),
    }
    good = Ask(method="tools/list", token=tokens["good"], session=target.broad)
    control_admitted(subject.ask(good, Role.CONTROL), ADMITTED)
    (first, place), *others = row
    also = tuple(Credential(tokens[whose], where) for whose, where in others)
    answer = subject.ask(dataclasses.replace(good, token=tokens[first], place=place, also=also))
    shown = ", ".join(f"{whose} {where.value}" for whose, where in row)
    refused(
        answer, f"tokens of {target.broad} and {target.narrow}: {shown}; the bad one is for {OTHER.text}.", (400, 401)
    )


SCHEMES = {
    "small": Row("bearer", Place.SMALL_SCHEME, "admitted", "admitted"),
    "mixed": Row("bEARER", Place.MIXED_SCHEME, "admitted", "admitted"),
}


@requirement(
    "QZ-AUD-23",
    level=Level.MUST,
    claim="A good token is admitted in whatever letter case the scheme Bearer is written.",
    norm=norms.RFC6750_FIELD,
    cost="None.",
    control="the same token under the scheme Bearer lists the tools; a token for another resource gets 401",
    rows=SCHEMES,
    drawn=st.sampled_from([row.value for row in SCHEMES.values()]),
)
def test_the_letter_case_of_the_scheme_does_not_matter(subject: Subject, row: Place) -> None:
    """The only property that states that something is admitted: a false refusal drives clients to worse places."""
    caller = subject.target.broad
    good = Ask(method="tools/list", token=subject.token(caller))
    control_admitted(subject.ask(good, Role.CONTROL), ADMITTED)
    odd = dataclasses.replace(good, place=row)
    foreign = TokenRecipe(caller=caller, audience=OTHER_SERVER)
    control_refused(subject.ask(dataclasses.replace(odd, token=foreign), Role.CONTROL))
    admitted(subject.ask(odd), f"a good token of {caller}.")


# --- how large a token is -------------------------------------------------------------------------------------------

LARGE_TOKENS = {
    "8 kB, good": Row("a good token of 8 kB", large(6_000), "either", "admitted or refused"),
    "8 kB, bad": Row("a token of 8 kB for another resource", large(6_000, bad=True), "either"),
    "64 kB, good": Row("a good token of 64 kB", large(49_500), "either", "admitted or refused"),
    "64 kB, bad": Row("a token of 64 kB for another resource", large(49_500, bad=True), "either"),
}
TOO_LARGE = (400, 401, 413, 431)
"""How a request whose token is too large is refused (RFC 9110 §15.5.14, RFC 6585 §5)."""
BROKEN_OFF = ("QZ_E_CONNECTION_CLOSED", "QZ_E_MALFORMED", "QZ_E_TIMED_OUT")


@requirement(
    "QZ-AUD-24",
    level=Level.QUENCHZ,
    claim="A token of 8 or 64 kB is answered: refused with 4xx, or admitted if it is good; no connection breaks off.",
    norm=norms.ours(
        "What is too large is refused with a status of 4xx; a reset or a 5xx is what a client tries again."
    ),
    cost="None: a server is free to refuse what is larger than it takes.",
    control=ADMITTED,
    rows=LARGE_TOKENS,
    drawn=large_tokens(),
)
def test_a_large_token_is_answered(subject: Subject, row: TokenRecipe) -> None:
    """Header limits of servers begin at 8 kB; a gate behind one never sees the token."""
    caller = subject.target.broad
    good = Ask(method="tools/list", token=subject.token(caller), session=caller)
    control_admitted(subject.ask(good, Role.CONTROL), ADMITTED)
    token = of_broad(subject, row)
    held = f"a token of {caller} with a claim of {row.claims[0].value.words}."
    try:
        answer = subject.ask(dataclasses.replace(good, token=token))
    except NoAnswerError as silence:
        if silence.code not in BROKEN_OFF:
            raise
        raise ViolationError(
            held=held,
            sent=f"{good.words}, with that token.",
            received=f"no answer ({silence.code}).",
            expected="an answer.",
            signature="no answer",
        ) from None
    is_good = token.audience == TokenRecipe(caller=caller).audience
    if not (is_good and answer.result is not None):
        refused(answer, held, TOO_LARGE)


# --- whose session it is --------------------------------------------------------------------------------------------

SESSIONS = {
    **{kind: Row(f"the listing {method}", kind) for kind, (method, _, _) in LISTINGS.items()},
    "DELETE": Row("the end of the session", "DELETE"),
}


@requirement(
    "QZ-AUD-28",
    level=Level.MUST,
    claim="Another caller's session, with one's own token, gives what that token gives, or nothing.",
    norm=norms.MCP_SESSIONS,
    cost="None: a client keeps to the session that it opened.",
    control="either caller lists in its own session",
    rows=SESSIONS,
    drawn=st.sampled_from([row.value for row in SESSIONS.values()]),
)
def test_a_session_of_another_caller_gives_nothing_more(subject: Subject, row: str) -> None:
    """Whose session it is decides neither what is listed in it nor who may end it."""
    target = subject.target
    kind = row if row in LISTINGS else "tools"
    method, member, key = LISTINGS[kind]
    own = Ask(method=method, token=subject.token(target.narrow))
    listed = control_admitted(subject.ask(own, Role.CONTROL), f"{target.narrow} asks {method} in its own session")
    if listed.request.header("mcp-session-id") is None:
        raise NotDeclaredError("sessions")
    named = _a_session_of(subject, target.broad)
    owner = Ask(method=method, token=subject.token(target.broad), session="", headers=named)
    control_admitted(subject.ask(owner, Role.CONTROL), f"{target.broad} asks {method} in its own session")
    if row == "DELETE":
        ended = subject.ask(Ask(method="", verb="DELETE", token=own.token, session="", headers=named))
        if ended.status == 405:
            raise NotDeclaredError("the HTTP method DELETE")
        if subject.ask(owner).result is None:
            raise _another_session(ended, "another caller's session ended")
        return
    if not subject.catalogue.hidden(target, kind):
        raise NotDeclaredError(f"{kind} that only {target.broad} has")
    answer = subject.ask(Ask(method=method, token=own.token, session="", headers=named))
    found = {str(members(entry).get(key)) for entry in items((answer.result or {}).get(member))}
    if answer.status >= 500 or not found <= set(subject.catalogue.names(target.narrow, kind)):
        raise _another_session(answer, "another caller's things" if found else "a server error")


def _a_session_of(subject: Subject, caller: str) -> Fields:
    """Open a session that no other example knows, and return the field that names it."""
    token = subject.token(caller)
    opened = subject.ask(Ask(method="initialize", token=token, session=""), Role.CONTROL)
    control_admitted(opened, f"{caller} opens a session")
    session = opened.response.header("mcp-session-id")
    if session is None:
        raise NotDeclaredError("sessions")
    named = (("Mcp-Session-Id", session),)
    subject.ask(Ask(method="notifications/initialized", token=token, session="", headers=named), Role.CONTROL)
    return named


def _another_session(answer: Exchange, how: str) -> ViolationError:
    return ViolationError(
        held="a good token of its own and the id of a session that another caller opened.",
        sent=f"{answer.ask.words}, in that session.",
        received=f"{answer.words}: {how}.",
        expected="what the token gives, or a refusal.",
        signature=how,
    )

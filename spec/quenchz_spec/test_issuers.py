"""Audience equality, issuers: keys that turn, key ids that nobody has, and key sets that cannot be had.

Each example has a tenant of the suite's issuer to itself, with a key set of its own: what the judge orders the issuer
to publish there concerns nobody else, and a server that has never seen the tenant has nothing remembered of it.
"""

from __future__ import annotations

import dataclasses
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from quenchz_spec import norms
from quenchz_spec.admissions import ADMITTED
from quenchz_spec.claims import admitted, control_admitted, refused
from quenchz_spec.outcomes import (
    ControlError,
    NoAnswerError,
    NotDeclaredError,
    UntestableError,
    ViolationError,
    VoidError,
)
from quenchz_spec.requirement import Level, Row, requirement
from quenchz_spec.vocabulary import Ask, Claim, Exchange, Role, Signature, TokenRecipe

if TYPE_CHECKING:
    from collections.abc import Generator

    from quenchz_spec.subject import Subject

MARGIN = 1.02
"""What is waited for is waited for a little longer: two clocks need not run alike."""
ON_THE_WAY = 1.0
"""Seconds beyond the declared patience after which an answer surely came too late: no network takes as long."""


@contextmanager
def a_tenant(subject: Subject) -> Generator[None, None, None]:
    """Have the tokens inside come from a tenant that no server has seen, with a key set of its own; then leave it.

    Raises:
        NotDeclaredError: the target has no use for key sets.
        UntestableError: it trusts one issuer, whose key set is not the judge's to change.
    """
    if "introspection" in subject.target.profiles:
        raise NotDeclaredError("key sets: it asks the issuer about every token")
    if not subject.target.fresh_budgets:
        raise UntestableError(
            "the target trusts one issuer, whose key set is not the judge's to change",
            "let the target trust tenants of the suite's issuer (tokens.tenants)",
        )
    subject.fresh_budget()
    subject.issuer({"generations": [0]})
    try:
        yield
    finally:
        subject.fresh_budget()  # what was ordered last, nobody else is to meet


def fetches_of_the_key_set(subject: Subject) -> int:
    """Return how often the tenant's key set was fetched: at least once, or nothing can be said of how it is used."""
    fetches = subject.issuer({}).get("fetches")
    if not isinstance(fetches, int) or fetches < 1:
        raise ControlError("the key set that a new tenant's metadata names is fetched", f"{fetches} fetches of it")
    return fetches


# --- keys that turn -------------------------------------------------------------------------------------------------

Turn = tuple[tuple[int, ...], int]
"""Which keys a key set holds from now on, by generation (the first one was 0), and whose token is then presented."""

TURNS = {
    "a new key": Row("a token of a key that joined the first one", ((0, 1), 1), "either", "admitted"),
    "a new key, listed first": Row("the same, the new key listed first", ((1, 0), 1), "either", "admitted"),
    "the old key": Row("a token of the first key after one of a key that joined it", ((1, 0), 0), "either", "admitted"),
    "a withdrawn key": Row("a token of the first key after another has taken its place", ((1,), 0), "either"),
}


def turns() -> st.SearchStrategy[Turn]:
    """Return turns to one, two or three of the first three keys, in any order."""
    published = st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True).map(tuple)
    return st.tuples(published, st.integers(0, 2))


@requirement(
    "QZ-AUD-29",
    level=Level.QUENCHZ,
    claim=(
        "A token of a key that the issuer turned to is admitted, at the latest when the declared time between two "
        "fetches is over; a token of an older key is admitted while it is published, and refused once the declared "
        "time after its withdrawal is over."
    ),
    norm=norms.ours("An issuer turns its keys without asking: its key set decides, and not what was in it at first."),
    cost="A server has to fetch a key set again when a token names a key that it does not know.",
    control="a token of the first key is admitted while the key set holds that key alone, and the key set was fetched",
    rows=TURNS,
    drawn=turns(),
    slow=True,
)
def test_a_turn_to_other_keys_is_followed(subject: Subject, row: Turn) -> None:
    """Every token is a new one, so that what is remembered of a token does not stand in for what is known of a key."""
    with a_tenant(subject):
        a_turn_is_followed(subject, *row)


def a_turn_is_followed(subject: Subject, published: tuple[int, ...], generation: int) -> None:
    """State that a tenant's turn from its first key to the published ones is followed."""
    target = subject.target
    good = Ask(method="tools/list", token=subject.token(target.broad))
    control_admitted(subject.ask(good, Role.CONTROL), ADMITTED)
    fetches_of_the_key_set(subject)
    delay = target.refetch or 0.0
    if generation == 0 and generation not in published:
        if target.withdrawal is None:
            raise NotDeclaredError("how long a key counts after its withdrawal")
        delay = max(delay, target.withdrawal)
    subject.issuer({"generations": list(published)})
    subject.wait(MARGIN * delay)
    held = f"the key set of a tenant with keys {published} in this order; it was key 0 alone until {delay:g} s ago."
    for serial, of in enumerate((published[0], generation), start=1):
        token = TokenRecipe(caller=target.broad, generation=of, serial=serial)
        answer = subject.ask(dataclasses.replace(good, token=token))
        if of in published:
            admitted(answer, f"{held} The token is of key {of}.")
        else:
            refused(answer, f"{held} The token is of key {of}.")


# --- key ids that nobody has ----------------------------------------------------------------------------------------

NOBODY = {
    "one unknown id": Row("eight tokens with one unknown key id", ("nobody",) * 8, "either"),
    "eight unknown ids": Row("eight tokens with a new key id each", tuple(f"nobody-{n}" for n in range(8)), "either"),
    "more ids than a cache holds": Row("the same with 24 tokens", tuple(f"nobody-{n}" for n in range(24)), "either"),
}


def unknown_ids() -> st.SearchStrategy[tuple[str, ...]]:
    """Return between five and ten key ids that no key has."""
    return st.lists(st.text("abcdefgh-", min_size=5, max_size=12), min_size=5, max_size=10).map(tuple)


@requirement(
    "QZ-AUD-30",
    level=Level.QUENCHZ,
    claim=(
        "Tokens with unknown key ids reach nothing, have the key set fetched at most once in every declared interval, "
        "and keep no good token out."
    ),
    norm=norms.ours("Whoever sends tokens with made-up key ids does not decide how often an issuer is asked for keys."),
    cost="A token of a new key that comes after one with an unknown key id is refused until the interval is over.",
    control="a token of the tenant is admitted before, and its key set was fetched",
    rows=NOBODY,
    drawn=unknown_ids(),
)
def test_a_made_up_key_id_fetches_no_more_than_its_share(subject: Subject, row: tuple[str, ...]) -> None:
    """From the first of these tokens sent to the last one answered, so many fetches fit that keep the interval."""
    target = subject.target
    if not target.refetch:
        raise NotDeclaredError("how long it waits between two fetches of a key set for unknown key ids")
    with a_tenant(subject):
        the_interval_is_kept(subject, row, target.refetch)


def the_interval_is_kept(subject: Subject, ids: tuple[str, ...], interval: float) -> None:
    """State that a tenant's key set is not fetched more often than the interval permits."""
    target = subject.target
    good = Ask(method="tools/list", token=subject.token(target.broad))
    control_admitted(subject.ask(good, Role.CONTROL), ADMITTED)
    before = fetches_of_the_key_set(subject)
    held = f"a token with a key id that no key of its issuer has, signed with {Signature.STRANGER.value}."
    answers: list[Exchange] = []
    for serial, name in enumerate(ids):
        forged = TokenRecipe(
            caller=target.broad, signature=Signature.STRANGER, header=(Claim("kid", name),), serial=serial
        )
        answers.append(subject.ask(dataclasses.replace(good, token=forged)))
        refused(answers[-1], held)
    fetches = fetches_of_the_key_set(subject) - before
    took = answers[-1].at.first - answers[0].at.sent
    fit = 1 + math.floor(took / interval)
    if fit >= len(ids):
        raise VoidError(f"{len(ids)} tokens took {took:.1f} s, in which each could have its fetch")
    if fetches > fit:
        raise ViolationError(
            held=f"{len(ids)} tokens with unknown key ids.",
            sent=f"{answers[-1].ask.words}, and {len(ids) - 1} like it, in {took:.2f} s.",
            received=f"{fetches} fetches of the key set.",
            expected=f"at most {fit}: one in {interval:g} s.",
            signature="more fetches than the interval has room for",
        )
    fresh = TokenRecipe(caller=target.broad, serial=1)
    admitted(subject.ask(dataclasses.replace(good, token=fresh)), "a good token, after those with unknown key ids.")


# --- key sets that cannot be had ------------------------------------------------------------------------------------

FAULTS = {
    "status 500": Row("the key set is answered with status 500", "status 500", "either"),
    "html": Row("the key set is a page of HTML", "html", "either"),
    "empty": Row("the key set is an answer without a body", "empty", "either"),
    "no keys": Row("the key set holds no keys", "no keys", "either"),
    "closed": Row("the connection is closed where the key set belongs", "closed", "either"),
    "silent": Row("nothing is answered where the key set belongs", "silent", "either"),
    "slow": Row("the key set comes a blank at a time", "slow", "either"),
    "oversized": Row("the key set does not end", "oversized", "either"),
}


def in_time(subject: Subject, ask: Ask, patience: float, held: str) -> Exchange:
    """Return the answer to a request, which is to come within the declared patience.

    Raises:
        ViolationError: it came later, or none came.
    """
    try:
        answer = subject.ask(ask)
        took, came = answer.at.first - answer.at.sent, answer.words
    except NoAnswerError as silence:
        if silence.code != "QZ_E_TIMED_OUT" or silence.waited <= patience + ON_THE_WAY:
            raise
        answer, took, came = None, silence.waited, "no answer"
    if answer is None or took > patience + ON_THE_WAY:
        raise ViolationError(
            held=held,
            sent=f"{ask.words}.",
            received=f"{came} within {took:.1f} s.",
            expected=f"an answer within {patience:g} s, and {ON_THE_WAY:g} s for its way.",
            signature="no answer in time",
        )
    return answer


@requirement(
    "QZ-AUD-31",
    level=Level.QUENCHZ,
    claim=(
        "While an issuer's key set cannot be had, its tokens are refused within the declared time; once it can be had "
        "again they are admitted, at the latest when the declared time between two fetches is over."
    ),
    norm=norms.ours("A token that cannot be verified is refused, in time and as any other, until it can be verified."),
    cost="An outage of the issuer is an outage for every caller whose token was not seen before.",
    control="a token of another new tenant is admitted, and the tenant's key set was asked for",
    rows=FAULTS,
    drawn=st.sampled_from([row.value for row in FAULTS.values()]),
    slow=True,
)
def test_a_key_set_that_cannot_be_had_admits_nobody_and_is_missed_no_longer(subject: Subject, row: str) -> None:
    """First a good token, then a forged one, which nobody could tell from it; then the good one again."""
    target = subject.target
    if target.refetch is None or target.patience is None:
        raise NotDeclaredError("within how many seconds it refuses a token, and looks again, if there is no key set")
    token = subject.token(target.broad)
    good = Ask(method="tools/list", token=token)
    with a_tenant(subject):
        control = control_admitted(subject.ask(good, Role.CONTROL), ADMITTED)
    if control.request.header("mcp-session-id") is not None:
        good = Ask(method="initialize", token=token)  # outside any session: none can be opened without keys
    with a_tenant(subject):
        subject.issuer({"fault": row})
        held = f"a token of a new tenant of the trusted issuer, while this holds: {FAULTS[row].words}."
        answer = in_time(subject, good, target.patience, held)
        fetches_of_the_key_set(subject)
        refused(answer, held)
        forged = dataclasses.replace(good, token=dataclasses.replace(token, signature=Signature.STRANGER))
        refused(in_time(subject, forged, target.patience, held), f"{held} It is forged.")
        subject.issuer({"fault": ""})
        subject.wait(MARGIN * target.refetch)
        held = f"a token of the trusted issuer, whose key set can be had again since {target.refetch:g} s."
        admitted(subject.ask(good), held)

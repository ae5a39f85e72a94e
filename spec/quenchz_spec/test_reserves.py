"""Reserve guarantees: callers share one budget, and none can spend another's reserve.

Arithmetic: a budget B in every window W; caller i has a reserve r_i; the pool is P = B - sum of reserves. Times are
intervals (see `quenchz_spec.intervals`), so a violation is claimed only if it holds wherever the server decided.
"""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from quenchz_spec import norms
from quenchz_spec.discovery import all_names, shifted, use
from quenchz_spec.intervals import could_count, fits, surely_together
from quenchz_spec.masks import difference, learn
from quenchz_spec.outcomes import ControlError, NotDeclaredError, UntestableError, ViolationError, VoidError
from quenchz_spec.requirement import Level, Row, requirement
from quenchz_spec.resources import Edit
from quenchz_spec.schemas import only_reads, valid_arguments
from quenchz_spec.shapes import members
from quenchz_spec.strategies.arrivals import Calls, Pause, Step, What, arrival_traces, floods
from quenchz_spec.strategies.audiences import one
from quenchz_spec.vocabulary import Ask, Exchange, Moments, Role, Signature, TokenRecipe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quenchz_spec.subject import Budget, CallerSpec, Subject

COST = "A share of the budget stays unused while its caller is away: utilisation is traded for isolation."
POOL_COST = "That a burst reveals how much of the pool was free is the known price of having one."
CHARGE_COST = "A caller pays for its mistakes: a denied or invalid call costs what a granted one costs."


@dataclass(frozen=True)
class Call:
    """One charged call of a trace."""

    caller: CallerSpec
    what: What
    exchange: Exchange

    @property
    def at(self) -> Moments:
        """When the call was made."""
        return self.exchange.at


class Ledger:
    """The declared arithmetic of the subject, and calls made against it."""

    def __init__(self, subject: Subject) -> None:
        """Read the declaration.

        Raises:
            NotDeclaredError: the target declares no budget with reserves.
        """
        budget = subject.target.budget
        if budget is None:
            raise NotDeclaredError("a budget in its target file")
        if budget.limiter != "reserve":
            raise NotDeclaredError(f"reserves (its limiter is {budget.limiter!r})")
        callers = [caller for caller in subject.target.callers if caller.reserve]
        # The narrow caller first: its hidden things are what denied calls ask for.
        self.callers = sorted(callers, key=lambda c: c.name != subject.target.narrow)
        if len(self.callers) < 2:
            raise NotDeclaredError("two callers with a reserve")
        self.subject = subject
        self.budget: Budget = budget

    def caller(self, place: int) -> CallerSpec:
        """Return a caller by its place in a trace."""
        return self.callers[place % len(self.callers)]

    def most(self, caller: CallerSpec) -> int:
        """Return r + P: what one caller can have admitted in a window."""
        return (caller.reserve or 0) + self.budget.pool

    def refused(self, exchange: Exchange) -> bool:
        """Whether an answer is a budget refusal."""
        return exchange.status == self.budget.refusal_status

    def ask(self, caller: CallerSpec, what: What = What.GRANTED, token: TokenRecipe | None = None) -> Ask:
        """Return the request for one charged call."""
        target, catalogue = self.subject.target, self.subject.catalogue
        token = self.subject.token(caller.name) if token is None else token
        observing = next(iter(target.observations), None)
        if what in (What.GRANTED, What.INVALID):
            if observing is None:
                granted = catalogue.granted(target, "tools")
                if not granted:
                    raise NotDeclaredError("a granted tool")
                name = next((n for n in granted if only_reads(catalogue.entry(target.narrow, "tools", n))), None)
                if name is None:
                    raise UntestableError("no granted tool is annotated readOnlyHint", "name one under may_call")
                schema = members(catalogue.entry(target.narrow, "tools", name).get("inputSchema"))
                arguments = valid_arguments(schema) if what is What.GRANTED else {"quenchz": "invalid"}
                method, params = use("tools", name, arguments)
            else:
                window = {observing.since: "2026-04-01", observing.until: "2026-04-01"}
                arguments = {**observing.arguments, **window} if what is What.GRANTED else {"quenchz": "invalid"}
                method, params = use("tools", observing.tool, arguments)
        elif what is What.NONEXISTENT_RESOURCE:
            method, params = use("resources", "quenchz://no/such/resource")
        else:
            kind = "prompts" if what is What.HIDDEN_PROMPT else "tools"
            hidden = catalogue.hidden(target, kind)
            if not hidden:
                raise NotDeclaredError(f"any hidden {kind}")
            invent = what is What.NONEXISTENT
            name = shifted(hidden[0], all_names(catalogue, kind)) if invent else hidden[0]
            method, params = use(kind, name)
        return Ask(method=method, params=params, token=token)

    def call(self, caller: CallerSpec, what: What = What.GRANTED, role: Role = Role.PROBE) -> Call:
        """Make one charged call."""
        return Call(caller, what, self.subject.ask(self.ask(caller, what), role))

    def burst(
        self, caller: CallerSpec, role: Role = Role.PROBE, what: What = What.GRANTED, first: Role | None = None
    ) -> list[Call]:
        """Call until three calls in a row are refused for lack of budget, or r + P + 3 calls were made."""
        made: list[Call] = []
        for _ in range(self.most(caller) + 3):
            made.append(self.call(caller, what, role if made or first is None else first))
            if len(made) >= 3 and all(self.refused(c.exchange) for c in made[-3:]):
                break
        return made

    def admitted(self, calls: Sequence[Call]) -> list[Call]:
        """Return the calls that were not refused for lack of budget; a server error is a failed control."""
        for call in calls:
            if call.exchange.status in (0, 401, 403) or call.exchange.status >= 500:
                raise ControlError("a charged call is admitted or refused for lack of budget", call.exchange.words)
        return [call for call in calls if not self.refused(call.exchange)]

    def works(self, call: Call) -> None:
        """The control of every count: the call is answered as a call of its sort, not just with no budget refusal.

        Raises:
            ControlError: a granted call brings no tool result, or a denied one no error.
        """
        result = call.exchange.result or {}
        served = isinstance(result.get("content"), list) and result.get("isError") is not True
        denied = call.exchange.error_code is not None or result.get("isError") is True
        wanted = {What.GRANTED: served, What.INVALID: served or denied}.get(call.what, denied)
        if not wanted:
            raise ControlError(f"{call.what.value} on an untouched budget is answered as such", call.exchange.words)

    def in_one_window(self, calls: Sequence[Call]) -> None:
        """Void the example unless all calls surely lie in one window: only then is a count exact."""
        if calls and not fits([call.at for call in calls], self.budget.window):
            raise VoidError(f"{len(calls)} calls took longer than the window of {self.budget.window} s")

    def control_burst(self, caller: CallerSpec) -> list[Call]:
        """The control of counting requirements: a burst on an untouched budget is admitted r + P times, then refused.

        Raises:
            ControlError: it is not, so no count after it says anything.
        """
        self.subject.fresh_budget()
        made = self.burst(caller, Role.CONTROL)
        self.in_one_window(made)
        self.works(made[0])
        count, most = len(self.admitted(made)), self.most(caller)
        least = most if self.budget.exclusive else caller.reserve or 0
        if not least <= count <= most:
            expected = str(most) if least == most else f"{least} to {most}"
            raise ControlError(
                f"a burst of {caller.name} on an untouched budget is admitted {expected} times",
                f"{count} admissions of {len(made)} calls",
            )
        return made

    def alone(self) -> None:
        """Make sure that counts can be exact: other traffic would spend the pool between two bursts.

        Raises:
            UntestableError: the target does not say that the judge has the budget to itself.
        """
        if not self.budget.exclusive:
            raise UntestableError(
                "other traffic may spend the pool, so no count is exact",
                "judge a server without other traffic, and set exclusive = true under budget in the target file",
            )

    def perform(self, trace: Sequence[Step]) -> list[Call]:
        """Make the calls of a trace on an untouched budget."""
        self.subject.fresh_budget()
        made: list[Call] = []
        for step in trace:
            if isinstance(step, Pause):
                self.subject.wait(step.hundredths * self.budget.window / 100)
                continue
            caller = self.caller(step.caller)
            times = step.reserves * (caller.reserve or 0) + step.pools * self.budget.pool + step.more
            for _ in range(times):
                made.append(self.call(caller, step.what, Role.PROBE if made else Role.CONTROL))
        if made:
            self.works(made[0])
        return made


def shown(trace: Sequence[Step], ledger: Ledger) -> str:
    """Return a trace in words."""
    words: list[str] = []
    for step in trace:
        if isinstance(step, Pause):
            words.append(f"a pause of {step.hundredths * ledger.budget.window / 100:g} s")
        else:
            caller = ledger.caller(step.caller)
            times = step.reserves * (caller.reserve or 0) + step.pools * ledger.budget.pool + step.more
            words.append(f"{caller.name} {times} times {step.what.value}")
    return ", ".join(words)


def held_budget(ledger: Ledger) -> str:
    """Return the declared arithmetic in words."""
    reserves = ", ".join(f"{caller.name} {caller.reserve}" for caller in ledger.callers)
    budget = ledger.budget
    return f"an untouched budget of {budget.budget} per {budget.window:g} s: reserves {reserves}, pool {budget.pool}."


BOUNDARIES = {
    f"boundary at {phase}": Row(
        f"a burst of all callers {phase} hundredths into the window, and another just after it ends",
        (Calls(0, more=1), Pause(phase), floods(0), floods(1), Pause(110 - phase), floods(0), floods(1)),
        must="either",
        quenchz="at most B",
    )
    for phase in (30, 60, 90)
}
FLOOD = Row("all callers flood at once", (floods(0), floods(1), floods(2)), must="either", quenchz="at most B")


@requirement(
    "QZ-RSV-1",
    level=Level.QUENCHZ,
    claim="In every half-open window, all callers together are admitted at most B times, caller i r_i + P times.",
    norm=norms.ours("Conservation: over every half-open interval of length W, admissions of all together are <= B."),
    cost=COST,
    control="the first call on an untouched budget is admitted",
    rows={"flood": FLOOD, **BOUNDARIES},
    drawn=arrival_traces(),
)
def test_no_window_holds_more_than_the_budget(subject: Subject, row: tuple[Step, ...]) -> None:
    """Boundary bursts find the window that starts anywhere; a fixed window admits twice the budget there."""
    ledger = Ledger(subject)
    made = ledger.perform(row)
    admitted = ledger.admitted(made)
    bounds = [("all callers", admitted, ledger.budget.budget)]
    bounds += [(one.name, [c for c in admitted if c.caller == one], ledger.most(one)) for one in ledger.callers]
    for who, calls, most in bounds:
        together = surely_together([call.at for call in calls], ledger.budget.window)
        if len(together) > most:
            span = max(m.first for m in together) - min(m.sent for m in together)
            raise ViolationError(
                held=held_budget(ledger),
                sent=f"{shown(row, ledger)}.",
                received=f"{len(together)} admissions of {who} within {span:.3f} s.",
                expected=f"at most {most} in every window of {ledger.budget.window:g} s.",
                signature=f"more admissions of {'all' if who == 'all callers' else 'one caller'} than a window holds",
            )


GUARANTEES = {
    "isolation": Row(
        "one caller floods, then another calls within its reserve",
        (floods(0), Calls(1, reserves=1)),
        "either",
        "admitted",
    ),
    "crowd": Row(
        "two callers flood, then the third calls within its reserve",
        (floods(0), floods(1), Calls(2, reserves=1)),
        "either",
        "admitted",
    ),
    "interleaved": Row(
        "floods between the calls of another caller's reserve",
        (Calls(1, more=1), floods(0), Calls(1, more=1), floods(2), Calls(1, reserves=1, more=-2)),
        "either",
        "admitted",
    ),
    "hammering": Row(
        "a caller that hammers while refused, after others drained the pool, calls again a window later",
        (floods(0), Calls(1, reserves=3), Pause(105), Calls(1, reserves=1)),
        "either",
        "admitted",
    ),
    "denied flood": Row(
        "a caller floods with denied calls, then another calls within its reserve",
        (Calls(0, reserves=1, pools=1, more=3, what=What.NONEXISTENT), Calls(1, reserves=1)),
        "either",
        "admitted",
    ),
}


@requirement(
    "QZ-RSV-2",
    level=Level.QUENCHZ,
    claim="A caller with fewer than r_i admitted calls in its trailing window is admitted, whatever the others do.",
    norm=norms.ours("Guarantee: no caller can spend another's reserve."),
    cost=COST,
    control="the first call on an untouched budget is admitted",
    rows=GUARANTEES,
    drawn=arrival_traces(),
)
def test_a_caller_within_its_reserve_is_admitted(subject: Subject, row: tuple[Step, ...]) -> None:
    """Claimed broken only if fewer than r_i admissions could lie in the window of the refusal."""
    ledger = Ledger(subject)
    made = ledger.perform(row)
    admitted = ledger.admitted(made)
    asked = {caller: sum(call.caller == caller for call in made) for caller in ledger.callers}
    together = fits([call.at for call in made], ledger.budget.window)
    if together and len(admitted) == len(made) and any(n > ledger.most(caller) for caller, n in asked.items()):
        raise ControlError("a flood spends the pool", f"{len(made)} admissions and no budget refusal")
    for call in made:
        if not ledger.refused(call.exchange):
            continue
        own = [other.at for other in admitted if other.caller == call.caller]
        counted = could_count(own, call.at, ledger.budget.window)
        if len(counted) < (call.caller.reserve or 0):
            raise ViolationError(
                held=held_budget(ledger),
                sent=f"{shown(row, ledger)}.",
                received=f"a budget refusal for {call.caller.name}, of whose calls at most {len(counted)} were "
                f"admitted in its trailing {ledger.budget.window:g} s.",
                expected=f"an admission: its reserve is {call.caller.reserve}.",
                signature="refused within the reserve",
            )


@requirement(
    "QZ-RSV-3",
    level=Level.QUENCHZ,
    claim="A burst on an untouched budget is admitted exactly r_i + P times, and a quiet caller then r_j times.",
    norm=norms.ours("A burst that ends within W on an untouched pool stops at exactly r_i + P."),
    cost=POOL_COST,
    control="the first call on an untouched budget is admitted",
    rows={
        "narrow bursts": Row("the first caller bursts, the second stays within its reserve", (0, 1), "either", "exact"),
        "other bursts": Row("the second caller bursts, the first stays within its reserve", (1, 0), "either", "exact"),
    },
    drawn=st.permutations([0, 1, 2]).map(lambda order: (order[0], order[1])),
)
def test_a_burst_stops_where_the_arithmetic_says(subject: Subject, row: tuple[int, int]) -> None:
    """Exact where the judge has the budget to itself; between r and r + P elsewhere."""
    ledger = Ledger(subject)
    loud, quiet = ledger.caller(row[0]), ledger.caller(row[1])
    if loud == quiet:
        raise NotDeclaredError("a third caller with a reserve")
    subject.fresh_budget()
    first = ledger.burst(loud, first=Role.CONTROL)
    second = ledger.burst(quiet)
    ledger.in_one_window([*first, *second])
    ledger.works(first[0])
    counts = len(ledger.admitted(first)), len(ledger.admitted(second))
    most, least = ledger.most(loud), loud.reserve or 0
    exact = ledger.budget.exclusive
    first_fits = counts[0] == most if exact else least <= counts[0] <= most
    second_fits = counts[1] == quiet.reserve if exact else counts[1] >= (quiet.reserve or 0)
    if not (first_fits and second_fits):
        raise ViolationError(
            held=held_budget(ledger),
            sent=f"a burst of {loud.name}, then a burst of {quiet.name}.",
            received=f"{counts[0]} and {counts[1]} admissions.",
            expected=f"{most if exact else f'{least} to {most}'} and {quiet.reserve}{'' if exact else ' or more'}.",
            signature="a burst stops elsewhere",
        )


PRICES = {
    what.name.lower(): Row(what.value, what, "either", "one unit")
    for what in (What.HIDDEN, What.NONEXISTENT, What.INVALID, What.HIDDEN_PROMPT, What.NONEXISTENT_RESOURCE)
}


@requirement(
    "QZ-RSV-4",
    level=Level.QUENCHZ,
    claim="A denied, nonexistent or invalid call costs what a granted one costs: one unit.",
    norm=norms.ours("Charge first, then look: a price that differs tells what exists."),
    cost=CHARGE_COST,
    control="a burst of granted calls on an untouched budget is admitted r + P times",
    rows=PRICES,
    drawn=st.sampled_from([row.value for row in PRICES.values()]),
)
def test_every_call_costs_one_unit(subject: Subject, row: What) -> None:
    """Spend a few calls of one sort, then count how much of the budget is left."""
    ledger = Ledger(subject)
    ledger.alone()
    caller = ledger.caller(0)
    ledger.ask(caller, row)
    ledger.control_burst(caller)
    subject.fresh_budget()
    spent = [ledger.call(caller, row) for _ in range(3)]
    rest = ledger.burst(caller)
    ledger.in_one_window([*spent, *rest])
    ledger.admitted(spent)
    _exactly(ledger, len(ledger.admitted(rest)), ledger.most(caller) - 3, f"3 times {row.value}", caller)


def _exactly(ledger: Ledger, count: int, expected: int, before: str, caller: CallerSpec) -> None:
    if count != expected:
        raise ViolationError(
            held=held_budget(ledger),
            sent=f"{before}, then a burst of {caller.name}.",
            received=f"{count} admissions in the burst.",
            expected=f"{expected}.",
            signature="more budget left than the price allows"
            if count > expected
            else "less budget left than expected",
        )


REFUSED_TOKENS = {
    "another resource": Row(
        "tokens for another resource", TokenRecipe(caller="", audience=one(Edit.SUFFIX, "/x")), "either", "no unit"
    ),
    "forged": Row("forged tokens", TokenRecipe(caller="", signature=Signature.STRANGER), "either", "no unit"),
}


@requirement(
    "QZ-RSV-5",
    level=Level.QUENCHZ,
    claim="A refused token charges nobody.",
    norm=norms.ours("A bad token charges nobody: else anybody could spend a caller's reserve in its name."),
    cost="Floods of bad tokens must be stopped by something else than the budget.",
    control="a burst of granted calls on an untouched budget is admitted r + P times",
    rows=REFUSED_TOKENS,
    drawn=st.sampled_from([row.value for row in REFUSED_TOKENS.values()]),
)
def test_a_refused_token_charges_nobody(subject: Subject, row: TokenRecipe) -> None:
    """Tokens in the caller's own name that were never its own."""
    ledger = Ledger(subject)
    ledger.alone()
    caller = ledger.caller(0)
    ledger.control_burst(caller)
    subject.fresh_budget()
    bad = TokenRecipe(caller=caller.name, audience=row.audience, signature=row.signature)
    for _ in range((caller.reserve or 0) + 2):
        answer = subject.ask(ledger.ask(caller, token=bad))
        if answer.status != 401:
            raise ControlError("the bad token is refused with 401", answer.words)
    rest = ledger.burst(caller)
    ledger.in_one_window(rest)
    before = f"{(caller.reserve or 0) + 2} refused tokens in the name of {caller.name}"
    _exactly(ledger, len(ledger.admitted(rest)), ledger.most(caller), before, caller)


@requirement(
    "QZ-RSV-6",
    level=Level.QUENCHZ,
    claim="A fresh token, or a fresh session, of the same caller buys nothing.",
    norm=norms.ours("Identity is the authenticated principal, never the token, the session or the connection."),
    cost="Two programs that share one principal share one reserve.",
    control="a burst with one token on an untouched budget is admitted r + P times",
    rows={
        "fresh tokens": Row("a fresh token for every call", "token", "either", "no unit more"),
        "fresh sessions": Row("a session of its own for every call", "session", "either", "no unit more"),
    },
    drawn=st.sampled_from(["token", "session"]),
)
def test_a_fresh_token_buys_nothing(subject: Subject, row: str) -> None:
    """The burst again, with another token or session for every call; a stateless revision has no sessions to open."""
    ledger = Ledger(subject)
    ledger.alone()
    caller = ledger.caller(0)
    ledger.control_burst(caller)
    subject.fresh_budget()
    made: list[Call] = []
    for serial in range(1, ledger.most(caller) + 4):
        ask = ledger.ask(caller)
        if row == "token":
            ask = dataclasses.replace(ask, token=subject.token(caller.name).fresh(serial))
        else:
            ask = dataclasses.replace(ask, session=f"{caller.name}/{serial}")
        made.append(Call(caller, What.GRANTED, subject.ask(ask)))
    ledger.in_one_window(made)
    _exactly(ledger, len(ledger.admitted(made)), ledger.most(caller), f"a fresh {row} for every call", caller)


@requirement(
    "QZ-RSV-7",
    level=Level.QUENCHZ,
    claim="A budget refusal leaves no trace: it costs nothing and never delays recovery.",
    norm=norms.ours("A slot taken at t is free again at t + W, however often its caller asked in between."),
    cost="A client that hammers is not punished.",
    control="a burst on an untouched budget is admitted r + P times",
    rows={"hammering": Row("a burst, then as many refused calls again, then a window's wait", 0, "either", "r + P")},
    drawn=st.just(0),
)
def test_a_budget_refusal_leaves_no_trace(subject: Subject, row: int) -> None:
    """Hammer while refused for most of the window, then count a whole budget again."""
    ledger = Ledger(subject)
    ledger.alone()
    caller = ledger.caller(row)
    first = ledger.control_burst(caller)
    window = ledger.budget.window
    hammered: list[Call] = []
    for _ in range(ledger.most(caller)):
        hammered.append(ledger.call(caller))
        subject.wait(0.7 * window / ledger.most(caller))
    # Only refusals that surely came before the first slot was free again are the subject of this claim.
    if len(ledger.admitted(hammered)):
        raise VoidError("the hammering outlasted the window of the burst")
    last = max(call.at.first for call in ledger.admitted(first))
    subject.wait(max(0.0, last + 1.02 * window - hammered[-1].at.last))
    again = ledger.burst(caller)
    ledger.in_one_window(again)
    before = f"a burst of {caller.name}, {len(hammered)} refused calls and a pause until {window:g} s had passed"
    _exactly(ledger, len(ledger.admitted(again)), ledger.most(caller), before, caller)


@requirement(
    "QZ-RSV-8",
    level=Level.QUENCHZ,
    claim="A budget refusal says when to come back in whole seconds, and who waits that long is admitted.",
    norm=norms.RFC9110_RETRY_AFTER,
    cost="The wait is rounded up, so up to a second of it is idle.",
    control="a burst on an untouched budget is admitted r + P times",
    rows={
        "obedient": Row("a burst, then a wait of exactly Retry-After", 0, "either", "admitted"),
        "pool drained": Row(
            "a burst half a window after another drained the pool, who drains it again before the wait is over",
            50,
            "either",
            "admitted",
        ),
    },
    drawn=st.sampled_from([0, 30, 60]),
)
def test_retry_after_is_honest(subject: Subject, row: int) -> None:
    """Rounded down, or computed from the pool, it sends an obedient client into another refusal.

    The row is how many hundredths of the window lie between another caller's burst and ours; 0 is no other caller.
    """
    ledger = Ledger(subject)
    caller, other = ledger.caller(0), ledger.caller(1)
    made = ledger.control_burst(caller)
    if row:
        subject.fresh_budget()
        ledger.burst(other)
        subject.wait(row * ledger.budget.window / 100)
        made = ledger.burst(caller)
    refusal = next((call.exchange for call in made if ledger.refused(call.exchange)), None)
    if refusal is None:
        raise VoidError("the burst was not refused within its window")
    value = refusal.response.header("retry-after")
    longest = math.ceil(ledger.budget.window)
    held = f"{held_budget(ledger)} A burst of {caller.name} has spent what it can."
    if value is None or not re.fullmatch(r"[0-9]{1,6}", value) or int(value) > longest:
        raise ViolationError(
            held=held,
            sent="one more call.",
            received=f"HTTP {refusal.status} with Retry-After {value!r}.",
            expected=f"a whole number of seconds, at most {longest}.",
            signature="no honest Retry-After",
        )
    since = made[-1].at.last
    if row:
        # The other drains the pool again shortly before, so that only the caller's own reserve can admit it.
        subject.wait(max(0.0, 0.8 * (refusal.at.first + int(value) - since)))
        since = ledger.burst(other)[-1].at.last
    subject.wait(max(0.0, refusal.at.first + int(value) - since))
    answer = ledger.call(caller)
    waited = answer.at.sent - refusal.at.first
    if ledger.refused(answer.exchange) and waited >= int(value):
        raise ViolationError(
            held=held,
            sent=f"one more call, and the same {waited:.3f} s later, since Retry-After said {value}.",
            received="a budget refusal again.",
            expected="an admission.",
            signature="refused after waiting as told",
        )


@requirement(
    "QZ-RSV-9",
    level=Level.QUENCHZ,
    claim="Inside its reserve a caller's answers are the same bytes whether the others flood or sleep.",
    norm=norms.ours("Non-interference: no single answer tells what others used."),
    cost=POOL_COST,
    control="the calls within the reserve are admitted while the others sleep",
    rows={
        "granted": Row("granted calls", What.GRANTED, "either", "the same bytes"),
        "nonexistent": Row("calls of a tool that never existed", What.NONEXISTENT, "either", "the same bytes"),
    },
    drawn=st.sampled_from([What.GRANTED, What.NONEXISTENT, What.INVALID]),
)
def test_others_do_not_show_within_a_reserve(subject: Subject, row: What) -> None:
    """Two traces that differ only in other callers' traffic; a header that counts the pool shows here."""
    ledger = Ledger(subject)
    caller, other = ledger.caller(0), ledger.caller(1)
    quiet: list[list[Call]] = []
    for _ in range(2):
        subject.fresh_budget()
        quiet.append([ledger.call(caller, row, Role.CONTROL) for _ in range(caller.reserve or 0)])
        if len(ledger.admitted(quiet[-1])) != len(quiet[-1]):
            raise ControlError("calls within the reserve are admitted", "a budget refusal")
    # What differs between two quiet runs, position by position, is the server's own noise and not the others' traffic.
    alone = quiet[0]
    for call in alone:
        ledger.works(call)
    pairs = [(one.exchange, two.exchange, ("", "")) for one, two in zip(*quiet, strict=True)]
    mask, unmaskable = learn(pairs, subject.target.mask_headers)
    if unmaskable is not None:
        raise UntestableError(
            f"noisy: two quiet runs are told apart by more than a mask may hide. {unmaskable.words}",
            "name a varying header in the target file's mask",
        )
    subject.fresh_budget()
    flood = ledger.burst(other)
    if not any(ledger.refused(call.exchange) for call in flood):
        raise ControlError("the flood spends the pool", f"{len(flood)} admissions and no budget refusal")
    crowded = [ledger.call(caller, row) for _ in range(caller.reserve or 0)]
    for one_alone, one_crowded in zip(alone, crowded, strict=True):
        found = difference(one_alone.exchange, one_crowded.exchange, mask)
        if found is not None:
            raise ViolationError(
                held=f"{held_budget(ledger)} {caller.name} stays within its reserve. Mask: {mask.words}.",
                sent=f"{row.value} of {caller.name}: twice alone, once after {len(flood)} calls of {other.name}.",
                received=f"{one_alone.exchange.words} alone, {one_crowded.exchange.words} beside the flood.",
                expected="the same bytes.",
                signature=f"others show in {found.part}",
                compared=(one_alone.exchange, one_crowded.exchange),
                difference=found.words,
            )


@requirement(
    "QZ-RSV-10",
    level=Level.QUENCHZ,
    claim="A budget refusal is the same bytes whatever was asked for, in the declared form.",
    norm=norms.RFC6585_429,
    cost="The refusal cannot name the tool that was asked for.",
    control="a burst on an untouched budget is admitted r + P times",
    rows={
        "hidden": Row("a hidden tool beside a granted one", What.HIDDEN, "either", "the same bytes"),
        "nonexistent": Row("a nonexistent tool beside a granted one", What.NONEXISTENT, "either", "the same bytes"),
        "invalid": Row("invalid arguments beside valid ones", What.INVALID, "either", "the same bytes"),
    },
    drawn=st.sampled_from([What.HIDDEN, What.NONEXISTENT, What.INVALID]),
)
def test_a_budget_refusal_is_the_same_for_everything(subject: Subject, row: What) -> None:
    """Gate 2 answers before anything is looked up. `Retry-After` may count down between the two."""
    ledger = Ledger(subject)
    caller = ledger.caller(0)
    mask = subject.mask("tools")
    ledger.ask(caller, row)
    ledger.control_burst(caller)
    granted, asked, after = ledger.call(caller), ledger.call(caller, row), ledger.call(caller)
    if not (ledger.refused(granted.exchange) and ledger.refused(after.exchange)):
        raise VoidError("the budget was free again")
    if not ledger.refused(asked.exchange):
        raise ViolationError(
            held=f"{held_budget(ledger)} {caller.name} has spent what it can.",
            sent=f"a granted call, then {row.value}, then a granted call.",
            received=f"a budget refusal, then {asked.exchange.words}, then a budget refusal.",
            expected="three budget refusals.",
            signature="answered without a budget",
        )
    timed = type(mask)(tuple(sorted({*mask.values, "retry-after"})), mask.presence)
    found = difference(granted.exchange, asked.exchange, timed)
    if found is not None:
        raise ViolationError(
            held=f"{held_budget(ledger)} {caller.name} has spent what it can. Mask: {timed.words}.",
            sent=f"a granted call, then {row.value}.",
            received=f"{granted.exchange.words}, then {asked.exchange.words}.",
            expected="the same bytes.",
            signature=f"a budget refusal differs by {found.part}",
            compared=(granted.exchange, asked.exchange),
            difference=found.words,
        )

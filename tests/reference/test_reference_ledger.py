"""The ledger against its definition, which recounts every window from the list of admissions, and against T1 to T4."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quenchz_reference.clock import NANOSECONDS, ManualClock
from quenchz_reference.reserves import Budgets, Decision, NaiveLedger, ReserveLedger, UnknownCallers

WINDOW = 10  # nanoseconds, so that ties and ages of exactly one window are common
CALLERS = ("broad", "narrow", "quiet", "stranger")

steps = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 2, WINDOW - 1, WINDOW, WINDOW + 1, -3]), st.sampled_from(CALLERS)), max_size=60
)
budgets = st.builds(
    lambda reserves, pool: (dict(zip(CALLERS, reserves, strict=False)), sum(reserves) + pool),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(0, 5),
)


def play(ledger: ReserveLedger, clock: ManualClock, trace: list[tuple[int, str]]) -> list[tuple[int, str, bool]]:
    """The decisions of a ledger: time, caller, admitted."""
    seen = []
    for pause, caller in trace:
        clock.advance(pause / NANOSECONDS)
        seen.append((clock.monotonic_ns(), caller, ledger.charge(caller).admitted))
    return seen


def made(reserves: dict[str, int], budget: int) -> tuple[ReserveLedger, ManualClock]:
    clock = ManualClock()
    return ReserveLedger(budget, WINDOW / NANOSECONDS, reserves, clock), clock


def by_definition(trace: list[tuple[int, str]], reserves: dict[str, int], budget: int) -> list[tuple[int, str, bool]]:
    """The rule as it is written down: count, for each decision, what lies in the trailing window."""
    pool = budget - sum(reserves.values())
    taken: list[tuple[int, str | None]] = []  # stamp, and whose reserve paid (None is the pool)
    now, seen = 0, []
    for pause, caller in trace:
        now += pause
        at = max([now, *(stamp for stamp, _ in taken)])
        inside = [payer for stamp, payer in taken if at - stamp < WINDOW]
        if inside.count(caller) < reserves.get(caller, 0):
            taken.append((at, caller))
        elif inside.count(None) < pool:
            taken.append((at, None))
        else:
            seen.append((now, caller, False))
            continue
        seen.append((now, caller, True))
    return seen


@settings(max_examples=400)
@given(budgets, steps)
def test_the_ring_decides_as_the_definition_does(
    declared: tuple[dict[str, int], int], trace: list[tuple[int, str]]
) -> None:
    reserves, budget = declared
    ledger, clock = made(reserves, budget)
    assert play(ledger, clock, trace) == by_definition(trace, reserves, budget)


forward = st.lists(st.tuples(st.integers(0, WINDOW + 1), st.sampled_from(CALLERS)), max_size=60)


@settings(max_examples=300)
@given(budgets, forward)
def test_conservation_and_guarantee_hold_over_every_window(
    declared: tuple[dict[str, int], int], trace: list[tuple[int, str]]
) -> None:
    reserves, budget = declared
    pool = budget - sum(reserves.values())
    ledger, clock = made(reserves, budget)
    admitted: list[tuple[int, str]] = []
    for at, caller, passed in play(ledger, clock, trace):
        own = sum(1 for stamp, who in admitted if who == caller and at - stamp < WINDOW)
        assert passed or own >= reserves.get(caller, 0), "T1: the reserve was refused"
        if passed:
            admitted.append((at, caller))
    for start, _ in admitted:
        inside = [who for stamp, who in admitted if start <= stamp < start + WINDOW]
        assert len(inside) <= budget, "T2"
        assert all(inside.count(who) <= reserves.get(who, 0) + pool for who in inside), "T3"


@settings(max_examples=300)
@given(budgets, forward)
def test_leaving_out_the_refused_calls_changes_no_other_decision(
    declared: tuple[dict[str, int], int], trace: list[tuple[int, str]]
) -> None:
    reserves, budget = declared
    seen = play(*made(reserves, budget), trace)
    kept = [(at, caller) for at, caller, passed in seen if passed]
    pauses = [at - before for (at, _), before in zip(kept, [0, *(at for at, _ in kept)], strict=False)]
    again = play(*made(reserves, budget), [(pause, who) for pause, (_, who) in zip(pauses, kept, strict=True)])
    assert all(passed for _, _, passed in again), "T4"


def test_a_burst_on_an_untouched_pool_stops_at_reserve_plus_pool_and_the_quiet_one_still_gets_its_reserve() -> None:
    clock = ManualClock()
    ledger = ReserveLedger(25, 60, {"broad": 5, "narrow": 5, "quiet": 5}, clock)
    naive = NaiveLedger(25, 60, clock)
    assert sum(ledger.charge("broad").admitted for _ in range(40)) == 15
    assert sum(ledger.charge("quiet").admitted for _ in range(40)) == 5
    assert sum(naive.charge("broad").admitted for _ in range(40)) == 25
    assert sum(naive.charge("quiet").admitted for _ in range(40)) == 0


@given(st.lists(st.floats(0.001, 5), min_size=6, max_size=30))
def test_waiting_as_long_as_retry_after_says_is_admitted(pauses: list[float]) -> None:
    clock = ManualClock()
    ledger = ReserveLedger(4, 7.3, {"broad": 2, "quiet": 1}, clock)
    for pause in pauses:
        clock.advance(pause)
        ledger.charge("quiet")
        decision = ledger.charge("broad")
        if not decision.admitted:
            assert decision.retry_after is not None
            clock.advance(decision.retry_after)
            assert ledger.charge("broad").admitted


def test_retry_after_comes_from_the_callers_own_reserve() -> None:
    clock = ManualClock()
    ledger = ReserveLedger(3, 60, {"broad": 1, "quiet": 1}, clock)
    assert ledger.charge("broad").admitted
    clock.advance(20.5)
    assert ledger.charge("quiet").admitted
    assert ledger.charge("quiet").admitted  # the pool's one slot
    clock.advance(0.25)
    assert ledger.charge("broad") == Decision(admitted=False, retry_after=40)  # 39.25 s, rounded up
    assert ledger.charge("quiet") == Decision(admitted=False, retry_after=60)
    assert ledger.charge("stranger") == Decision(admitted=False, retry_after=60)


def test_a_caller_that_has_nothing_to_wait_for_is_told_no_time() -> None:
    ledger = ReserveLedger(1, 60, {"broad": 1}, ManualClock())
    assert ledger.charge("stranger") == Decision(admitted=False, retry_after=None)


def test_a_clock_that_is_set_back_reopens_no_window() -> None:
    clock = ManualClock()
    ledger = ReserveLedger(2, 60, {"broad": 2}, clock)
    clock.advance(100)
    assert [ledger.charge("broad").admitted for _ in range(3)] == [True, True, False]
    clock.advance(-90)
    refused = ledger.charge("broad")
    assert refused == Decision(admitted=False, retry_after=150)
    clock.advance(150)
    assert ledger.charge("broad").admitted


def test_refuse_admits_no_undeclared_caller() -> None:
    ledger = ReserveLedger(25, 60, {"broad": 5}, ManualClock(), UnknownCallers("refuse"))
    assert not ledger.charge("stranger").admitted
    assert ledger.charge("broad").admitted


grants = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 0, 1, WINDOW - 1, WINDOW]), st.sampled_from(["broad"] * 5 + [*"abcdef"])),
    max_size=80,
)


@settings(max_examples=300)
@given(st.integers(0, 9), st.integers(1, 4), grants)
def test_granted_reserves_never_let_more_than_the_budget_through(
    spare: int, reserve: int, trace: list[tuple[int, str]]
) -> None:
    clock = ManualClock()
    ledger = ReserveLedger(3 + spare, WINDOW / NANOSECONDS, {"broad": 3}, clock, UnknownCallers("grant", reserve))
    admitted = [(at, who) for at, who, passed in play(ledger, clock, trace) if passed]
    for start, _ in admitted:
        inside = [who for stamp, who in admitted if start <= stamp < start + WINDOW]
        assert len(inside) <= 3 + spare
    own = [at for at, who, passed in play(ledger, clock, [(WINDOW, "broad")] + [(0, "broad")] * 2) if passed]
    assert len(own) == 3, "the declared reserve was given away"


def test_a_granted_reserve_is_kept_while_its_window_is_open_and_returns_to_the_pool_afterwards() -> None:
    clock = ManualClock()
    ledger = ReserveLedger(6, 60, {"broad": 1}, clock, UnknownCallers("grant", 2))
    assert ledger.charge("a").admitted
    assert [ledger.charge("b").admitted for _ in range(4)] == [True, True, True, False]  # two granted, one of the pool
    assert ledger.charge("a").admitted
    assert not ledger.charge("c").admitted
    clock.advance(60)
    assert [ledger.charge("c").admitted for _ in range(6)] == [True] * 5 + [False]


def test_pool_slots_that_are_taken_are_not_given_away_as_a_reserve() -> None:
    clock = ManualClock()
    ledger = ReserveLedger(5, 60, {"broad": 3}, clock, UnknownCallers("grant", 2))
    assert [ledger.charge("broad").admitted for _ in range(6)] == [True] * 5 + [False]
    assert not ledger.charge("a").admitted
    clock.advance(60)
    assert [ledger.charge("a").admitted for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    ("budget", "window", "reserves", "message"),
    [
        (9, 60, {"broad": 5, "quiet": 5}, "add up to 10 units, but the budget has only 9"),
        (9, 0, {"broad": 5}, "the window is 0 seconds"),
        (9, 60, {"broad": 0}, "the reserve of broad is 0"),
    ],
)
def test_an_impossible_promise_is_refused_at_construction(
    budget: int, window: float, reserves: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ReserveLedger(budget, window, reserves, ManualClock())


def test_a_ledger_is_forgotten_only_when_no_window_of_it_is_open() -> None:
    clock = ManualClock()
    kept = Budgets(lambda: ReserveLedger(1, 60, {"broad": 1}, clock), limit=1)
    first = kept.of("one")
    assert first is not None
    assert first.charge("broad").admitted
    assert kept.of("two") is None
    assert kept.of("one") is first
    clock.advance(60)
    assert kept.of("two") is not None

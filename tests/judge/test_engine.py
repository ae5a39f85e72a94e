"""The engine records what happened in every example, spends little on what cannot be judged, and blames nobody else."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from judge_support import Reply, World, a_requirement, budget, target, world

from quenchz.engine import ATTEMPTS, GIVE_UP, PROFILES, Profile, Runner, smallest
from quenchz.verdicts import Verdict, find
from quenchz_spec.outcomes import ControlError, NotDeclaredError, UntestableError, ViolationError, VoidError
from quenchz_spec.vocabulary import Ask, Role, TokenRecipe

if TYPE_CHECKING:
    from quenchz.history import ExampleRecord
    from quenchz_spec.requirement import Requirement
    from quenchz_spec.subject import Subject

PROFILE = Profile("test", examples=50, slow_examples=50, shrinks=40, repeats=3)
LIST = Ask(method="tools/list", token=TokenRecipe(caller="broad"))


def ask_both(subject: Subject) -> None:
    subject.ask(LIST, Role.CONTROL)
    subject.ask(LIST, Role.PROBE)


def violation(row: object) -> ViolationError:
    return ViolationError(held="h.", sent=f"{row}.", received="r.", expected="e.", signature="s")


def run(
    requirement: Requirement, profile: Profile = PROFILE, of: World | None = None, seed: int = 1
) -> list[ExampleRecord]:
    of = of or world()
    return Runner(of.subject, of.history, profile, seed).run(requirement)


def outcomes(records: list[ExampleRecord]) -> Counter[str]:
    return Counter(record.outcome for record in records)


# --- what held ------------------------------------------------------------------------------------------------------


def test_every_row_is_run_once_before_anything_is_drawn() -> None:
    seen: list[Any] = []

    def check(subject: Subject, row: int) -> None:
        seen.append(row)
        ask_both(subject)

    records = run(a_requirement(check, st.integers(0, 9), first=1001, second=1002))
    assert seen[:2] == [1001, 1002]
    assert [(r.phase, r.row) for r in records[:2]] == [("table", "first"), ("table", "second")]
    assert {r.phase for r in records[2:]} == {"generate"}
    assert len({r.arguments for r in records[2:]}) == 10  # a small strategy is exhausted
    assert outcomes(records) == {"held": len(records)}
    assert (records[0].controls, records[0].probes, records[0].requests) == (1, 1, 2)


def test_the_same_seed_draws_the_same_examples_and_another_seed_others() -> None:
    requirement = a_requirement(lambda subject, row: ask_both(subject), st.integers(0, 10**9))
    drawn = [[r.arguments for r in run(requirement, seed=seed)] for seed in (7, 7, 8)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_smoke_profile_draws_nothing() -> None:
    requirement = a_requirement(lambda subject, row: ask_both(subject), only=1)
    assert [r.phase for r in run(requirement, PROFILES["smoke"])] == ["table"]


# --- what could not be judged ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [
        (ControlError("the good token is admitted", "HTTP 500"), "control-failed"),
        (UntestableError("no token", "add one"), "untestable"),
    ],
)
def test_what_cannot_be_judged_is_given_up_after_a_few_examples(
    raised: Exception, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raised through Hypothesis, a failing control would be shrunk for a hundred executions."""

    def check(subject: Subject, row: int) -> None:
        ask_both(subject)
        raise raised

    drawn = run(a_requirement(check))
    assert outcomes(drawn) == {outcome: GIVE_UP}
    assert find(a_requirement(check), drawn).verdict is Verdict.UNTESTABLE
    # Rows that cost nothing are all tried, but nothing is drawn after them; rows that take long are given up.
    requirement = a_requirement(check, rows={f"row{n}": n for n in range(10)})
    assert outcomes(run(requirement)) == {outcome: 10}
    monkeypatch.setattr("quenchz.engine.PATIENCE", 0.0)
    of = world()
    assert outcomes(run(requirement, of=of)) == {outcome: GIVE_UP}
    assert of.subject.spent.requests == 2 * GIVE_UP


def test_a_control_that_fails_now_and_then_does_not_end_the_requirement() -> None:
    count = [0]

    def check(subject: Subject, row: int) -> None:
        ask_both(subject)
        count[0] += 1
        if count[0] % 3 == 0:
            raise ControlError("a control", "HTTP 500")

    records = run(a_requirement(check, st.integers(0, 10**9)))
    assert len(records) >= 50
    assert outcomes(records)["control-failed"] == len(records) // 3


def test_a_requirement_without_an_object_is_asked_only_the_table() -> None:
    def check(subject: Subject, row: int) -> None:
        raise NotDeclaredError("a budget")

    records = run(a_requirement(check, one=1, two=2))
    assert outcomes(records) == {"not-declared": 2}


def test_a_row_without_an_object_does_not_keep_the_others_from_being_judged() -> None:
    def check(subject: Subject, row: int) -> None:
        if row == 1:
            raise NotDeclaredError("a third caller")
        ask_both(subject)

    records = run(a_requirement(check, st.just(3), one=1, two=2))
    assert outcomes(records) == {"not-declared": 1, "held": 2}


# --- void examples --------------------------------------------------------------------------------------------------


def test_a_void_example_is_run_again_after_its_wait() -> None:
    tried = [0]

    def check(subject: Subject, row: int) -> None:
        ask_both(subject)
        tried[0] += 1
        if tried[0] == 1:
            raise VoidError("a budget refusal", wait=2.5)

    of = world()
    records = run(a_requirement(check, only=1), PROFILES["smoke"], of)
    assert [r.outcome for r in records] == ["void", "held"]
    assert of.clock.slept == [2.5]
    assert find(a_requirement(check), records).verdict is Verdict.PASS


def test_an_example_that_stays_void_is_untestable_and_says_why() -> None:
    def check(subject: Subject, row: int) -> None:
        ask_both(subject)
        raise VoidError("a budget refusal", wait=1.0)

    of = world()
    records = run(a_requirement(check, only=1), PROFILES["smoke"], of)
    assert [r.outcome for r in records] == ["void"] * (ATTEMPTS - 1) + ["untestable"]
    assert "a budget refusal" in records[-1].detail
    verdict = find(a_requirement(check), records)
    assert (verdict.verdict, "a budget refusal" in verdict.reason) == (Verdict.UNTESTABLE, True)


def test_a_real_budget_refusal_voids_an_example_of_another_invariant_and_no_reserve_example() -> None:
    refusing = world(lambda tokens: lambda sent: Reply(429), target(budget(window=1.0)))
    ask = lambda subject, row: ask_both(subject)  # noqa: E731
    assert run(a_requirement(ask, only=1), PROFILES["smoke"], refusing)[0].outcome == "void"
    reserves = run(a_requirement(ask, name="QZ-RSV-99", only=1), PROFILES["smoke"], refusing)
    assert reserves[0].outcome == "held"


# --- violations -----------------------------------------------------------------------------------------------------


def fails_from(limit: int) -> Requirement:
    def check(subject: Subject, row: int) -> None:
        ask_both(subject)
        if row >= limit:
            raise violation(row)

    return a_requirement(check, st.integers(0, 1000))


def test_a_drawn_violation_shrinks_to_the_smallest_example_and_is_confirmed() -> None:
    requirement = fails_from(137)
    records = run(requirement)
    violated = [r for r in records if r.outcome == "violated"]
    assert smallest(violated).arguments == 137
    confirmed = [r for r in records if r.phase == "confirm"]
    assert [(r.arguments, r.outcome) for r in confirmed] == [(137, "violated")] * PROFILE.repeats
    finding = find(requirement, records)
    assert finding.verdict is Verdict.FAIL
    assert finding.confirmed == (PROFILE.repeats + 1, PROFILE.repeats + 1)
    assert finding.violation is not None
    assert finding.violation["sent"] == "137."
    assert finding.violation["norm"] == {"source": "a standard", "quote": "a sentence"}


def test_shrinking_costs_no_more_executions_than_allowed() -> None:
    profile = Profile("test", examples=50, slow_examples=50, shrinks=5, repeats=0)
    records = run(fails_from(137), profile)
    assert sum(r.phase == "shrink" for r in records) <= 5
    assert find(fails_from(137), records).verdict is Verdict.FAIL


def test_a_violated_row_ends_the_requirement_before_anything_is_drawn() -> None:
    requirement = a_requirement(fails_from(5).check, good=1, bad=7, worse=9)
    records = run(requirement)
    assert {r.phase for r in records} == {"table", "confirm"}
    finding = find(requirement, records)
    assert finding.rows_violated == ("bad", "worse")
    assert finding.example["row"] == "bad"


def test_a_violation_that_does_not_repeat_counts_and_shows_its_rate() -> None:
    seen = [0]

    def check(subject: Subject, row: int) -> None:
        ask_both(subject)
        seen[0] += 1
        if seen[0] == 4:
            raise violation(row)

    for requirement in (a_requirement(check, st.integers(0, 10**6)), a_requirement(check, a=1, b=2, c=3, d=4)):
        seen[0] = 0
        records = run(requirement)
        finding = find(requirement, records)
        assert (finding.verdict, finding.confirmed) == (Verdict.FAIL, (1, PROFILE.repeats + 1))


# --- faults of ours -------------------------------------------------------------------------------------------------


def test_an_error_in_a_property_is_a_harness_error_and_never_a_verdict() -> None:
    def check(subject: Subject, row: int) -> None:
        ask_both(subject)
        raise RuntimeError("a secret: eyJhbGciOiJub25lIn0")

    records = run(a_requirement(check, only=1))
    assert [r.outcome for r in records] == ["harness-error"]
    assert find(a_requirement(check), records).verdict is Verdict.HARNESS_ERROR
    assert "RuntimeError at " in records[0].detail
    assert "secret" not in records[0].detail


def test_an_error_in_a_drawn_example_is_not_shrunk() -> None:
    calls = [0]

    def check(subject: Subject, row: int) -> None:
        ask_both(subject)
        calls[0] += 1
        if row > 50:
            raise RuntimeError

    records = run(a_requirement(check, st.integers(0, 10**9)))
    assert "harness-error" in outcomes(records)
    assert calls[0] <= 5


def test_a_broken_strategy_is_a_harness_error() -> None:
    def broken(_: int) -> int:
        raise ZeroDivisionError

    records = run(a_requirement(lambda subject, row: ask_both(subject), st.integers().map(broken)))
    assert [r.outcome for r in records] == ["harness-error"]


@pytest.mark.parametrize("roles", [(), (Role.CONTROL,), (Role.PROBE,), (Role.NOISE, Role.SETUP)])
def test_a_property_that_holds_without_control_and_probe_is_a_harness_error(roles: tuple[Role, ...]) -> None:
    def check(subject: Subject, row: int) -> None:
        for role in roles:
            subject.ask(LIST, role)

    records = run(a_requirement(check, only=1))
    assert [r.outcome for r in records] == ["harness-error"]


def test_an_example_that_could_not_be_replayed_is_a_harness_error() -> None:
    records = run(a_requirement(lambda subject, row: ask_both(subject), only=object()))
    assert [r.outcome for r in records] == ["harness-error"]
    assert "not plain data" in records[0].detail


def test_a_harness_error_does_not_keep_the_next_requirement_from_being_judged() -> None:
    of = world()
    runner = Runner(of.subject, of.history, PROFILES["smoke"], 1)

    def check(subject: Subject, row: int) -> None:
        raise RuntimeError

    runner.run(a_requirement(check, only=1))
    records = runner.run(a_requirement(lambda subject, row: ask_both(subject), name="QZ-AUD-98", only=1))
    assert [r.outcome for r in records] == ["held"]


@pytest.mark.parametrize("rows", [{"only": 1}, {}])
def test_an_interrupt_ends_the_run_at_once_and_keeps_what_is_known(rows: dict[str, int]) -> None:
    count = [0]

    def check(subject: Subject, row: int) -> None:
        ask_both(subject)
        count[0] += 1
        if count[0] == 1 + len(rows):
            raise KeyboardInterrupt

    of = world()
    runner = Runner(of.subject, of.history, PROFILE, 1)
    runner.run(a_requirement(lambda subject, row: ask_both(subject), st.just(0), name="QZ-AUD-98"))
    known = len(runner.records)
    with pytest.raises(KeyboardInterrupt):
        runner.run(a_requirement(check, rows=rows))
    assert count[0] == 1 + len(rows)
    assert outcomes(runner.records)["held"] == known + len(rows)
    assert set(outcomes(runner.records)) <= {"held", "untestable"}

"""A verdict is a fold over what happened, an exit code a fold over verdicts; every branch is on this page."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from judge_support import a_requirement

from quenchz.history import ExampleRecord
from quenchz.verdicts import Exit, Finding, Verdict, exit_code, find
from quenchz_spec.requirement import Level


def record(outcome: str, **members: Any) -> ExampleRecord:
    violation = {"received": "r", "signature": "s"} if outcome == "violated" else None
    defaults = {"requirement": "QZ-AUD-99", "number": 1, "phase": "table", "row": "a", "arguments": 1}
    return ExampleRecord(**{**defaults, "outcome": outcome, "detail": f"{outcome}!", "violation": violation, **members})


def nothing(subject: object, row: object) -> None:
    """A property that is never run."""


def verdict(*outcomes: str, level: Level = Level.MUST) -> Verdict:
    return find(a_requirement(nothing, level=level), [record(outcome) for outcome in outcomes]).verdict


ORDER = ["violated", "harness-error", "control-failed", "untestable", "held", "not-declared", "void"]
MEANS = {
    "violated": Verdict.FAIL,
    "harness-error": Verdict.HARNESS_ERROR,
    "control-failed": Verdict.UNTESTABLE,
    "untestable": Verdict.UNTESTABLE,
    "held": Verdict.PASS,
    "not-declared": Verdict.NOT_APPLICABLE,
    "void": Verdict.UNTESTABLE,
}


@pytest.mark.parametrize(("one", "other"), list(product(ORDER, ORDER)))
def test_the_graver_outcome_decides_wherever_it_stands(one: str, other: str) -> None:
    graver = min(one, other, key=ORDER.index)
    assert verdict(one, other) is MEANS[graver]
    assert verdict(other, one) is MEANS[graver]


def test_nothing_recorded_is_untestable() -> None:
    finding = find(a_requirement(nothing), [])
    assert (finding.verdict, finding.reason) == (Verdict.UNTESTABLE, "no example was run")


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (Level.MUST, Verdict.FAIL),
        (Level.QUENCHZ, Verdict.FAIL),
        (Level.SHOULD, Verdict.WARN),
        (Level.OBSERVE, Verdict.OBSERVED),
    ],
)
def test_the_level_says_what_a_violation_means(level: Level, expected: Verdict) -> None:
    assert verdict("violated", "held", level=level) is expected


def test_a_reason_says_how_many_examples_and_which_rows() -> None:
    records = [record("held"), record("control-failed", row="b"), record("control-failed", row="c")]
    reason = find(a_requirement(nothing), records).reason
    assert reason == "2 of 3 examples: control-failed! (rows: b, c)"


def test_a_violation_is_reported_with_its_rate_and_its_rows() -> None:
    records = [
        record("violated", row="b", number=2, arguments=20),
        record("violated", row="c", number=3, arguments=1),
        record("violated", row="b", number=4, phase="confirm"),
        record("held", row="b", number=5, phase="confirm"),
    ]
    finding = find(a_requirement(nothing), records)
    assert finding.rows_violated == ("b", "c")
    assert finding.example == {"number": 2, "row": "b", "phase": "table"}
    assert finding.confirmed == (2, 3)


def test_the_shortest_drawn_example_is_reported() -> None:
    records = [record("violated", phase="generate", row="", number=n, arguments="x" * n) for n in (9, 3, 5)]
    assert find(a_requirement(nothing), records).example["number"] == 3


def test_noise_that_grew_makes_a_comparison_untestable_and_nothing_else() -> None:
    compared = record("violated", violation={"compared": [1, 2]})
    assert find(a_requirement(nothing), [compared], noisy="noisy: x").verdict is Verdict.UNTESTABLE
    assert find(a_requirement(nothing), [compared], noisy="noisy: x").reason == "noisy: x"
    assert find(a_requirement(nothing), [record("violated")], noisy="noisy: x").verdict is Verdict.FAIL
    assert find(a_requirement(nothing), [record("held")], noisy="noisy: x").verdict is Verdict.PASS


def test_only_judged_examples_are_counted_as_examples() -> None:
    records = [record("held", controls=2, probes=3, requests=5), record("void", controls=7, probes=7, requests=14)]
    finding = find(a_requirement(nothing), records)
    assert (finding.examples, finding.controls, finding.probes, finding.requests) == (1, 2, 3, 19)


# --- the exit code --------------------------------------------------------------------------------------------------


def finding(of: Verdict, level: Level = Level.MUST, name: str = "QZ-AUD-99") -> Finding:
    return Finding(a_requirement(nothing, level=level, name=name), of, "", {}, 0, 0, 0)


PASS = finding(Verdict.PASS)
TABLE: list[tuple[str, list[Finding], dict[str, Any], Exit]] = [
    ("everything passed", [PASS], {}, Exit.OK),
    ("what does not apply is no part of it", [PASS, finding(Verdict.NOT_APPLICABLE)], {}, Exit.OK),
    ("a violation", [PASS, finding(Verdict.FAIL)], {}, Exit.VIOLATED),
    ("a violation before a harness error", [finding(Verdict.FAIL), finding(Verdict.HARNESS_ERROR)], {}, Exit.VIOLATED),
    ("a violation before what is open", [finding(Verdict.FAIL), finding(Verdict.UNTESTABLE)], {}, Exit.VIOLATED),
    ("a violation though unreached", [finding(Verdict.FAIL)], {"reached": False}, Exit.VIOLATED),
    ("a harness error", [PASS, finding(Verdict.HARNESS_ERROR)], {}, Exit.HARNESS),
    (
        "a harness error before what is open",
        [finding(Verdict.UNTESTABLE), finding(Verdict.HARNESS_ERROR)],
        {},
        Exit.HARNESS,
    ),
    ("a harness error of what is not required", [PASS, finding(Verdict.HARNESS_ERROR, Level.SHOULD)], {}, Exit.HARNESS),
    ("something open", [PASS, finding(Verdict.UNTESTABLE)], {}, Exit.NOT_ESTABLISHED),
    ("something open, forgiven", [PASS, finding(Verdict.UNTESTABLE)], {"allowed": ["QZ-AUD-99"]}, Exit.OK),
    (
        "something open, another forgiven",
        [PASS, finding(Verdict.UNTESTABLE)],
        {"allowed": ["QZ-AUD-9"]},
        Exit.NOT_ESTABLISHED,
    ),
    ("all open, all forgiven", [finding(Verdict.UNTESTABLE)], {"allowed": ["QZ-AUD-99"]}, Exit.NOT_ESTABLISHED),
    ("a violation cannot be forgiven", [PASS, finding(Verdict.FAIL)], {"allowed": ["QZ-AUD-99"]}, Exit.VIOLATED),
    ("nothing was judged", [], {}, Exit.NOT_ESTABLISHED),
    ("nothing applies", [finding(Verdict.NOT_APPLICABLE)], {}, Exit.NOT_ESTABLISHED),
    ("the target was not reached", [PASS], {"reached": False}, Exit.NOT_ESTABLISHED),
    ("not reached, and forgiven", [PASS], {"reached": False, "allowed": ["QZ-AUD-99"]}, Exit.NOT_ESTABLISHED),
    ("a warning that is not required", [PASS, finding(Verdict.WARN, Level.SHOULD)], {}, Exit.OK),
    ("a warning that is required", [PASS, finding(Verdict.WARN, Level.SHOULD)], {"level": "should"}, Exit.VIOLATED),
    ("an observation", [PASS, finding(Verdict.OBSERVED, Level.OBSERVE)], {"level": "should"}, Exit.OK),
    ("an open should", [PASS, finding(Verdict.UNTESTABLE, Level.SHOULD)], {}, Exit.OK),
    ("ours, on the floor", [PASS, finding(Verdict.FAIL, Level.QUENCHZ)], {"level": "must"}, Exit.OK),
    ("ours", [PASS, finding(Verdict.FAIL, Level.QUENCHZ)], {}, Exit.VIOLATED),
    (
        "only what is not required passed",
        [finding(Verdict.PASS, Level.QUENCHZ)],
        {"level": "must"},
        Exit.NOT_ESTABLISHED,
    ),
]


@pytest.mark.parametrize(("findings", "how", "expected"), [pytest.param(*row[1:], id=row[0]) for row in TABLE])
def test_the_exit_code_is_the_first_that_applies(findings: list[Finding], how: dict[str, Any], expected: Exit) -> None:
    assert exit_code(findings, **{"level": "quenchz", "reached": True, **how}) is expected

"""Verdicts as a fold over recorded outcomes, and the exit code as a fold over verdicts. Pure."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quenchz.engine import smallest
from quenchz_spec.requirement import Level, Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from quenchz.history import ExampleRecord


class Verdict(enum.Enum):
    """What is known about one requirement after a run."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    WARN = "warn"
    OBSERVED = "observed"
    UNTESTABLE = "untestable"
    NOT_APPLICABLE = "not-applicable"
    HARNESS_ERROR = "harness-error"


class Exit(enum.IntEnum):
    """The exit codes, in the order of precedence of the design: 2, 1, 4, 3, 0."""

    OK = 0
    VIOLATED = 1
    USAGE = 2
    NOT_ESTABLISHED = 3
    HARNESS = 4


LEVELS: dict[str, tuple[Level, ...]] = {
    "must": (Level.MUST,),
    "quenchz": (Level.MUST, Level.QUENCHZ),
    "should": (Level.MUST, Level.QUENCHZ, Level.SHOULD),
    "observe": (Level.MUST, Level.QUENCHZ, Level.SHOULD, Level.OBSERVE),
}
"""For each value of --level, the levels that are required."""


@dataclass(frozen=True)
class Finding:
    """The verdict on one requirement, with what supports it."""

    requirement: Requirement
    verdict: Verdict
    reason: str
    counts: dict[str, int]
    controls: int
    probes: int
    requests: int
    recipes: int = 0
    rows_violated: tuple[str, ...] = ()
    violation: dict[str, Any] | None = None
    example: dict[str, Any] = field(default_factory=dict[str, Any])
    confirmed: tuple[int, int] = (0, 0)

    @property
    def examples(self) -> int:
        """How many examples were judged."""
        return self.counts.get("held", 0) + self.counts.get("violated", 0)


def find(requirement: Requirement, records: Sequence[ExampleRecord], *, noisy: str = "") -> Finding:
    """Fold the records of one requirement into its verdict.

    Any violation decides; then a failed control, then what was untestable, each by its kind; a pass needs an example
    that held and nothing that could not be judged. `noisy` says that the server's noise grew during the run, which
    makes a comparison of bytes untestable rather than violated.
    """
    counts = Counter(record.outcome for record in records)
    violated = [record for record in records if record.outcome == "violated"]
    example, violation = None, None
    confirmed = (0, 0)
    if violated:
        example = smallest(violated)
        violation = example.violation
        repeats = [r for r in records if r.phase == "confirm"]
        confirmed = (1 + sum(r.outcome == "violated" for r in repeats), 1 + len(repeats))
        verdict, reason = _violated(requirement.level), example.detail
        if noisy and violation and violation.get("compared"):
            verdict, reason = Verdict.UNTESTABLE, noisy
    elif counts["harness-error"]:
        verdict, reason = Verdict.HARNESS_ERROR, _detail(records, "harness-error")
    elif counts["control-failed"]:
        verdict, reason = Verdict.UNTESTABLE, _several(records, "control-failed")
    elif counts["untestable"]:
        verdict, reason = Verdict.UNTESTABLE, _several(records, "untestable")
    elif counts["held"]:
        verdict, reason = Verdict.PASS, ""
    elif counts["not-declared"]:
        verdict, reason = Verdict.NOT_APPLICABLE, _detail(records, "not-declared")
    else:
        verdict, reason = Verdict.UNTESTABLE, "no example was run"
    judged = [record for record in records if record.outcome in ("held", "violated")]
    return Finding(
        requirement=requirement,
        verdict=verdict,
        reason=reason,
        counts=dict(counts),
        controls=sum(record.controls for record in judged),
        probes=sum(record.probes for record in judged),
        requests=sum(record.requests for record in records),
        recipes=len({recipe for record in judged for recipe in record.recipes}),
        rows_violated=tuple(dict.fromkeys(r.row for r in violated if r.phase == "table")),
        violation=violation,
        example={} if example is None else {"number": example.number, "row": example.row, "phase": example.phase},
        confirmed=confirmed,
    )


def _violated(level: Level) -> Verdict:
    return {Level.SHOULD: Verdict.WARN, Level.OBSERVE: Verdict.OBSERVED}.get(level, Verdict.FAIL)


def _detail(records: Iterable[ExampleRecord], outcome: str) -> str:
    return next((record.detail for record in records if record.outcome == outcome), "")


def _several(records: Sequence[ExampleRecord], outcome: str) -> str:
    concerned = [record for record in records if record.outcome == outcome]
    held = sum(record.outcome == "held" for record in records)
    rows = [record.row for record in concerned if record.row]
    about = f" (rows: {', '.join(rows[:6])}{', …' if len(rows) > 6 else ''})" if rows else ""
    return f"{len(concerned)} of {len(concerned) + held} examples: {_detail(records, outcome)}{about}"


def exit_code(findings: Sequence[Finding], level: str, *, reached: bool, allowed: Iterable[str] = ()) -> Exit:
    """Fold findings into the exit code; `allowed` names ids that may stay untestable."""
    required = [finding for finding in findings if finding.requirement.level in LEVELS[level]]
    verdicts = [finding.verdict for finding in required]
    if Verdict.FAIL in verdicts or Verdict.WARN in verdicts or Verdict.OBSERVED in verdicts:
        return Exit.VIOLATED
    if any(finding.verdict is Verdict.HARNESS_ERROR for finding in findings):
        return Exit.HARNESS
    forgiven = set(allowed)
    open_ids = [f for f in required if f.verdict is Verdict.UNTESTABLE and f.requirement.id not in forgiven]
    if not reached or open_ids or Verdict.PASS not in verdicts:
        return Exit.NOT_ESTABLISHED
    return Exit.OK

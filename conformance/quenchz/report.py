"""A run's report: one model (JSON, schema in spec/schemas/report.json), and the terminal's form of it."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quenchz.verdicts import LEVELS, Exit, Finding, Verdict
from quenchz_spec import LAW
from quenchz_spec.requirement import Invariant, Level, Requirement, law

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FORMAT = 1
WIDTH = 100

NOT_COVERED = (
    "timing: two answers that are the same bytes may still take different times",
    "anything no exchange of this run touched: a pass is about what was tried, not about all that could be",
    "the authorization server: tokens are taken as the target's trust has them",
)
"""What a green run of this release does not cover, whatever the target."""


@dataclass(frozen=True)
class Report:
    """Everything a run found, as the terminal and the JSON file show it."""

    url: str
    server: str
    wire: str
    seed: int
    profile: str
    level: str
    findings: Sequence[Finding]
    exit: Exit
    reached: bool
    requests: int
    charged: int
    waited: float
    seconds: float
    masks: dict[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()
    replay: str = ""

    def not_covered(self) -> list[str]:
        """Return what this run did not cover, the target's own gaps first."""
        gaps = _by_reason([f for f in self.findings if f.verdict is Verdict.NOT_APPLICABLE])
        asked = {finding.requirement.id for finding in self.findings}
        skipped = [requirement.id for requirement in law() if requirement.id not in asked]
        if skipped:
            gaps.append(f"not selected: {', '.join(skipped)}")
        return [*gaps, *NOT_COVERED]

    def data(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {
            "quenchz_report": FORMAT,
            "law": LAW,
            "target": {"url": self.url, "server": self.server, "protocol": self.wire},
            "run": {
                "seed": self.seed,
                "profile": self.profile,
                "level": self.level,
                "reached": self.reached,
                "requests": self.requests,
                "charged": self.charged,
                "waited_seconds": round(self.waited, 3),
                "seconds": round(self.seconds, 3),
            },
            "masks": self.masks,
            "notes": list(self.notes),
            "findings": [_finding(finding) for finding in self.findings],
            "not_covered": self.not_covered(),
            "exit": int(self.exit),
        }

    def write(self, path: Path) -> None:
        """Write the JSON file."""
        path.write_text(json.dumps(self.data(), indent=2, ensure_ascii=True) + "\n", encoding="utf-8")

    def text(self) -> str:
        """Return the terminal's form: a table by invariant, then each failure as a short proof."""
        lines = [
            f"{self.url}" + (f" ({printable(self.server)})" if self.server else "") + f", MCP {self.wire}, {LAW}",
            "",
        ]
        for invariant in Invariant:
            of = [finding for finding in self.findings if finding.requirement.invariant is invariant]
            if of:
                lines += [*_invariant(invariant, of, self.level), ""]
        for finding in self.findings:
            if finding.violation is not None:
                lines += [*proof(finding, self.replay), ""]
        unsettled = [f for f in self.findings if f.verdict in (Verdict.UNTESTABLE, Verdict.HARNESS_ERROR)]
        if unsettled:
            lines.append("Not established:")
            lines += [line for text in _by_reason(unsettled) for line in _wrapped(text, "  ", 6)]
            lines.append("")
        lines.append("Not covered by this run:")
        lines += [line for text in self.not_covered() for line in _wrapped(text, "  - ", 4)]
        for kind, mask in self.masks.items():
            lines += _wrapped(f"Mask for {kind.replace('_', ' ')}: {mask}", "", 2)
        for note in self.notes:
            lines += _wrapped(note, "", 2)
        lines += ["", self.verdict_line()]
        return "\n".join(lines)

    def verdict_line(self) -> str:
        """Return the last line: the verdict of the whole run in one sentence."""
        count = {v: sum(f.verdict is v for f in self.findings) for v in Verdict}
        shown = ", ".join(f"{n} {v.value}" for v, n in count.items() if n)
        said = {
            Exit.OK: "Every required requirement passed",
            Exit.VIOLATED: "Something required is violated",
            Exit.NOT_ESTABLISHED: "Something required could not be established",
            Exit.HARNESS: "The harness failed",
            Exit.USAGE: "Not run",
        }[self.exit]
        return (
            f"{said}: {shown or 'nothing was judged'} ({self.requests} requests, {self.charged} units charged, "
            f"{self.waited:.1f} s waited, {self.seconds:.1f} s, seed {self.seed}, exit {int(self.exit)})."
        )


def _by_reason(findings: Sequence[Finding]) -> list[str]:
    """Return each reason once, after the ids that it concerns."""
    ids: dict[str, list[str]] = {}
    for finding in findings:
        ids.setdefault(finding.reason, []).append(finding.requirement.id)
    return [f"{', '.join(concerned)}: {printable(reason)}" for reason, concerned in ids.items()]


def _finding(finding: Finding) -> dict[str, Any]:
    requirement = finding.requirement
    return {
        "id": requirement.id,
        "invariant": requirement.invariant.word,
        "level": requirement.level.value,
        "claim": requirement.claim,
        "norm": {"source": requirement.norm.source, "quote": requirement.norm.quote},
        "contrary": None
        if requirement.contrary is None
        else {"source": requirement.contrary.source, "quote": requirement.contrary.quote},
        "cost": requirement.cost,
        "verdict": finding.verdict.value,
        "reason": finding.reason,
        "outcomes": finding.counts,
        "examples": finding.examples,
        "controls": finding.controls,
        "probes": finding.probes,
        "requests": finding.requests,
        "recipes": finding.recipes,
        "rows_violated": list(finding.rows_violated),
        "violation": finding.violation,
        "example": finding.example,
        "confirmed": list(finding.confirmed),
    }


def _invariant(invariant: Invariant, of: Sequence[Finding], level: str) -> list[str]:
    required = [f for f in of if f.requirement.level in LEVELS[level]]
    verdict = _together(required)
    totals = (sum(f.examples for f in of), sum(f.controls for f in of), sum(f.requests for f in of))
    head = f"{invariant.title}: {verdict} ({totals[0]} examples, {totals[1]} controls, {totals[2]} requests)"
    rows = [head]
    for f in of:
        counts = f"{f.examples:>4} examples {f.controls:>5} controls {f.requests:>5} requests"
        if invariant is Invariant.AUDIENCE:
            counts += f" {f.recipes:>4} recipes"
        required_mark = "" if f.requirement.level in LEVELS[level] else " (not required)"
        rows.append(f"  {f.requirement.id:<10} {f.requirement.level.value:<8} {f.verdict.value:<14} {counts}")
        rows += _wrapped(f.requirement.claim + required_mark, " " * 13, 13)
    return rows


def _together(findings: Sequence[Finding]) -> str:
    """Return the verdict of an invariant: the worst of its required requirements, applicable ones only."""
    order = (Verdict.FAIL, Verdict.WARN, Verdict.HARNESS_ERROR, Verdict.UNTESTABLE, Verdict.OBSERVED, Verdict.PASS)
    found = {finding.verdict for finding in findings}
    return next((verdict.value for verdict in order if verdict in found), Verdict.NOT_APPLICABLE.value)


def proof(finding: Finding, replay: str = "") -> list[str]:
    """Return a violation as a short proof: what was held, sent and received, and the sentence that forbids it."""
    requirement, violation = finding.requirement, finding.violation or {}
    lines = [f"{requirement.id} {finding.verdict.value}: {requirement.claim}"]
    example = finding.example
    if example.get("row"):
        row = requirement.rows.get(str(example["row"]))
        lines += _wrapped(f"Attack: {row.words if row else example['row']}.", "  ", 4)
        if len(finding.rows_violated) > 1:
            lines += _wrapped(f"Also violated by: {', '.join(finding.rows_violated[1:])}.", "  ", 4)
    for word in ("held", "sent", "received", "expected"):
        lines += _wrapped(f"{word.capitalize():<9} {printable(str(violation.get(word, '')))}", "  ", 12)
    if violation.get("difference"):
        lines += _wrapped(f"{'Differ':<9} {printable(str(violation['difference']))}", "  ", 12)
    norm = violation.get("norm") or {"source": requirement.norm.source, "quote": requirement.norm.quote}
    lines += _wrapped(f"{'Forbidden':<9} {norm['source']}: “{norm['quote']}”", "  ", 12)
    if requirement.level is not Level.MUST:
        lines += _wrapped(f"{'Cost':<9} {requirement.cost}", "  ", 12)
    if requirement.contrary is not None:
        contrary = f"{requirement.contrary.source}: “{requirement.contrary.quote}”"
        lines += _wrapped(f"{'Contrary':<9} {contrary}", "  ", 12)
    lines += _wrapped(f"{'Seen':<9} {finding.confirmed[0]} of {finding.confirmed[1]} times.", "  ", 12)
    if replay:
        lines += _wrapped(f"{'Replay':<9} {replay} --id {requirement.id}", "  ", 12)
    return lines


def _wrapped(text: str, first: str, indent: int) -> list[str]:
    return textwrap.wrap(
        printable(text), WIDTH, initial_indent=first, subsequent_indent=" " * indent, break_long_words=True
    ) or [first]


def printable(text: str) -> str:
    """Return text whose control characters and lone surrogates are escapes: servers choose what we print."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


def explain(requirement: Requirement) -> str:
    """Return everything about one requirement, as `quenchz explain` prints it."""
    lines = [f"{requirement.id} ({requirement.level.value}, {requirement.invariant.title})", requirement.claim, ""]
    lines += _wrapped(f"Norm      {requirement.norm.source}: “{requirement.norm.quote}”", "", 10)
    if requirement.contrary is not None:
        lines += _wrapped(f"Contrary  {requirement.contrary.source}: “{requirement.contrary.quote}”", "", 10)
    lines += _wrapped(f"Cost      {requirement.cost}", "", 10)
    lines += _wrapped(f"Control   {requirement.control}", "", 10)
    lines += [f"Property  {requirement.name}", "", "Attack table (must is what the norms alone demand):"]
    lines += [f"  {row.must:<8} {row.quenchz:<18} {row.words}" for row in requirement.rows.values()]
    return "\n".join(lines)

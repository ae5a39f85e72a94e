"""A report shows what was found, how to repeat it, what it did not cover; servers choose no control codes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from quenchz.history import ExampleRecord
from quenchz.report import NOT_COVERED, WIDTH, Report, explain, printable
from quenchz.verdicts import Exit, Finding, Verdict, find
from quenchz_spec.requirement import law

if TYPE_CHECKING:
    from pathlib import Path

LAW = {requirement.id: requirement for requirement in law()}
VIOLATION: dict[str, Any] = {
    "held": "a token.",
    "sent": "tools/list.",
    "received": "a 200 \x1b[2J\x07 answer.",
    "expected": "HTTP 401.",
    "difference": "The first difference is at byte 7 of the body: 'a' against 'b'.",
    "signature": "not refused",
    "norm": None,
    "compared": None,
}


def record(name: str, outcome: str, **members: Any) -> ExampleRecord:
    defaults = {"requirement": name, "number": 1, "phase": "table", "row": next(iter(LAW[name].rows)), "arguments": 1}
    violation = VIOLATION if outcome == "violated" else None
    return ExampleRecord(
        **{**defaults, "outcome": outcome, "detail": f"{outcome} because", "violation": violation, **members}
    )


def finding(name: str, *outcomes: str) -> Finding:
    return find(LAW[name], [record(name, outcome, controls=1, probes=1, requests=2) for outcome in outcomes])


FINDINGS = [
    finding("QZ-AUD-1", "violated"),
    finding("QZ-AUD-2", "held", "held"),
    finding("QZ-AUD-3", "control-failed"),
    finding("QZ-AUD-10", "violated"),
    finding("QZ-DEN-1", "not-declared"),
    finding("QZ-CRT-1", "harness-error"),
]
REPORT = Report(
    url="http://127.0.0.1:9/mcp",
    server="evil \x1b[31m server",
    wire="2026-07-28",
    seed=77,
    profile="gate",
    level="quenchz",
    findings=FINDINGS,
    exit=Exit.VIOLATED,
    reached=True,
    requests=12,
    charged=3,
    waited=1.25,
    seconds=2.0,
    masks={"tools": "JSON-RPC id, own session id, values of date"},
    notes=("A note.",),
    replay="quenchz check http://127.0.0.1:9/mcp --profile gate --seed 77",
)


def test_the_data_is_json_with_every_finding_once() -> None:
    data = json.loads(json.dumps(REPORT.data()))
    verdicts = {f["id"]: f["verdict"] for f in data["findings"]}
    assert verdicts == {
        "QZ-AUD-1": "fail",
        "QZ-AUD-2": "pass",
        "QZ-AUD-3": "untestable",
        "QZ-AUD-10": "warn",
        "QZ-DEN-1": "not-applicable",
        "QZ-CRT-1": "harness-error",
    }
    assert (data["exit"], data["run"]["seed"], data["run"]["requests"]) == (1, 77, 12)
    assert data["findings"][0]["violation"] == VIOLATION
    assert data["findings"][1]["examples"] == 2


def test_the_text_shows_every_finding_with_its_claim() -> None:
    text = " ".join(REPORT.text().split())
    for one in FINDINGS:
        assert one.requirement.id in text
        assert " ".join(one.requirement.claim.split()) in text
    assert REPORT.text().splitlines()[-1] == REPORT.verdict_line()
    assert "seed 77, exit 1" in REPORT.verdict_line()


def test_a_failure_is_a_short_proof_with_its_norm_and_how_to_repeat_it() -> None:
    text = " ".join(REPORT.text().split())
    requirement = LAW["QZ-AUD-1"]
    row = next(iter(requirement.rows.values()))
    for words in (
        row.words,
        "a token.",
        "HTTP 401.",
        "byte 7 of the body",
        requirement.norm.source,
        requirement.norm.quote,
    ):
        assert words in text
    assert "--seed 77 --id QZ-AUD-1" in text
    assert "1 of 1 times" in text


def test_what_is_stricter_than_the_norm_shows_its_cost_and_the_contrary_norm() -> None:
    strict = LAW["QZ-AUD-2"]
    text = " ".join(replace(REPORT, findings=[finding("QZ-AUD-2", "violated")]).text().split())
    assert strict.contrary is not None
    assert strict.cost in text
    assert strict.contrary.quote in text


def test_what_could_not_be_established_says_why() -> None:
    text = " ".join(REPORT.text().split())
    assert "control-failed because" in text
    assert "harness-error because" in text


@pytest.mark.parametrize("findings", [FINDINGS, [], FINDINGS[1:2]])
def test_every_report_says_what_it_did_not_cover(findings: list[Finding]) -> None:
    report = replace(REPORT, findings=findings, exit=Exit.OK)
    assert set(NOT_COVERED) <= set(report.not_covered())
    skipped = set(LAW) - {f.requirement.id for f in findings}
    named = set(re.findall(r"QZ-[A-Z]+-[0-9]+", next(gap for gap in report.not_covered() if "not selected" in gap)))
    assert named == skipped
    shown = " ".join(report.text().split())
    assert [gap for gap in NOT_COVERED if gap not in shown] == []


def test_a_server_cannot_steer_the_terminal() -> None:
    """It chooses its name, its answers and so parts of a report."""
    text = REPORT.text()
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text) == []
    assert r"\x1b[31m" in text
    assert printable("a\nb\u202ec\ud800é") == r"a\nb\u202ec\ud800é"


@pytest.mark.parametrize("reason", ["\x1b]0;owned\x07", "\u202e", "\r\n\x9b31m"])
def test_a_reason_and_a_note_cannot_steer_the_terminal_either(reason: str) -> None:
    """Reasons repeat what a server said of itself, a challenge's URL for one."""
    unsettled = replace(
        finding("QZ-AUD-1", "untestable"), verdict=Verdict.UNTESTABLE, reason=f"the document {reason} is odd"
    )
    text = replace(REPORT, findings=[unsettled], notes=(reason,), masks={"tools": f"values of {reason}"}).text()
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text) == []


def test_lines_are_no_wider_than_a_terminal() -> None:
    assert [
        line for line in REPORT.text().splitlines() if len(line) > WIDTH and "http" not in line and "exit" not in line
    ] == []


def test_the_file_is_ascii_and_complete(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    replace(REPORT, server="\ud800é").write(path)
    assert path.read_bytes().isascii()
    assert json.loads(path.read_text(encoding="utf-8"))["target"]["server"] == "\ud800é"


@pytest.mark.parametrize("exit_code", list(Exit))
def test_every_exit_code_has_a_sentence_of_its_own(exit_code: Exit) -> None:
    lines = {replace(REPORT, exit=code).verdict_line().split(":")[0] for code in Exit}
    assert len(lines) == len(Exit)
    assert f"exit {int(exit_code)})." in replace(REPORT, exit=exit_code).verdict_line()


@pytest.mark.parametrize("name", sorted(LAW))
def test_a_requirement_is_explained_with_all_that_it_states(name: str) -> None:
    requirement = LAW[name]
    text = " ".join(explain(requirement).split())
    said = [requirement.id, requirement.level.value, requirement.claim, requirement.norm.quote, requirement.cost]
    said += [requirement.control, requirement.name, *(row.words for row in requirement.rows.values())]
    assert [words for words in said if " ".join(words.split()) not in text] == []

"""The command line: every wrong use exits with 2 and one line that says what to do; a run keeps its manners."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from quenchz.cli import main
from quenchz.driver import HttpSubject
from quenchz.engine import Runner
from quenchz_spec.requirement import law
from sentinels import SENTINELS, running
from support.judging import judge

if TYPE_CHECKING:
    from pathlib import Path

    from quenchz.history import ExampleRecord
    from quenchz_spec.requirement import Requirement

URL = "http://127.0.0.1:9/mcp"

WRONG: dict[str, tuple[list[str], str]] = {
    "no target": (["check"], "give a URL"),
    "a command without the reference": (["check", URL, "--server", "x"], "--reference"),
    "two targets": (["check", URL, "--reference"], "starts its own server"),
    "the reference and a target file": (["check", "--reference", "--target", "x"], "starts its own server"),
    "an invariant": (["check", URL, "--invariant", "audiences"], "audience, denials, reserves, certificates"),
    "an id": (["check", URL, "--id", "QZ-AUD-999"], "quenchz list"),
    "an id to forgive": (["check", URL, "--allow-untestable", "QZ-AUD-999"], "QZ-AUD-999"),
    "no requests": (["check", URL, "--max-requests", "0"], "positive"),
    "a rate of nothing": (["check", URL, "--rate", "0"], "positive"),
    "a rate that is no number": (["check", URL, "--rate", "nan"], "positive"),
    "no time to answer": (["check", URL, "--timeout", "0"], "--timeout"),
    "a folder that is none": (["check", URL, "--json", "/no/such/folder/r.json"], "folder does not exist"),
    "a history in no folder": (["check", URL, "--history", "/no/such/folder/h"], "folder does not exist"),
    "a history that is a folder": (["check", URL, "--history", "/"], "/"),
    "no URL": (["check", "mcp.example/mcp"], "http://host"),
    "a URL of another scheme": (["check", "ftp://a/mcp"], "http://host"),
    "another machine": (["check", "https://mcp.example/mcp"], "owner_authorized"),
    "another machine that sounds like this one": (["check", "http://localhost.evil.example/mcp"], "owner_authorized"),
    "a target file that is none": (["check", "--target", "/no/such/quenchz.toml"], "quenchz init"),
    "a tokens file that is none": (["check", URL, "--tokens-file", "/no/such/tokens.json"], "no such tokens file"),
    "a history that is none": (["judge", "/no/such/history"], "no such history"),
    "an unknown requirement": (["explain", "QZ-AUD-999"], "quenchz list"),
}


@pytest.mark.parametrize(("arguments", "said"), list(WRONG.values()), ids=list(WRONG))
def test_wrong_use_exits_with_2_and_says_what_to_do(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a request was sent")

    monkeypatch.setattr("quenchz.transport.Transport.exchange", never)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.startswith("quenchz: ")
    assert len(printed.err.splitlines()) == 1
    assert printed.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["chek"],
        ["check", URL, "--profile", "thorough"],
        ["check", URL, "--seed", "seven"],
        ["check", URL, "--protocol", "2024-11-05"],
        ["check", URL, "--level", "strict"],
        ["check", URL, "--unknown"],
        ["judge"],
        ["explain"],
    ],
)
def test_a_command_line_that_cannot_be_parsed_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert "usage: quenchz" in capsys.readouterr().err


def test_no_command_prints_the_help_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "check" in capsys.readouterr().out


def test_the_help_states_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for code in range(5):
        assert re.search(rf"\b{code} [a-z]", shown), code


def test_list_shows_every_requirement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [[r.id, r.level.value] for r in law()]


def test_explain_shows_one_requirement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "QZ-DEN-1"]) == 0
    assert "MCP 2026-07-28" in capsys.readouterr().out


def test_the_version_names_the_law(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"quenchz \S+, law quenchz-1\n", capsys.readouterr().out)


def test_a_url_without_tokens_establishes_nothing_and_says_what_would_help(tmp_path: Path) -> None:
    with running(SENTINELS["unauthorized"][0]) as sentinel:
        judged = judge(tmp_path, sentinel.url)
    assert judged.exit == 3
    assert {reason for f in judged.report["findings"] if "--tokens-file" not in (reason := f["reason"])} == set()


def test_a_server_command_that_prints_no_address_exits_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--reference", "--server", "echo I am no server", "--quiet"]) == 3
    assert "I am no server" in capsys.readouterr().err
    assert main(["check", "--reference", "--server", "/no/such/program", "--quiet"]) == 3


# --- against the reference ------------------------------------------------------------------------------------------

SOME = ("--reference", "--profile", "smoke", "--seed", "5", "--id", "QZ-AUD-1", "--id", "QZ-DEN-1")


def test_a_dry_run_prints_the_plan_and_asks_nothing_of_any_tool(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    perform = HttpSubject._perform

    def watched(self: HttpSubject, ask: Any, *arguments: Any, **named: Any) -> Any:
        asked.append(ask.method)
        return perform(self, ask, *arguments, **named)

    monkeypatch.setattr(HttpSubject, "_perform", watched)
    assert main(["check", *SOME, "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert "nothing was judged" in printed.out
    assert re.search(r"Plan: 2 requirements, profile smoke, seed 5, at most \d+ requests", printed.err)
    assert "exchange_rates" in printed.err
    assert set(asked) <= {"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list"}


def test_a_limit_of_requests_is_kept_and_never_passes_anything_untried(tmp_path: Path) -> None:
    judged = judge(tmp_path, *SOME, "--max-requests", "30")
    assert judged.report["run"]["requests"] <= 30
    assert judged.exit == 3
    assert judged.ids("pass") == set()
    assert "--max-requests" in judged.finding("QZ-AUD-1")["reason"]


def test_a_limit_below_what_connecting_takes_exits_with_3(tmp_path: Path) -> None:
    judged = judge(tmp_path, *SOME, "--max-requests", "3")
    assert (judged.exit, judged.ids("untestable")) == (3, {"QZ-AUD-1", "QZ-DEN-1"})
    assert "--max-requests" in judged.finding("QZ-AUD-1")["reason"]


def test_the_same_seed_gives_the_same_report(tmp_path: Path) -> None:
    options = ("--reference", "--profile", "gate", "--seed", "5", "--invariant", "audience")
    reports = [judge(tmp_path, *options).report["findings"] for _ in range(2)]
    assert reports[0] == reports[1]


# --- Ctrl-C ---------------------------------------------------------------------------------------------------------


def interrupted_in(name: str, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the user interrupt while requirement `name` is run, after so many of its examples."""
    attempt = Runner._attempt

    def attempting(self: Runner, requirement: Requirement, *arguments: Any, **named: Any) -> ExampleRecord:
        if requirement.id == name and sum(r.requirement == name for r in self.records) == after:
            raise KeyboardInterrupt
        return attempt(self, requirement, *arguments, **named)

    monkeypatch.setattr(Runner, "_attempt", attempting)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_an_interrupted_run_reports_what_it_knows_and_never_exits_with_0(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row that held before the interrupt is no pass: the others were not tried."""
    interrupted_in("QZ-AUD-2", after, monkeypatch)
    options = ("--reference", "--profile", "smoke", "--seed", "5", "--id", "QZ-AUD-1", "--id", "QZ-AUD-2")
    judged = judge(tmp_path, *options, "--history", str(tmp_path / "h"))
    assert judged.verdicts() == {"QZ-AUD-1": "pass", "QZ-AUD-2": "untestable"}
    assert "interrupted" in judged.finding("QZ-AUD-2")["reason"]
    assert judged.exit == 3
    assert json.loads((tmp_path / "h").read_text(encoding="utf-8").splitlines()[0])["kind"] == "header"


def test_a_violation_known_before_an_interrupt_exits_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from quenchz_spec.outcomes import ViolationError

    first = next(r for r in law() if r.id == "QZ-AUD-1")
    check = first.check

    def violated(subject: Any, row: Any) -> None:
        check(subject, row)
        raise ViolationError(held="h.", sent="s.", received="r.", expected="e.", signature="s")

    monkeypatch.setitem(vars(first), "check", violated)
    interrupted_in("QZ-AUD-2", 1, monkeypatch)
    options = ("--reference", "--profile", "smoke", "--seed", "5", "--id", "QZ-AUD-1", "--id", "QZ-AUD-2")
    judged = judge(tmp_path, *options)
    assert (judged.exit, judged.finding("QZ-AUD-1")["verdict"]) == (1, "fail")

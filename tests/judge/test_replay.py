"""A history judged again says what the run said, without network; what it lacks is untestable."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from judge_support import FakeServer, FakeTokens, Sent, budget, result, target, world

from quenchz.cli import main
from quenchz.engine import PROFILES, Profile, Runner
from quenchz.history import ExampleRecord, read_history
from quenchz.replay import replay
from quenchz_spec.codec import encode
from quenchz_spec.requirement import law
from support.judging import WIRES, judge

if TYPE_CHECKING:
    from pathlib import Path

LAW = {requirement.id: requirement for requirement in law()}
IDS = ("QZ-AUD-1", "QZ-AUD-3", "QZ-AUD-8")


def admits_lists(tokens: FakeTokens) -> Any:
    """A server that admits a list that holds its resource, and nothing else that is wrong."""
    honest = FakeServer(tokens)

    def answering(sent: Sent) -> Any:
        recipe = tokens.recipes.get(sent.token)
        if recipe is not None and '["https://fake.invalid/mcp"]' in (
            recipe.audience.json("https://fake.invalid/mcp") or ""
        ):
            return result(sent, tools=[])
        return honest(sent)

    return answering


def recorded(path: Path, profile: Profile = PROFILES["smoke"], answer: Any = admits_lists) -> list[ExampleRecord]:
    """Run a few requirements against a server in this process and return what was found."""
    of = world(answer, target(budget()), history=path)
    of.subject.connect("auto")
    of.history.header(
        url="http://127.0.0.1:9/mcp",
        wire=of.subject.wire,
        seed=1,
        profile=profile.name,
        level="quenchz",
        ids=list(IDS),
        allowed=[],
        target=encode(of.subject.target),
    )
    runner = Runner(of.subject, of.history, profile, 1)
    for name in IDS:
        runner.run(LAW[name])
    of.history.close()
    return runner.records


def told(records: list[ExampleRecord]) -> list[tuple[Any, ...]]:
    return [(r.requirement, r.number, r.phase, r.row, r.arguments, r.outcome, r.detail, r.violation) for r in records]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rewritten(path: Path, kept: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    return path


def test_every_example_is_judged_again_as_it_was(tmp_path: Path) -> None:
    live = recorded(tmp_path / "h", Profile("test", 30, 30, 30, 2))
    assert {r.outcome for r in live} == {"held", "violated"}
    assert {r.phase for r in live} == {"table", "generate", "confirm"}
    _, again = replay(read_history(tmp_path / "h"))
    assert told(again) == told(live)
    assert [(r.controls, r.probes, r.requests) for r in again] == [(r.controls, r.probes, r.requests) for r in live]


def test_the_judge_gives_the_same_exit_code_and_verdicts_as_the_run(tmp_path: Path) -> None:
    recorded(tmp_path / "h")
    code = main(["judge", str(tmp_path / "h"), "--json", str(tmp_path / "report.json")])
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert {f["id"]: f["verdict"] for f in report["findings"]} == {
        "QZ-AUD-1": "pass",
        "QZ-AUD-3": "fail",
        "QZ-AUD-8": "pass",
    }
    assert report["exit"] == code == 1
    assert main(["judge", str(tmp_path / "h"), "--level", "must"]) == 0


@pytest.mark.parametrize("wire", WIRES)
def test_a_run_against_the_reference_is_judged_again_as_it_was(wire: str, tmp_path: Path) -> None:
    """Reserves are left to the runs of their own: they take most of the time."""
    chosen = [word for name in ("audience", "denials", "certificates") for word in ("--invariant", name)]
    path = tmp_path / "h"
    options = ["--profile", "gate", "--protocol", wire, "--seed", "3"]
    live = judge(tmp_path, "--reference", "--history", str(path), *options, *chosen)
    code = main(["judge", str(path), "--json", str(tmp_path / "again.json")])
    again = json.loads((tmp_path / "again.json").read_text(encoding="utf-8"))
    assert code == live.exit == 0

    def shown(report: dict[str, Any]) -> list[Any]:
        return [(f["id"], f["verdict"], f["outcomes"], f["controls"], f["probes"]) for f in report["findings"]]

    assert shown(again) == shown(live.report)


def test_an_exchange_that_the_history_lacks_is_untestable_and_says_so(tmp_path: Path) -> None:
    recorded(tmp_path / "h")
    kept = lines(tmp_path / "h")
    probe = next(
        n
        for n, line in enumerate(kept)
        if line["kind"] == "exchange" and line["channel"] == "QZ-AUD-1" and line["role"] == "probe"
    )
    del kept[probe]
    _, again = replay(read_history(rewritten(tmp_path / "h", kept)))
    first, *others = [r for r in again if r.requirement == "QZ-AUD-1"]
    assert first.outcome == "untestable"
    assert "the history lacks an exchange" in first.detail
    assert {r.outcome for r in others} == {"held"}
    assert main(["judge", str(tmp_path / "h"), "--level", "must"]) == 3


def test_an_exchange_that_was_asked_differently_is_lacking(tmp_path: Path) -> None:
    """What is compared is the question itself, so a changed law never takes an answer to another question."""
    recorded(tmp_path / "h")
    kept = lines(tmp_path / "h")
    for line in kept:
        if line["kind"] == "exchange" and line["channel"] == "QZ-AUD-8" and line["role"] == "control":
            line["ask"]["method"] = "prompts/list"
    _, again = replay(read_history(rewritten(tmp_path / "h", kept)))
    assert {r.outcome for r in again if r.requirement == "QZ-AUD-8"} == {"untestable"}


def test_an_answer_changed_in_the_history_changes_the_verdict(tmp_path: Path) -> None:
    """The recorded outcome is not believed: every exchange is judged."""
    recorded(tmp_path / "h")
    kept = lines(tmp_path / "h")
    for line in kept:
        if line["kind"] == "exchange" and line["channel"] == "QZ-AUD-1" and line["role"] == "probe":
            line["response"]["start"] = "HTTP/1.1 500 Oops"
    _, again = replay(read_history(rewritten(tmp_path / "h", kept)))
    assert {r.outcome for r in again if r.requirement == "QZ-AUD-1"} == {"violated"}


def test_a_requirement_that_this_law_does_not_know_is_left_out(tmp_path: Path) -> None:
    recorded(tmp_path / "h")
    kept = lines(tmp_path / "h")
    for line in kept:
        if line["kind"] == "example" and line["requirement"] == "QZ-AUD-3":
            line["requirement"] = "QZ-AUD-999"
    _, again = replay(read_history(rewritten(tmp_path / "h", kept)))
    assert {r.requirement for r in again} == {"QZ-AUD-1", "QZ-AUD-8"}


def test_a_recorded_transport_error_is_untestable_again(tmp_path: Path) -> None:
    from quenchz.transport import AnswerTimedOutError

    def answer(tokens: FakeTokens) -> Any:
        honest = FakeServer(tokens)

        def answering(sent: Sent) -> Any:
            recipe = tokens.recipes.get(sent.token)
            if recipe is not None and not recipe.plainly_valid:
                raise AnswerTimedOutError(origin="http://127.0.0.1:9", ended=9.0, sent=8.0, timeout=1.0)
            return honest(sent)

        return answering

    live = recorded(tmp_path / "h", answer=answer)
    assert "untestable" in {r.outcome for r in live}
    _, again = replay(read_history(tmp_path / "h"))
    assert told(again) == told(live)


def test_a_history_without_examples_establishes_nothing(tmp_path: Path) -> None:
    recorded(tmp_path / "h")
    kept = [line for line in lines(tmp_path / "h") if line["kind"] != "example"]
    assert main(["judge", str(rewritten(tmp_path / "h", kept))]) == 3

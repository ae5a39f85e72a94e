"""The main job: the reference server is judged on both wires, the recording judged again, and no secret written."""

from __future__ import annotations

import base64
import json
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from quenchz.cli import main
from quenchz.mint import Mint
from support.judging import WIRES, Judged, judge

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Run:
    """A run against the reference server, with everything it wrote and every token it minted."""

    judged: Judged
    folder: Path
    tokens: list[str]

    @property
    def history(self) -> Path:
        """The recording."""
        return self.folder / "history.jsonl"


@pytest.fixture(scope="module", params=WIRES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run at the default profile, with its history, on one wire."""
    folder = tmp_path_factory.mktemp("main-job")
    tokens: list[str] = []
    mint = Mint.mint

    def minting(self: Mint, *arguments: Any, **named: Any) -> str:
        tokens.append(mint(self, *arguments, **named))
        return tokens[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mint, "mint", minting)
        history = folder / "history.jsonl"
        found = judge(folder, "--reference", "--protocol", request.param, "--seed", "1", "--history", str(history))
    return Run(found, folder, tokens)


def not_applicable(run: Run) -> set[str]:
    """Profiles that the reference does not declare, and what only the revision with sessions has."""
    stateless = run.judged.report["target"]["protocol"] == WIRES[0]
    return {"QZ-AUD-32", "QZ-AUD-33"} | ({"QZ-AUD-20", "QZ-AUD-28"} if stateless else set())


def test_the_reference_server_passes_every_requirement_that_applies(run: Run) -> None:
    assert run.judged.exit == 0
    assert run.judged.ids("pass") == set(run.judged.verdicts()) - not_applicable(run)
    assert run.judged.ids("not-applicable") == not_applicable(run)


def test_every_pass_counts_examples_controls_and_requests(run: Run) -> None:
    for finding in run.judged.report["findings"]:
        if finding["id"] in not_applicable(run):
            continue
        assert finding["examples"] >= 1, finding["id"]
        assert finding["controls"] >= finding["examples"], finding["id"]
        assert finding["requests"] > finding["controls"], finding["id"]


def test_the_recording_is_judged_the_same_without_a_network(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise AssertionError("the judge opened a socket")

    monkeypatch.setattr(socket, "socket", no_network)
    again = run.folder / "again.json"
    assert main(["judge", str(run.history), "--json", str(again)]) == run.judged.exit
    report = json.loads(again.read_text(encoding="utf-8"))
    for old, new in zip(run.judged.report["findings"], report["findings"], strict=True):
        assert (new["id"], new["verdict"], new["outcomes"]) == (old["id"], old["verdict"], old["outcomes"])


@pytest.mark.parametrize(("name", "method"), [("QZ-DEN-1", "tools/call"), ("QZ-DEN-2", "prompts/get")])
def test_one_changed_byte_of_a_hidden_denial_fails_that_id(run: Run, name: str, method: str) -> None:
    hidden = {"QZ-DEN-1": "full_history", "QZ-DEN-2": "audit_history"}[name]
    lines: list[str] = []
    changed = 0
    for line in run.history.read_text(encoding="utf-8").splitlines():
        data = json.loads(line)
        ask = data.get("ask", {})
        is_probe = data.get("channel") == name and data.get("role") == "probe" and ask["method"] == method
        if not changed and is_probe and ask["params"].get("name") == hidden:
            body = data["response"]["body"]
            at = body.index('"message":"') + len('"message":"')
            data["response"]["body"] = body[:at] + chr(ord(body[at]) ^ 1) + body[at + 1 :]
            changed += 1
        lines.append(json.dumps(data))
    assert changed == 1
    forged = run.folder / f"{name}.jsonl"
    forged.write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = run.folder / f"{name}.json"
    assert main(["judge", str(forged), "--json", str(report)]) == 1
    verdicts = {f["id"]: f["verdict"] for f in json.loads(report.read_text(encoding="utf-8"))["findings"]}
    assert {i for i, verdict in verdicts.items() if verdict not in ("pass", "not-applicable")} == {name}
    assert verdicts[name] == "fail"


def test_no_token_and_no_payload_is_in_anything_the_run_wrote(run: Run) -> None:
    assert len(run.tokens) > 100
    pieces = {piece for token in run.tokens for piece in (token, *token.split(".")[1:]) if len(piece) >= 12}
    files = [path for path in run.folder.iterdir() if path.is_file()]
    assert len(files) >= 2
    for path in files:
        runs = set(re.findall(r"[A-Za-z0-9_-]{12,}", path.read_text(encoding="utf-8")))
        assert not pieces & runs, path.name
        assert not any(token in path.read_text(encoding="utf-8") for token in run.tokens[:50]), path.name


def test_the_search_for_tokens_would_find_one(run: Run) -> None:
    token = run.tokens[0]
    planted = json.dumps({"kind": "exchange", "body": f"you sent {token} to us"})
    pieces = set(token.split(".")[1:])
    assert pieces & set(re.findall(r"[A-Za-z0-9_-]{12,}", planted))
    assert json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["iss"]


def test_the_report_and_the_history_fit_their_schemas(run: Run, pytestconfig: pytest.Config) -> None:
    schemas = pytestconfig.rootpath / "spec" / "schemas"

    def validator(name: str) -> jsonschema.Draft202012Validator:
        return jsonschema.Draft202012Validator(json.loads((schemas / name).read_text(encoding="utf-8")))

    validator("report.json").validate(run.judged.report)
    lines = validator("history.json")
    for line in run.history.read_text(encoding="utf-8").splitlines()[::7]:
        lines.validate(json.loads(line))


@pytest.mark.parametrize(("profile", "verdict"), [("gate", "untestable"), ("prove", "pass")])
def test_a_recording_without_a_row_of_the_table_is_no_pass_of_ours(run: Run, profile: str, verdict: str) -> None:
    kept: list[str] = []
    for line in run.history.read_text(encoding="utf-8").splitlines():
        data = json.loads(line)
        if data["kind"] == "header":
            line = json.dumps({**data, "profile": profile})
        if data["kind"] != "example" or (data["requirement"], data["row"]) != ("QZ-CRT-3", "Easter"):
            kept.append(line)
    cut = run.folder / f"cut-{profile}.jsonl"
    cut.write_text("\n".join(kept) + "\n", encoding="utf-8")
    again = run.folder / f"cut-{profile}.json"
    main(["judge", str(cut), "--json", str(again)])
    report = json.loads(again.read_text(encoding="utf-8"))
    assert {f["id"]: f["verdict"] for f in report["findings"]}["QZ-CRT-3"] == verdict
    assert any("left out: 1 of QZ-CRT-3" in note for note in report["notes"])


def test_a_history_is_read_by_a_program_that_has_not_read_the_law_yet(run: Run) -> None:
    program = "import sys, pathlib; from quenchz.history import read_history; read_history(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", program, str(run.history)], check=True)

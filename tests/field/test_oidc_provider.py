"""A real authorization server: what it grants is admitted or refused as its audience says, by asks and by verdicts."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import pytest

from field.oidc_provider import environment, transcribe
from field.oidc_provider.run import secret_variable, start
from field.oidc_provider.transcribe import DOCUMENT, OTHER, RESOURCE
from field.processes import kept_port, reference
from quenchz.history import read_history
from support.judging import Judged, judge

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

TARGET = """\
url = "{url}"
protocol = "{wire}"
resource = "{resource}"
[tokens]
source = "client-credentials"
issuer = "{issuer}"
[callers.broad]
client_id = "broad"
client_secret_env = "{broad}"
scopes = ["rates:read", "rates:history", "rates:admin"]
[callers.narrow]
client_id = "narrow"
client_secret_env = "{narrow}"
scopes = ["rates:read"]
"""

PASSES = {f"QZ-AUD-{number}" for number in (9, 10, 11, 12, 21, 22, 23, 27)}
RESPELLINGS = {"QZ-AUD-2", "QZ-AUD-13"}
UNTESTABLE = {f"QZ-AUD-{number}" for number in (1, 3, 4, 5, 6, 7, 8, 14, 15, 16, 17, 24, 25, 26, 29)}
_REFUSED = r"the authorization server refuses broad with resource .*: invalid_target "
_ELSEWHERE = r"let the target trust the suite's issuer, or mint it with a command \(tokens\.source\)"
REASONS = (
    rf"{_REFUSED}\(resource indicator .*\); register that resource there if it takes it, or {_ELSEWHERE}",
    rf"{_REFUSED}\(only a single resource indicator value is supported .*\); register .*, or {_ELSEWHERE}",
    rf'the authorization server wrote aud "https://.*" instead of aud \[.*\]; {_ELSEWHERE}',
    rf"the authorization server gave an opaque token: its aud cannot be read, .*; {_ELSEWHERE}",
    rf"an authorization server cannot be asked for a token with ([a-z]+ )+[a-z]+; {_ELSEWHERE}",
    rf"a resource parameter cannot ask for the aud .*; {_ELSEWHERE}",
    r"the (issuer of the tokens takes no orders|target trusts one issuer, .*); let the target trust tenants of .*",
)
"""Every reason for which a row is untestable with an authorization server that somebody operates."""


@dataclass(frozen=True)
class Run:
    """A run of the judge with this authorization server: its report, and how each row of a table ended."""

    folder: Path
    judged: Judged
    rows: dict[str, dict[str, tuple[str, str]]]

    def held(self, name: str) -> set[str]:
        """Return the rows of a requirement that held."""
        return {row for row, (outcome, _) in self.rows[name].items() if outcome == "held"}


def run(folder: Path, issuer: str, wire: str, *options: str) -> Run:
    """Judge a reference server that trusts `issuer`, with the tokens of its two clients."""
    with reference("--port", "0", "--resource", RESOURCE, "--trust-issuer", issuer) as url:
        target, history = folder / "quenchz.toml", folder / "history.jsonl"
        named = {name: secret_variable(name) for name in ("broad", "narrow")}
        target.write_text(
            TARGET.format(url=url, wire=wire, resource=RESOURCE, issuer=issuer, **named), encoding="utf-8"
        )
        selection = options or ("--invariant", "audience", "--level", "should")
        asked = ("--target", str(target), "--profile", "smoke", "--seed", "1", "--history", str(history), *selection)
        judged = judge(folder, *asked)
    rows: dict[str, dict[str, tuple[str, str]]] = {}
    for example in read_history(history).examples:
        if example.phase == "table":
            rows.setdefault(example.requirement, {})[example.row] = example.outcome, example.detail
    return Run(folder, judged, rows)


@pytest.fixture(scope="module")
def clients() -> Generator[dict[str, str]]:
    """The secrets of both clients, in the environment of the judge."""
    environment.ensure()
    found = {name: f"{secrets.token_urlsafe(16)} of+{name}/%" for name in ("broad", "narrow")}
    with pytest.MonkeyPatch.context() as patch:
        for name, secret in found.items():
            patch.setenv(secret_variable(name), secret)
        yield found


WAYS = [("2026-07-28", "ES256"), ("2025-11-25", "RS256")]


@pytest.fixture(scope="module", params=WAYS, ids=[" ".join(way) for way in WAYS])
def runs(
    request: pytest.FixtureRequest, clients: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    """A run where ours and another resource are registered, and one where every resource is granted."""
    wire, alg = request.param
    found: dict[str, Run] = {}
    for name, resources in {"registered": [RESOURCE, OTHER], "any": []}.items():
        with start(resources, clients, any_resource=name == "any", alg=alg) as issuer:
            found[name] = run(tmp_path_factory.mktemp(name), issuer, wire)
    return found


def test_the_document_says_what_is_granted_and_what_the_reference_server_makes_of_it() -> None:
    environment.ensure()
    taken = transcribe.measured()
    assert taken == transcribe.written(), "run PYTHONPATH=tests python -m field.oidc_provider.transcribe --write"
    head, *rows = [line for line in taken.splitlines() if line.startswith("| ")]
    assert len(rows) > len(transcribe.ANY)
    audiences = [re.findall(r"`(.*?)`", row.split(" | ")[2]) for row in rows if ", a JWT" in row]
    assert all(isinstance(json.loads(audience), str) for (audience,) in audiences)
    ours = json.dumps(RESOURCE)
    for row in rows:
        if "200, " in row:
            expected = "admitted" if f"`{ours}`" in row else "401 invalid_token"
            assert row.endswith(f"| {expected} | {expected} |"), (head, row)


def test_the_right_resource_is_admitted_and_another_registered_one_is_refused(runs: dict[str, Run]) -> None:
    """Both stand in every example of QZ-AUD-11, on every request; in QZ-AUD-1 they are one row."""
    assert runs["registered"].judged.verdicts()["QZ-AUD-11"] == "pass"
    assert runs["registered"].held("QZ-AUD-1") == {"another server"}


def test_nothing_fails_and_what_needs_no_forged_token_passes(runs: dict[str, Run]) -> None:
    for found in runs.values():
        judged = found.judged
        assert judged.ids("fail", "warn", "harness-error") == set()
        assert judged.exit == 3
        assert judged.ids("pass") >= PASSES
        assert all(judged.finding(name)["controls"] >= judged.finding(name)["examples"] > 0 for name in PASSES)


def test_what_is_untestable_says_why_and_what_would_unlock_it(runs: dict[str, Run]) -> None:
    for found in runs.values():
        assert found.judged.ids("untestable") >= UNTESTABLE
        open_rows = [said for rows in found.rows.values() for outcome, said in rows.values() if outcome == "untestable"]
        assert [said for said in open_rows if not any(re.fullmatch(reason, said) for reason in REASONS)] == []
        for name in UNTESTABLE:
            reason = found.judged.finding(name)["reason"]
            assert any(re.search(rf"\d+ of \d+ examples: {expected}", reason) for expected in REASONS), reason
    assert runs["registered"].judged.ids("untestable") >= RESPELLINGS


def test_no_resource_is_never_taken_for_a_token_without_an_audience(runs: dict[str, Run]) -> None:
    outcome, said = runs["registered"].rows["QZ-AUD-4"]["absent"]
    assert outcome == "untestable"
    assert said.startswith("the authorization server gave an opaque token")


def test_every_respelling_that_is_really_granted_is_refused(runs: dict[str, Run]) -> None:
    found = runs["any"]
    assert found.judged.ids("pass") >= RESPELLINGS
    assert len(found.held("QZ-AUD-2")) == len(found.rows["QZ-AUD-2"]) > 5
    assert len(found.held("QZ-AUD-1")) > 0.75 * len(found.rows["QZ-AUD-1"])


def test_no_secret_and_no_token_stands_in_what_a_run_writes(runs: dict[str, Run], clients: dict[str, str]) -> None:
    for found in runs.values():
        texts = [path.read_text(encoding="utf-8") for path in found.folder.iterdir()]
        assert len(texts) == 3  # the target file, the history and the report
        for text in texts:
            assert "eyJ" not in text
            assert not any(secret in text or quote_plus(secret) in text for secret in clients.values())


def test_the_document_names_every_id_with_its_verdict() -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").partition(transcribe.END)[2].splitlines()
    said: dict[str, set[str]] = {"pass": set(), "untestable": set()}
    for line in lines:
        if line.startswith("| QZ-AUD-"):
            _, ids, verdict, _ = line.split("|", 3)
            numbers = re.findall(r"\d+", ids)
            said[verdict.split()[0].rstrip(",")] |= {f"QZ-AUD-{number}" for number in numbers}
    assert said == {"pass": PASSES | RESPELLINGS, "untestable": UNTESTABLE}


def test_a_wrong_secret_passes_nothing_and_is_named_by_its_variable_alone(
    clients: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in clients:
        monkeypatch.setenv(secret_variable(name), "wrong")
    with start([RESOURCE], clients) as issuer:
        judged = run(tmp_path, issuer, "2026-07-28", "--id", "QZ-AUD-11").judged
    assert (judged.exit, judged.verdicts()) == (3, {"QZ-AUD-11": "untestable"})
    said = (
        r"refuses (broad|narrow) with resource .*: invalid_client .*; correct callers\.\1\.client_id or the secret in"
    )
    assert re.search(said, judged.finding("QZ-AUD-11")["reason"])


def test_an_authorization_server_that_is_gone_passes_nothing_and_is_named(
    clients: dict[str, str], tmp_path: Path
) -> None:
    with kept_port() as port:
        judged = run(tmp_path, f"http://127.0.0.1:{port}", "2026-07-28", "--id", "QZ-AUD-11").judged
    assert (judged.exit, judged.verdicts()) == (3, {"QZ-AUD-11": "untestable"})
    reason = judged.finding("QZ-AUD-11")["reason"]
    assert re.search(r"the metadata of tokens\.issuer cannot be read: .*; correct it, or start the server", reason)

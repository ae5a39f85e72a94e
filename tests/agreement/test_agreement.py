"""The TypeScript prover, the Python law on its exchanges and the Python client say the same of a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import all_agree
from agreement.declared import DECLARED, SHARED
from agreement.serving import every_server, serving
from quenchz.agree import agree, proved
from quenchz.target_file import configured
from support.judging import WIRES

if TYPE_CHECKING:
    from pathlib import Path

ONE_PER_CLAIM = {
    "asks_whether_we_are_in_it": {"QZ-AUD-3"},
    "admits_an_absent_audience": {"QZ-AUD-4"},
    "ignores_expiry": {"QZ-AUD-6"},
    "explains_itself_to_a_proper_call": {"QZ-DEN-1"},
    "denied_calls_are_free": {"QZ-RSV-4"},
    "the_pool_is_one_short": {"QZ-RSV-3"},
    "the_last_day_is_not_counted": {"QZ-CRT-3"},
}


def wire_of(name: str) -> str:
    """Alternate the wires over the declared counterfeits."""
    return WIRES[sorted(DECLARED).index(name) % 2]


@pytest.mark.parametrize("wire", WIRES)
def test_both_clients_find_nothing_wrong_with_the_reference_server(wire: str, tmp_path: Path) -> None:
    with serving(tmp_path, "quenchz_reference") as tokens:
        found = agree(None, tokens, wire)
    assert len(found.examples) >= 10, found.text()
    assert found.agrees, found.text()
    assert {one.law for one in found.examples} == {"held"}
    assert {one.requirement for one in found.examples} == SHARED - {"QZ-AUD-2"}  # which needs an issuer (X5)
    assert set(found.checks.values()) == {"pass"}
    assert len(found.checks) >= 20


@pytest.mark.parametrize("name", sorted(ONE_PER_CLAIM))
def test_both_clients_find_the_same_fault(name: str, tmp_path: Path) -> None:
    with serving(tmp_path, "counterfeits", name) as tokens:
        found = agree(None, tokens, wire_of(name))
    assert found.agrees, found.text()
    assert found.ids("violated") >= ONE_PER_CLAIM[name]
    assert found.failing == DECLARED[name]


@pytest.mark.parametrize("name", sorted(set(DECLARED) - set(ONE_PER_CLAIM)))
def test_the_prover_fails_exactly_the_declared_checks(name: str, tmp_path: Path) -> None:
    with serving(tmp_path, "counterfeits", name) as tokens:
        found = proved(configured(None, None, tokens), tokens, wire_of(name))
    assert found.failing == DECLARED[name], found.checks


@pytest.mark.parametrize("name", ["closed_port", "server_error"])
def test_neither_client_judges_a_sentinel(name: str, tmp_path: Path) -> None:
    with every_server()["sentinel", name](tmp_path) as tokens:
        found = agree(None, tokens, WIRES[0])
    assert found.examples == ()
    assert all(found.refused), found.refused
    assert set(found.checks.values()) == {"untestable"}
    assert found.exit == 3


def test_a_server_that_only_one_client_can_judge_is_a_disagreement(tmp_path: Path) -> None:
    closed, open_ = tmp_path / "closed", tmp_path / "open"
    closed.mkdir()
    open_.mkdir()
    servers = every_server()
    with (
        servers["sentinel", "closed_port"](closed) as tokens,
        servers["reference", "quenchz_reference"](open_) as others,
    ):
        url = json.loads(others.read_text(encoding="utf-8"))["url"]
        found = agree(None, tokens, WIRES[0], again=lambda: (url, others))
    assert found.refused[1] == ""
    assert not found.agrees


def test_what_the_prover_writes_fits_the_schemas_that_both_sides_share(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    def schema(name: str) -> dict[str, Any]:
        text = (pytestconfig.rootpath / "spec" / "schemas" / f"{name}.json").read_text(encoding="utf-8")
        loaded: dict[str, Any] = json.loads(text)
        return loaded

    history, report = tmp_path / "h.jsonl", tmp_path / "r.json"
    with serving(tmp_path, "counterfeits", "names_the_scope") as tokens:
        jsonschema.validate(json.loads(tokens.read_text(encoding="utf-8")), schema("tokens-file"))
        proved(configured(None, None, tokens), tokens, WIRES[1], history=history, report=report)
    jsonschema.validate(json.loads(report.read_text(encoding="utf-8")), schema("report"))
    lines = [json.loads(line) for line in history.read_text(encoding="utf-8").splitlines()]
    assert len(lines) > 100
    for line in lines:
        jsonschema.validate(line, schema("history"))


def test_the_published_table_is_that_of_the_kept_rows_and_all_agree() -> None:
    rows = list(all_agree.kept().values())
    assert all_agree.PATH.read_text(encoding="utf-8") == all_agree.document(rows)
    assert [row.name for row in rows if not row.agree] == []
    assert len(rows) >= 35
    assert {row.checks for row in rows if row.sort in ("reference", "variant")} == {""}


def test_every_registered_server_is_among_those_that_are_compared() -> None:
    assert {sort for sort, _ in every_server()} == {"reference", "counterfeit", "variant", "sentinel", "field"}
    assert set(DECLARED) <= {name for sort, name in every_server() if sort == "counterfeit"}
    assert len(DECLARED) >= 20

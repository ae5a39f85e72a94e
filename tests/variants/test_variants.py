"""Correct servers that differ in taste fail nothing: the table of false alarms is empty."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from quenchz.cli import main
from quenchz_spec.requirement import law
from support.judging import WIRES, judge_module
from variants import Variant, variants

if TYPE_CHECKING:
    from pathlib import Path

ALL = variants()
PROFILES = {"QZ-AUD-32": "rfc9068", "QZ-AUD-33": "introspection"}
OF_A_JWT = {f"QZ-AUD-{n}" for n in (5, 14, 15, 16, 24, 29, 30, 31)}
"""What is about tokens that a resource reads itself, and about the keys that it needs for it."""
OF_A_SESSION = {"QZ-AUD-20", "QZ-AUD-28"}


def undeclared(variant: Variant, wire: str) -> set[str]:
    """Return the ids that say nothing about a variant: it does not declare what they are about."""
    profiles = variant.declares.get("profiles", [])
    found = {name for name, profile in PROFILES.items() if profile not in profiles}
    found |= OF_A_JWT if "introspection" in profiles else set()
    found |= {"QZ-AUD-3"} if variant.declares.get("audience") == "member" else set()
    return found | (OF_A_SESSION if wire == WIRES[0] else set())


def test_every_variant_says_what_its_taste_is() -> None:
    assert [name for name, variant in ALL.items() if not variant.taste.endswith(".")] == []
    assert len({variant.taste for variant in ALL.values()}) == len(ALL) >= 8


@pytest.mark.parametrize("name", sorted(ALL))
def test_an_honest_variant_fails_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath / "tests"))
    wire = WIRES[sorted(ALL).index(name) % 2]
    options = ("--protocol", wire, "--level", "should", "--profile", "smoke", "--seed", "1")
    judged = judge_module(tmp_path, "variants", name, *options, declares=ALL[name].declares)
    unsettled = {
        one: judged.finding(one)["reason"] for one in judged.ids("fail", "warn", "untestable", "harness-error")
    }
    assert unsettled == {}
    assert judged.ids("not-applicable") == undeclared(ALL[name], wire)
    assert judged.exit == 0


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", ["access_tokens_alone", "opaque_tokens"])
def test_a_declared_profile_is_tried_row_by_row(
    name: str, wire: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath / "tests"))
    ids = [one for one, profile in PROFILES.items() if profile in ALL[name].declares["profiles"]]
    # Some rows of the other two, and all of the last, are about a JWT: live and recorded, they say the same of it.
    also = ["QZ-AUD-7", "QZ-AUD-17", "QZ-AUD-16"]
    history, again = tmp_path / "history.jsonl", tmp_path / "again.json"
    options = ("--protocol", wire, "--profile", "smoke", "--seed", "1", "--history", str(history))
    selected = [word for one in (*ids, *also) for word in ("--id", one)]
    judged = judge_module(tmp_path, "variants", name, *options, *selected, declares=ALL[name].declares)
    rows = {requirement.id: len(requirement.rows) for requirement in law()}
    assert judged.ids("pass", "not-applicable") == {*ids, *also} > set(ids)
    assert [judged.finding(one)["outcomes"] for one in ids] == [{"held": rows[one]} for one in ids]
    main(["judge", str(history), "--json", str(again)])
    found = json.loads(again.read_text(encoding="utf-8"))["findings"]
    assert {one["id"]: one["outcomes"] for one in found} == {
        one: judged.finding(one)["outcomes"] for one in (*ids, *also)
    }

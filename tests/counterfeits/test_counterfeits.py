"""Every counterfeit fails the ids it declares, and nothing else of its invariant."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from counterfeits import Counterfeit, counterfeits
from quenchz_spec.requirement import law
from support.judging import WIRES, judge_module

if TYPE_CHECKING:
    from pathlib import Path

ALL = counterfeits()


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath / "tests"))


def test_every_requirement_has_a_counterfeit_that_fails_it() -> None:
    failed = {name for fake in ALL.values() for name in fake.ids}
    assert {requirement.id for requirement in law()} == failed


def test_no_two_counterfeits_share_ids_and_row() -> None:
    declared = [(fake.ids, fake.row) for fake in ALL.values()]
    assert len(set(declared)) == len(declared)


def test_every_counterfeit_names_a_row_of_its_first_id() -> None:
    rows = {requirement.id: set(requirement.rows) for requirement in law()}
    numbers = {fake.name: min(fake.ids, key=lambda i: int(i.rsplit("-", 1)[1])) for fake in ALL.values()}
    assert [fake.name for fake in ALL.values() if fake.row not in rows[numbers[fake.name]]] == []


def asked(fake: Counterfeit) -> list[str]:
    """Return the ids that a counterfeit is judged by here: those of its invariant.

    Of those that wait for seconds only what it declares; `make full` asks for all.
    """
    own = [one for one in law() if _word(one.id) == fake.invariant]
    return [one.id for one in own if not one.slow or one.id in fake.ids]


def test_every_id_is_asked_of_some_counterfeit_and_most_of_all() -> None:
    assert {name for fake in ALL.values() for name in asked(fake)} == {one.id for one in law()}
    assert {one.id for one in law() if one.slow} == {f"QZ-AUD-{n}" for n in (19, 20, 29, 31)}


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_counterfeit_fails_what_it_declares(name: str, tmp_path: Path) -> None:
    fake = ALL[name]
    # By the name and not by the place among the others, which a newcomer would change.
    wire = fake.wire or WIRES[zlib.crc32(name.encode()) % 2]
    options = ["--protocol", wire, "--level", "observe", "--profile", "smoke", "--seed", "1"]
    for one in asked(fake):
        options += ["--id", one]
    judged = judge_module(tmp_path, "counterfeits", name, *options, declares=fake.declares)
    first = min(fake.ids, key=lambda i: int(i.rsplit("-", 1)[1]))
    assert judged.ids("fail", "warn", "observed") == {i for i in fake.ids if _word(i) == fake.invariant}
    assert judged.ids("harness-error") == set()
    assert judged.exit == 1
    assert judged.finding(first)["rows_violated"][0] == fake.row
    assert judged.finding(first)["confirmed"][0] == judged.finding(first)["confirmed"][1]


def _word(name: str) -> str:
    middle = name.split("-")[1]
    return {"AUD": "audience", "DEN": "denials", "RSV": "reserves", "CRT": "certificates"}[middle]

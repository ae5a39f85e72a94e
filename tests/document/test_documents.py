"""Documents say what the code does."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest

import documents
from quenchz_spec.requirement import LAW, law

if TYPE_CHECKING:
    from pathlib import Path

MADE = documents.documents()


@pytest.mark.parametrize("name", sorted(MADE))
def test_a_generated_document_is_current(name: str) -> None:
    assert (documents.ROOT / name).read_text(encoding="utf-8") == MADE[name], "run make docs"


def test_the_frozen_set_of_ids_is_the_law() -> None:
    frozen = tomllib.loads((documents.ROOT / "spec" / "requirements" / f"{LAW}.toml").read_text(encoding="utf-8"))
    assert frozen["ids"] == [requirement.id for requirement in law()]


def test_the_readme_states_the_counts_of_the_series() -> None:
    assert re.findall(r"[\d,]+(?= \|$)", documents.region_counts(), re.MULTILINE) == ["7,140", "7,078", "62"]


def test_the_payload_carries_only_the_time_of_the_snapshot() -> None:
    carried = [line.split("|")[3].strip() for line in documents.region_times().splitlines()[2:]]
    assert carried == ["no", "yes", "no"]


def test_the_quiet_caller_gets_its_reserve_only_from_the_reserve_ledger() -> None:
    counts = [re.findall(r"(\d+) admitted", line) for line in documents.region_ledgers().splitlines()[2:]]
    assert counts == [["15", "5"], ["25", "0"]]


def test_every_link_of_a_document_leads_somewhere() -> None:
    found: list[Path] = []
    for document in sorted(documents.ROOT.glob("*.md")):
        targets = re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8"))
        found += [document.parent / target for target in targets]
    assert found
    assert [str(path) for path in found if not path.exists()] == []


def test_the_readme_names_every_exit_code() -> None:
    from quenchz.verdicts import Exit

    text = (documents.ROOT / "README.md").read_text(encoding="utf-8")
    assert [int(code) for code in re.findall(r"^\| (\d) \| ", text, re.MULTILINE)] == [
        int(code) for code in sorted(Exit)
    ]

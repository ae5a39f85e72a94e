"""Documents say what the code does."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest

import documents
from quenchz_spec import LAW
from quenchz_spec.requirement import law

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


def commands() -> list[list[str]]:
    """Return the command lines in the code blocks of the README."""
    text = (documents.ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```\n(.*?)```", text, re.DOTALL)
    lines = [line.split("#")[0].split() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and line[0] in ("quenchz", "make", "pytest")]


def test_every_command_of_the_readme_is_one() -> None:
    from quenchz.cli import parser

    makefile = (documents.ROOT / "Makefile").read_text(encoding="utf-8")
    found = commands()
    assert {line[0] for line in found} == {"quenchz", "make", "pytest"}
    for line in found:
        if line[0] == "make":
            assert f"\n{line[1]}:" in makefile
        elif line[:2] == ["quenchz", "prove"]:
            continue  # its options are the prover's own, which its tests cover
        elif line[0] == "quenchz":
            assert parser().parse_args(line[1:]).command == line[1]


def test_the_readme_asks_for_the_python_that_the_project_asks_for() -> None:
    project = tomllib.loads((documents.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (documents.ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Python {project['requires-python'].removeprefix('>=')} or later" in text


def test_the_readme_states_each_decision_with_its_cost() -> None:
    text = (documents.ROOT / "README.md").read_text(encoding="utf-8")
    decisions = text.partition("## The four decisions")[2].partition("\n## ")[0].split("\n- ")[1:]
    assert len(decisions) == 4
    assert all(re.search(r"\bCosts?: ", decision) for decision in decisions)

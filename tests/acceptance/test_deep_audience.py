"""Audience equality at the deepest profile: it passes, and every row of every attack table was tried."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from quenchz_spec.requirement import Invariant, law
from support.judging import WIRES, judge

if TYPE_CHECKING:
    from pathlib import Path

UNDECLARED = {"QZ-AUD-32", "QZ-AUD-33"}
"""Profiles, off unless declared; tests/variants has servers that declare them, and counts their rows."""


@pytest.mark.parametrize("wire", WIRES)
def test_the_reference_server_passes_and_every_row_was_tried(wire: str, tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    options = ("--invariant", "audience", "--profile", "deep", "--protocol", wire, "--history", str(history))
    found = judge(tmp_path, "--reference", *options)
    sessions_only = {"QZ-AUD-20", "QZ-AUD-28"} if wire == WIRES[0] else set[str]()
    assert found.exit == 0
    assert found.ids("not-applicable") == UNDECLARED | sessions_only
    tried: dict[str, set[str]] = {}
    with history.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith('{"kind":"example"') and (one := json.loads(line))["phase"] == "table":
                tried.setdefault(one["requirement"], set()).add(one["row"])
    requirements = [requirement for requirement in law() if requirement.invariant is Invariant.AUDIENCE]
    assert len(requirements) >= 33
    assert {r.id: set(r.rows) - tried.get(r.id, set()) for r in requirements} == {r.id: set() for r in requirements}
    drawn = {r.id: found.finding(r.id)["recipes"] for r in requirements}
    # The written rows alone are fewer: something was drawn beyond them, where there is something to draw.
    for name in ("QZ-AUD-1", "QZ-AUD-3", "QZ-AUD-4", "QZ-AUD-6", "QZ-AUD-7"):
        rows = next(len(r.rows) for r in requirements if r.id == name)
        assert drawn[name] > rows, (name, drawn[name])

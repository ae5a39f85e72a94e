"""A budget that the judge does not have to itself is judged by bounds; exact counts are then untestable."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from quenchz import reference
from support.judging import judge

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from quenchz_spec.subject import Target

COUNTED = {"QZ-RSV-4", "QZ-RSV-5", "QZ-RSV-6", "QZ-RSV-7"}


def test_exact_counts_are_untestable_on_a_shared_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = reference.reference_target

    def shared() -> Target:
        target = honest()
        assert target.budget is not None
        return dataclasses.replace(target, budget=dataclasses.replace(target.budget, exclusive=False))

    monkeypatch.setattr(reference, "reference_target", shared)
    found = judge(tmp_path, "--reference", "--invariant", "reserves", "--profile", "smoke", "--seed", "1")
    assert found.ids("untestable") == COUNTED
    assert found.ids("pass") == set(found.verdicts()) - COUNTED
    assert all("exclusive = true" in found.finding(name)["reason"] for name in COUNTED)
    assert found.exit == 3

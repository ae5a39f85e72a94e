"""Correct servers that differ in taste fail nothing: the table of false alarms is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.judging import WIRES, judge_module
from variants import variants

if TYPE_CHECKING:
    from pathlib import Path

ALL = variants()


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
    judged = judge_module(tmp_path, "variants", name, *options)
    unsettled = {
        one: judged.finding(one)["reason"] for one in judged.ids("fail", "warn", "untestable", "harness-error")
    }
    assert unsettled == {}
    assert judged.ids("not-applicable") == set()
    assert judged.exit == 0

"""The TypeScript prover, the Python law on its exchanges and the Python client say the same of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agreement.serving import serving
from quenchz.agree import agree
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


@pytest.mark.parametrize("wire", WIRES)
def test_both_clients_find_nothing_wrong_with_the_reference_server(wire: str, tmp_path: Path) -> None:
    with serving(tmp_path, "quenchz_reference") as tokens:
        found = agree(None, tokens, wire)
    assert len(found.examples) >= 10, found.text()
    assert [one for one in found.examples if not one.agrees] == [], found.text()
    assert {one.law for one in found.examples} == {"held"}


@pytest.mark.parametrize("name", sorted(ONE_PER_CLAIM))
def test_both_clients_find_the_same_fault(name: str, tmp_path: Path) -> None:
    wire = WIRES[sorted(ONE_PER_CLAIM).index(name) % 2]
    with serving(tmp_path, "counterfeits", name) as tokens:
        found = agree(None, tokens, wire)
    assert [one for one in found.examples if not one.agrees] == [], found.text()
    assert ONE_PER_CLAIM[name] <= {one.requirement for one in found.examples if one.law == "violated"}

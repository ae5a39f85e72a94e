"""The law is well-formed: ids, names, norms, costs, controls and attack tables."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import strategies as st

from quenchz_spec import norms
from quenchz_spec.requirement import Invariant, LawError, Level, Norm, Requirement, Row, law, requirement

LAW = law()
ARTICLES = ("a", "an", "the", "every", "no", "only", "changing", "others", "invalid", "splitting", "expected", "retry")
NOT_FACTS = re.compile(r"(^|_)(should|must|test|tests|check|checks|verify|verifies|ensure|ensures|works)(_|$)")


def of(requirement: Requirement) -> str:
    return requirement.id


def test_every_id_is_unique_and_counts_on_within_its_invariant() -> None:
    assert [n for n, times in Counter(r.id for r in LAW).items() if times > 1] == []
    for invariant in Invariant:
        numbers = [r.number for r in LAW if r.invariant is invariant]
        assert numbers == list(range(1, len(numbers) + 1)), f"{invariant.word}: an id is missing or out of order"
        assert len(numbers) >= 6


@pytest.mark.parametrize("requirement", LAW, ids=of)
def test_an_id_has_the_one_form(requirement: Requirement) -> None:
    assert re.fullmatch(r"QZ-(AUD|DEN|RSV|CRT)-[1-9][0-9]*", requirement.id)


@pytest.mark.parametrize("requirement", LAW, ids=of)
def test_a_name_states_a_fact(requirement: Requirement) -> None:
    name = requirement.name.removeprefix("test_")
    assert name != requirement.name
    assert name.split("_")[0] in ARTICLES
    assert not NOT_FACTS.search(name)
    assert len(name.split("_")) >= 4


def test_no_two_requirements_say_the_same() -> None:
    for texts in ([r.claim for r in LAW], [r.name for r in LAW]):
        assert [text for text, times in Counter(texts).items() if times > 1] == []


@pytest.mark.parametrize("requirement", LAW, ids=of)
def test_a_requirement_states_claim_norm_cost_and_control(requirement: Requirement) -> None:
    assert re.fullmatch(r"[A-Z].{20,}\.", requirement.claim)
    assert not re.search(r"\bshould\b", requirement.claim)
    assert len(requirement.norm.quote) > 20
    assert requirement.norm.source
    assert requirement.cost.endswith(".")
    assert requirement.control.strip()
    assert (requirement.check.__doc__ or "").strip()


@pytest.mark.parametrize("requirement", LAW, ids=of)
def test_a_must_quotes_a_standard_that_says_must(requirement: Requirement) -> None:
    ours = requirement.norm.source == norms.ours("").source
    if requirement.level is Level.MUST:
        assert not ours
        assert "MUST" in requirement.norm.quote
    if requirement.contrary is not None:
        assert requirement.level is not Level.MUST
        assert requirement.contrary.source != norms.ours("").source


@pytest.mark.parametrize("requirement", LAW, ids=of)
def test_an_attack_table_has_rows_that_differ(requirement: Requirement) -> None:
    assert requirement.rows
    words = [row.words for row in requirement.rows.values()]
    assert len(set(words)) == len(words)
    assert all(word and not word.endswith(".") for word in words)
    values = [repr(row.value) for row in requirement.rows.values()]
    assert len(set(values)) == len(values), "two rows attack with the same"


@pytest.mark.parametrize("requirement", LAW, ids=of)
def test_a_row_has_the_verdicts_of_its_level(requirement: Requirement) -> None:
    for name, row in requirement.rows.items():
        assert row.must, name
        assert row.quenchz, name
        if requirement.level is Level.MUST:
            assert row.must != "either", name
        # What only we demand is something that the norms leave open.
        if requirement.level is Level.QUENCHZ:
            assert row.must == "either", name


def test_every_quoted_norm_is_used() -> None:
    quoted = {name for name, value in vars(norms).items() if isinstance(value, Norm)}
    used = {id(n) for r in LAW for n in (r.norm, r.contrary) if n is not None}
    assert {name for name in quoted if id(getattr(norms, name)) not in used} == set()


def a_law(name: str = "QZ-AUD-900", level: Level = Level.QUENCHZ, changes: dict[str, Any] | None = None) -> Any:
    texts: dict[str, Any] = {
        "claim": "c",
        "cost": "c",
        "control": "c",
        "norm": Norm("s", "q"),
        "rows": {},
        "drawn": st.none(),
    }
    return requirement(name, level=level, **{**texts, **(changes or {})})


@pytest.mark.parametrize("text", ["claim", "cost", "control"])
def test_a_requirement_without_a_text_is_no_law(text: str) -> None:
    with pytest.raises(LawError, match=f"QZ-AUD-900 states no {text}"):
        a_law(changes={text: " "})


def test_a_must_on_which_the_norms_permit_both_is_no_law() -> None:
    with pytest.raises(LawError, match="permit both outcomes"):
        a_law(level=Level.MUST, changes={"rows": {"a": Row("a", 1, must="either")}})


def test_an_id_that_is_taken_is_no_law() -> None:
    def test_something_else(subject: object, row: object) -> None:
        """A property."""

    with pytest.raises(LawError, match="is the id of both"):
        a_law("QZ-AUD-1")(test_something_else)
    assert law() == LAW

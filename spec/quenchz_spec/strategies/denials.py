"""What is asked for when a denial is provoked: which hidden thing, which invented name beside it, which arguments."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from quenchz_spec.codec import plain
from quenchz_spec.requirement import Row


@plain
class ArgumentsForm(enum.Enum):
    """How the arguments of a call relate to the hidden thing's own schema."""

    NONE = "no arguments"
    VALID = "arguments that its schema accepts"
    MISSING = "valid arguments without the required ones"
    WRONG_TYPE = "valid arguments with every value of another type"
    GIVEN = "drawn arguments"


@plain
@dataclass(frozen=True, kw_only=True)
class Denial:
    """One pair of questions: the hidden thing by its place in the hidden set, and a name invented beside it.

    `thing` counts round the sorted hidden set. `invented` is the name to ask for beside it; left empty, one is made up
    from `serial`. `after_use` asks after the broad caller has listed, so that state which
    another caller leaves behind is part of the question.
    """

    thing: int = 0
    serial: int = 0
    invented: str = ""
    form: ArgumentsForm = ArgumentsForm.NONE
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    after_use: bool = False


_KEYS = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8)
_VALUES = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text("abcxyz019 -", max_size=8)


def denials(things: int = 4) -> st.SearchStrategy[Denial]:
    """Return denials over `things` places of the hidden set, with arguments of every form."""
    given = st.builds(
        Denial,
        thing=st.integers(0, things - 1),
        serial=st.integers(100, 999),
        form=st.just(ArgumentsForm.GIVEN),
        arguments=st.dictionaries(_KEYS, _VALUES, max_size=4),
        after_use=st.booleans(),
    )
    formed = st.builds(
        Denial,
        thing=st.integers(0, things - 1),
        serial=st.integers(100, 999),
        form=st.sampled_from([form for form in ArgumentsForm if form is not ArgumentsForm.GIVEN]),
        after_use=st.booleans(),
    )
    return formed | given


def rows(things: int, *forms: ArgumentsForm) -> dict[str, Row]:
    """Return the written table: each of the first `things` hidden things with each form, then once after use."""
    table: dict[str, Row] = {}
    for thing in range(things):
        for form in forms:
            words = f"hidden thing {thing + 1}, {form.value}"
            table[f"{thing + 1}, {form.name.lower()}"] = Row(
                words, Denial(thing=thing, serial=thing, form=form), must="either", quenchz="as nonexistent"
            )
    table["1, after use"] = Row(
        "hidden thing 1, after the broad caller has listed it",
        Denial(after_use=True, serial=7),
        must="either",
        quenchz="as nonexistent",
    )
    return table

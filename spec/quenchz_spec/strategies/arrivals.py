"""Arrival traces: who calls, for what, how often, and the pauses between."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from hypothesis import strategies as st

from quenchz_spec.codec import plain


@plain
class What(enum.Enum):
    """What a call asks for."""

    GRANTED = "a granted call"
    HIDDEN = "a call of a hidden tool"
    NONEXISTENT = "a call of a tool that never existed"
    INVALID = "a granted tool called with invalid arguments"
    HIDDEN_PROMPT = "a hidden prompt"
    NONEXISTENT_RESOURCE = "a resource that never existed"


@plain
@dataclass(frozen=True)
class Calls:
    """`times` calls in a row by one caller. `caller` counts round the callers that have a reserve, the narrow first.

    `times` is relative: `reserves` times the caller's reserve plus `pools` times the pool plus `more`.
    """

    caller: int = 0
    reserves: int = 0
    pools: int = 0
    more: int = 0
    what: What = What.GRANTED


@plain
@dataclass(frozen=True)
class Pause:
    """A pause, in hundredths of the window."""

    hundredths: int


Step = Calls | Pause


def floods(caller: int) -> Calls:
    """Return more calls than a caller can ever have admitted on an untouched budget."""
    return Calls(caller, reserves=1, pools=1, more=3)


def arrival_traces() -> st.SearchStrategy[tuple[Step, ...]]:
    """Return traces of bursts around the declared numbers, with short pauses.

    Bursts are drawn relative to the reserve and the pool: short random lists never spend a budget, so they show
    nothing.
    """
    bursts = st.builds(
        Calls,
        caller=st.integers(0, 2),
        reserves=st.integers(0, 1),
        pools=st.integers(0, 1),
        more=st.integers(2, 3),
        what=st.sampled_from([What.GRANTED, What.GRANTED, What.NONEXISTENT, What.HIDDEN]),
    )
    pauses = st.builds(Pause, st.integers(1, 20))
    # A trace begins with a burst of two calls or more: the first is the control, the second is judged.
    later = st.lists(st.one_of(bursts, bursts, bursts, pauses), max_size=5)
    return st.builds(_together, bursts, later)


def _together(first: Step, later: list[Step]) -> tuple[Step, ...]:
    return (first, *later)

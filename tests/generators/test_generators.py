"""What the law draws is plain data that can be replayed, and reaches what it is drawn for."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from quenchz_spec.codec import NotPlainDataError, decode, encode
from quenchz_spec.discovery import concrete, invented
from quenchz_spec.outcomes import UntestableError
from quenchz_spec.requirement import Requirement, law
from quenchz_spec.schemas import arguments_for, valid_arguments
from quenchz_spec.strategies.arrivals import Calls, Pause, Step, What, arrival_traces, floods
from quenchz_spec.strategies.denials import ArgumentsForm, Denial, denials
from quenchz_spec.strategies.windows import Split, Window, splits, windows
from quenchz_spec.test_certificates import SPLITS, WINDOWS

if TYPE_CHECKING:
    from collections.abc import Callable

FAST = settings(max_examples=200, deadline=None, database=None, phases=[Phase.generate])
SEARCH = settings(FAST, max_examples=5000)
LAW = law()


def same(requirement: Requirement) -> str:
    return requirement.id


# --- everything -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requirement", LAW, ids=same)
def test_every_drawn_value_comes_back_from_a_history(requirement: Requirement) -> None:
    @FAST
    @given(requirement.drawn)
    def holds(row: Any) -> None:
        text = json.dumps(encode(row))
        again = decode(json.loads(text))
        assert again == row
        assert type(again) is type(row)

    holds()


@pytest.mark.parametrize("requirement", LAW, ids=same)
def test_every_written_row_comes_back_from_a_history(requirement: Requirement) -> None:
    for name, row in requirement.rows.items():
        again = decode(json.loads(json.dumps(encode(row.value))))
        assert (name, again, type(again)) == (name, row.value, type(row.value))


@settings(FAST)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text()
        | st.dates()
        | st.sampled_from(What),
        lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.just("!"), inner),
        max_leaves=8,
    )
)
def test_plain_data_of_any_shape_comes_back(value: Any) -> None:
    again = decode(json.loads(json.dumps(encode(value))))
    assert again == value
    assert repr(again) == repr(value)  # equal is not enough: True == 1, and (1,) may not come back as [1]


@pytest.mark.parametrize(
    "value",
    [object(), {1: 2}, {1, 2}, dt.datetime(2026, 1, 1, tzinfo=dt.UTC), range(3), Any, b"bytes"],
    ids=lambda v: type(v).__name__,
)
def test_what_could_not_be_replayed_is_refused(value: Any) -> None:
    with pytest.raises(NotPlainDataError):
        encode([{"deep": (value,)}])


# --- windows --------------------------------------------------------------------------------------------------------

LEAP_DAYS = [dt.date(year, 2, 29) for year in range(1992, 2060, 4)]
WANTED: dict[str, Callable[[Window], bool]] = {
    "a leap day": lambda w: any(w.since <= day <= w.until for day in LEAP_DAYS),
    "one day": lambda w: w.days == 1,
    "one closed day": lambda w: w.days == 1 and w.since.weekday() >= 5,
    "a weekend alone": lambda w: w.days == 2 and w.since.weekday() == 5,
    "the turn of a year": lambda w: w.since.year < w.until.year and w.days < 40,
    "before the series": lambda w: w.until < dt.date(1999, 1, 4),
    "across the start of the series": lambda w: w.since < dt.date(1999, 1, 4) <= w.until,
    "the future": lambda w: w.since > dt.date(2026, 12, 31),
    "more than a year": lambda w: w.days > 366,
    "beyond what was checked": lambda w: w.since.year >= 2050,
}


@pytest.mark.parametrize("name", sorted(WANTED))
def test_windows_reach_every_sort_of_day(name: str) -> None:
    assert WANTED[name](find(windows(), WANTED[name], settings=SEARCH))


@settings(FAST)
@given(windows())
def test_no_window_is_reversed_or_too_long(drawn: Window) -> None:
    assert 1 <= drawn.days <= 800
    assert dt.date(1990, 1, 1) <= drawn.since <= drawn.until <= dt.date(2062, 1, 1)


@settings(FAST)
@given(splits() | st.sampled_from([row.value for row in SPLITS.values()]))
def test_every_split_lies_inside_its_window(drawn: Split) -> None:
    middle = drawn.window.since + dt.timedelta(drawn.after)
    assert drawn.window.since < middle <= drawn.window.until


@pytest.mark.parametrize("name", ["at the start", "at the end"])
def test_splits_reach_both_edges(name: str) -> None:
    def is_there(split: Split) -> bool:
        return split.after == (1 if name == "at the start" else split.window.days - 1) and split.window.days > 3

    assert find(splits(), is_there, settings=SEARCH)


def test_the_written_windows_are_windows() -> None:
    assert [name for name, row in WINDOWS.items() if not 1 <= row.value.days <= 4000] == []
    assert any(day.weekday() == 5 for day in LEAP_DAYS if WINDOWS["leap day on a Saturday"].value.since < day)


# --- arrivals -------------------------------------------------------------------------------------------------------

RESERVE, POOL, CALLERS = 5, 10, 3
"""The reference's own numbers; a trace is written relative to them."""


def calls(trace: tuple[Step, ...]) -> list[tuple[int, int]]:
    """Return the caller and the number of calls of each burst."""
    return [(s.caller, s.reserves * RESERVE + s.pools * POOL + s.more) for s in trace if isinstance(s, Calls)]


def of_one(trace: tuple[Step, ...]) -> int:
    return max(sum(n for caller, n in calls(trace) if caller == c) for c in range(CALLERS))


TRACES: dict[str, Callable[[tuple[Step, ...]], bool]] = {
    "one caller asks for more than its reserve and the pool": lambda t: of_one(t) > RESERVE + POOL,
    "all ask for more than the budget": lambda t: sum(n for _, n in calls(t)) > CALLERS * RESERVE + POOL,
    "a second caller calls after the first has spent the pool": lambda t: (
        len(calls(t)) >= 2 and calls(t)[0][1] > RESERVE + POOL and calls(t)[1][0] != calls(t)[0][0]
    ),
    "three callers take part": lambda t: {c for c, _ in calls(t)} == {0, 1, 2},
    "denied calls spend": lambda t: any(isinstance(s, Calls) and s.what is What.HIDDEN for s in t),
    "a pause between bursts": lambda t: any(isinstance(s, Pause) for s in t[1:-1]),
}


@pytest.mark.parametrize("name", sorted(TRACES))
def test_arrival_traces_reach_beyond_the_declared_numbers(name: str) -> None:
    assert TRACES[name](find(arrival_traces(), TRACES[name], settings=SEARCH))


@settings(FAST)
@given(arrival_traces())
def test_every_trace_has_a_control_and_a_probe(drawn: tuple[Step, ...]) -> None:
    assert isinstance(drawn[0], Calls)
    assert calls(drawn)[0][1] >= 2
    assert sum(s.hundredths for s in drawn if isinstance(s, Pause)) <= 100


def test_a_flood_is_more_than_one_caller_can_have_admitted() -> None:
    assert calls((floods(1),)) == [(1, RESERVE + POOL + 3)]


# --- denials --------------------------------------------------------------------------------------------------------

NAMES = st.text("abcxyzABC0129_-./{}: ", min_size=2, max_size=20) | st.sampled_from(
    ["full_history", "rates://cache/state", "rates://history/USD", "db://a", "x1", "urn:isbn:0451450523"]
)


@settings(FAST)
@given(NAMES, st.integers(0, 999), st.frozensets(NAMES, max_size=5))
def test_an_invented_name_looks_like_the_real_one_and_is_none(like: str, serial: int, taken: frozenset[str]) -> None:
    try:
        name = invented(like, serial, taken)
    except UntestableError:
        assert not any(letter.isalnum() for letter in like.partition("://")[2] or like)
        return
    assert name != like
    assert name not in taken
    assert len(name) == len(like)
    scheme, separator, _ = like.partition("://")
    if separator and scheme and scheme.islower() and scheme.isalnum():
        assert name.startswith(scheme + separator)
    for ours, theirs in zip(name, like, strict=True):
        assert ours == theirs or (ours.isdigit(), ours.isupper(), ours.islower()) == (
            theirs.isdigit(),
            theirs.isupper(),
            theirs.islower(),
        )
    assert invented(like, serial, taken) == name


def test_a_hundred_invented_names_of_a_long_name_are_all_different() -> None:
    assert len({invented("full_history", serial) for serial in range(100)}) == 100


def test_a_name_that_has_no_neighbour_is_untestable_and_says_what_to_do() -> None:
    with pytest.raises(UntestableError, match="longer names"):
        invented("1", 0, frozenset("0123456789"))
    with pytest.raises(UntestableError):
        invented("://", 0)


def test_a_template_is_made_concrete_and_nothing_else_is() -> None:
    assert concrete("resource_templates", "db://{table}/{row}") == "db://USD/USD"
    assert concrete("resources", "db://{table}") == "db://{table}"


@pytest.mark.parametrize("form", list(ArgumentsForm))
def test_denials_are_drawn_with_arguments_of_every_form(form: ArgumentsForm) -> None:
    assert find(denials(), lambda denial: denial.form is form, settings=SEARCH).form is form


@pytest.mark.parametrize("place", range(4))
def test_denials_reach_every_place_before_and_after_use(place: int) -> None:
    for wanted in ((place, True), (place, False)):
        found = find(denials(), lambda d, wanted=wanted: (d.thing, d.after_use) == wanted, settings=SEARCH)  # type: ignore[misc]
        assert found.form in ArgumentsForm


@settings(FAST)
@given(denials())
def test_given_arguments_belong_to_the_given_form_alone(drawn: Denial) -> None:
    assert drawn.form is ArgumentsForm.GIVEN or drawn.arguments == {}
    assert drawn.serial >= 100  # below, the written rows and the mask have theirs


SCHEMA = {
    "type": "object",
    "properties": {
        "currency": {"type": "string", "examples": ["CHF"]},
        "day": {"type": "string", "format": "date"},
        "count": {"type": "integer", "minimum": 3},
        "kind": {"enum": ["a", "b"]},
        "fixed": {"const": 7},
        "maybe": {"type": ["boolean", "null"]},
    },
    "required": ["currency", "count"],
}


def test_arguments_fit_a_schema_or_miss_it_as_their_form_says() -> None:
    import jsonschema

    def fits(arguments: Any) -> bool:
        return not list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(arguments))

    assert valid_arguments(SCHEMA) == {
        "currency": "CHF",
        "day": "2026-04-01",
        "count": 3,
        "kind": "a",
        "fixed": 7,
        "maybe": True,
    }
    forms = {form: arguments_for(SCHEMA, form, {"x": 1}) for form in ArgumentsForm}
    assert forms[ArgumentsForm.GIVEN] == {"x": 1}
    assert {form for form, arguments in forms.items() if fits(arguments)} == {ArgumentsForm.VALID}


@pytest.mark.parametrize("schema", [{}, {"properties": None}, {"properties": []}, {"type": 7}])
def test_a_schema_that_a_server_got_wrong_gives_no_arguments(schema: dict[str, Any]) -> None:
    assert valid_arguments(schema) == {}

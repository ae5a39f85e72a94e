"""Gate 4: every requested day is accounted for exactly once and under the right cause, whatever window and clock."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from functools import cache
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import holidays
import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quenchz_reference.certificates import (
    ANSWER_SCHEMA,
    MAX_CALENDAR_DAYS,
    Answer,
    Certificate,
    Certifier,
    DayClass,
    Evidence,
    Window,
    WindowError,
)
from quenchz_reference.series import SERIES, Row, Rows, bounds_of, parse_csvdata
from quenchz_reference.target_calendar import CHECKED_UNTIL, due_at, is_closed, next_business_day
from quenchz_reference.vendor import CassetteVendor, cassette_folder

README_ANSWER = Path(__file__).with_name("answer.2026-03-30_2026-04-10.json")
CAPTURED = datetime(2026, 8, 26, 7, 43, 14, tzinfo=UTC)
AS_OF = datetime(2026, 8, 26, 12, tzinfo=UTC)
ALWAYS = ["target_closed", "not_yet_published", "no_such_observation", "before_the_series"]
NOTHING = Rows("USD", ())
VALIDATOR: Any = jsonschema.Draft202012Validator(ANSWER_SCHEMA, format_checker=jsonschema.FormatChecker())

utc_instants = st.integers(0, 32 * 366 * 24 * 60).map(
    lambda minutes: datetime(1998, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
)
window_days = st.dates(date(1990, 1, 1), date(2100, 12, 31))


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Windows of a day to decades, wherever, often round the ends of the series and of the calendar."""
    first = draw(
        window_days | st.sampled_from([date(1998, 12, 30), date(2000, 2, 29), date(2026, 8, 20), CHECKED_UNTIL])
    )
    return Window(first, first + timedelta(days=draw(st.integers(0, 40) | st.integers(0, 12_000))))


@cache
def full_history() -> Rows:
    return anyio.run(CassetteVendor().rows, "USD")


def window(first: str, last: str) -> Window:
    return Window(date.fromisoformat(first), date.fromisoformat(last))


def absent(
    first: str,
    last: str,
    rows: Rows = NOTHING,
    currency: str = "USD",
    as_of: datetime = AS_OF,
    captured_at: datetime | None = None,
) -> dict[str, int]:
    """What is absent in a window, without the causes that are zero."""
    certificate = Certifier().certify(window(first, last), rows, bounds_of(currency), as_of, captured_at)
    return {cause: days for cause, days in certificate.absent.items() if days}


# --- The answer ------------------------------------------------------------------------------------------------------


def test_the_answer_for_easter_2026_is_the_one_in_the_readme_byte_for_byte() -> None:
    easter = Window(date(2026, 3, 30), date(2026, 4, 10))
    answer = Certifier().answer(easter, full_history(), bounds_of("USD"), AS_OF, CAPTURED)
    assert answer.to_text().encode() == README_ANSWER.read_bytes()
    assert json.dumps(answer.to_json()) == json.dumps(json.loads(README_ANSWER.read_bytes()))


@pytest.mark.parametrize("kind", [Certificate, Answer, Window, Evidence])
def test_no_field_of_the_result_has_a_default(kind: type[Any]) -> None:
    for field in dataclasses.fields(kind):
        assert field.default is dataclasses.MISSING, field.name
        assert field.default_factory is dataclasses.MISSING, field.name


def test_observations_without_a_certificate_are_no_answer() -> None:
    with pytest.raises(TypeError, match="certificate"):
        Answer(observations=())  # type: ignore[call-arg]


def test_the_schema_is_valid_and_requires_the_certificate_with_all_it_always_has() -> None:
    jsonschema.Draft202012Validator.check_schema(ANSWER_SCHEMA)
    sample = json.loads(README_ANSWER.read_bytes())
    VALIDATOR.validate(sample)
    for block in (sample, sample["coverage"], sample["coverage"]["absent"]):
        for name in list(block):
            value = block.pop(name)
            assert not VALIDATOR.is_valid(sample), f"valid without {name}"
            block[name] = value
    VALIDATOR.validate(sample)


# --- The arithmetic, for all windows ---------------------------------------------------------------------------------


def check_identities(answer: Answer, asked: Window) -> None:
    content = answer.to_json()
    VALIDATOR.validate(content)
    coverage, causes = content["coverage"], content["coverage"]["absent"]
    days = [day for day, _ in content["observations"]]
    assert coverage["requested_calendar_days"] == (asked.last - asked.first).days + 1
    assert coverage["requested_calendar_days"] == coverage["delivered_observations"] + sum(causes.values())
    assert coverage["expected_observations"] == coverage["delivered_observations"] + causes["no_such_observation"]
    assert coverage["delivered_observations"] == len(days)
    assert (coverage["delivered_from"], coverage["delivered_to"]) == ((days[0], days[-1]) if days else (None, None))
    assert coverage["window_still_open"] == (causes["not_yet_published"] + causes.get("overdue", 0) > 0)
    assert list(causes)[:4] == ALWAYS
    assert all(causes[cause] > 0 for cause in list(causes)[4:])


@settings(deadline=None)
@given(asked=windows(), as_of=utc_instants, snapshot=st.booleans(), currency=st.sampled_from(sorted(SERIES)))
@example(Window(date(1990, 1, 1), date(2100, 12, 31)), AS_OF, True, "USD")
@example(Window(date.max - timedelta(days=3), date.max), AS_OF, False, "USD")
@example(Window(date.min, date.min), AS_OF, True, "ISK")
def test_every_requested_day_is_accounted_for_exactly_once(
    asked: Window, as_of: datetime, snapshot: bool, currency: str
) -> None:
    rows = full_history() if currency == "USD" else Rows(currency, ())
    captured_at = CAPTURED if snapshot else None
    check_identities(Certifier().answer(asked, rows, bounds_of(currency), as_of, captured_at), asked)


@settings(deadline=None)
@given(asked=windows(), as_of=utc_instants, at=st.floats(0, 1))
def test_splitting_a_window_adds_up(asked: Window, as_of: datetime, at: float) -> None:
    if asked.first == asked.last:
        return
    middle = asked.first + timedelta(days=int(at * ((asked.last - asked.first).days - 1)))
    parts = [
        Certifier().answer(part, full_history(), bounds_of("USD"), as_of, CAPTURED)
        for part in (Window(asked.first, middle), Window(middle + timedelta(days=1), asked.last))
    ]
    whole = Certifier().answer(asked, full_history(), bounds_of("USD"), as_of, CAPTURED)
    certificates = [part.certificate for part in parts]
    assert whole.observations == parts[0].observations + parts[1].observations
    assert whole.certificate.expected_observations == sum(part.expected_observations for part in certificates)
    assert whole.certificate.window_still_open == any(part.window_still_open for part in certificates)
    causes = sum((Counter(dict(part.absent)) for part in certificates), Counter[str]())
    assert {cause: days for cause, days in whole.certificate.absent.items() if days} == dict(+causes)


OPEN_BY_ANOTHER_CALENDAR = frozenset(
    day
    for n in range((CHECKED_UNTIL - date(1999, 1, 4)).days + 1)
    if (day := date(1999, 1, 4) + timedelta(days=n)).weekday() < 5
    and day not in holidays.financial_holidays("ECB", years=day.year)
)


@settings(deadline=None, max_examples=50)
@given(asked=windows(), as_of=utc_instants)
def test_causes_agree_with_a_count_over_another_calendar_with_nothing_delivered(asked: Window, as_of: datetime) -> None:
    days = list(asked.days())
    covered = [day for day in days if date(1999, 1, 4) <= day <= CHECKED_UNTIL]
    business = [day for day in covered if day in OPEN_BY_ANOTHER_CALENDAR]
    dues = {day: due_at(day) for day in business}
    late = [day for day in business if dues[day] <= as_of]
    expected = {
        "before_the_series": sum(day < date(1999, 1, 4) for day in days),
        "unknown": sum(day > CHECKED_UNTIL for day in days),
        "target_closed": len(covered) - len(business),
        "not_yet_published": len(business) - len(late),
        # Only the newest due rate can be overdue: the ones before it have a due successor.
        "overdue": int(bool(late) and due_at(next_business_day(late[-1])) > as_of),
    }
    expected["no_such_observation"] = len(late) - expected["overdue"]
    certificate = Certifier().certify(asked, NOTHING, bounds_of("USD"), as_of, None)
    assert dict(certificate.absent) == {cause: n for cause, n in expected.items() if n or cause in ALWAYS}


def test_the_whole_real_series_has_no_genuine_gap() -> None:
    life = Window(date(1999, 1, 4), date(2026, 8, 25))
    certificate = Certifier().certify(life, full_history(), bounds_of("USD"), AS_OF, CAPTURED)
    assert certificate.requested_calendar_days == 10_096
    assert certificate.expected_observations == certificate.delivered_observations == 7_078
    assert dict(certificate.absent) == {
        "target_closed": 3_018,
        "not_yet_published": 0,
        "no_such_observation": 0,
        "before_the_series": 0,
    }
    assert not certificate.window_still_open


# --- Each class, and its borders -------------------------------------------------------------------------------------


def test_1990_is_before_the_series_and_nothing_is_expected_of_it() -> None:
    certificate = Certifier().certify(
        window("1990-01-01", "1990-12-31"), full_history(), bounds_of("USD"), AS_OF, CAPTURED
    )
    assert certificate.expected_observations == 0
    assert certificate.absent["before_the_series"] == 365
    assert certificate.absent["target_closed"] == 0


def test_a_window_across_the_start_separates_before_from_closed() -> None:
    assert absent("1998-12-30", "1999-01-06", full_history()) == {"before_the_series": 5}
    assert absent("1999-01-01", "1999-01-03", full_history()) == {"before_the_series": 3}
    assert absent("1999-01-09", "1999-01-10", full_history()) == {"target_closed": 2}


def test_a_series_that_ended_says_so_instead_of_showing_gaps() -> None:
    assert absent("2022-03-02", "2022-03-31", currency="RUB") == {"after_the_series": 30}
    assert absent("2023-01-01", "2023-01-02", currency="HRK") == {"after_the_series": 2}
    assert absent("2026-01-01", "2026-01-02", currency="BGN") == {"after_the_series": 2}
    assert absent("2022-03-01", "2022-03-02", currency="RUB") == {"no_such_observation": 1, "after_the_series": 1}


def test_a_suspended_series_says_so_on_every_calendar_day_of_the_suspension() -> None:
    assert absent("2012-06-01", "2012-06-30", currency="ISK") == {"suspended": 30}
    assert absent("2008-12-09", "2008-12-10", currency="ISK") == {"no_such_observation": 1, "suspended": 1}
    assert absent("2018-01-31", "2018-02-01", currency="ISK") == {"suspended": 1, "no_such_observation": 1}


def test_a_rate_is_not_yet_published_until_it_is_due() -> None:
    due = datetime(2026, 8, 26, 14, 0, tzinfo=UTC)
    just_before, day = due - timedelta(microseconds=1), ("2026-08-26", "2026-08-26")
    assert absent(*day, as_of=just_before) == {"not_yet_published": 1}
    assert absent(*day, as_of=due) == {"overdue": 1}


def test_a_value_seen_before_it_was_due_is_delivered() -> None:
    rows = Rows("USD", (Row(date(2026, 8, 26), 1.1),))
    early = datetime(2026, 8, 26, 13, 57, tzinfo=UTC)
    assert absent("2026-08-26", "2026-08-26", rows, as_of=early) == {}


def test_a_missing_rate_is_overdue_until_the_next_business_day_and_a_gap_from_then_on() -> None:
    friday = ("2026-08-21", "2026-08-21")
    monday_due = datetime(2026, 8, 24, 14, 0, tzinfo=UTC)
    assert absent(*friday, as_of=datetime(2026, 8, 23, 20, tzinfo=UTC)) == {"overdue": 1}
    assert absent(*friday, as_of=monday_due - timedelta(seconds=1)) == {"overdue": 1}
    assert absent(*friday, as_of=monday_due) == {"no_such_observation": 1}


def test_a_window_is_open_while_a_rate_may_still_come_and_closed_by_a_gap() -> None:
    def still_open(as_of: datetime) -> bool:
        friday = window("2026-08-21", "2026-08-21")
        return Certifier().certify(friday, NOTHING, bounds_of("USD"), as_of, None).window_still_open

    assert still_open(datetime(2026, 8, 21, 13, tzinfo=UTC)), "not yet published"
    assert still_open(datetime(2026, 8, 23, 20, tzinfo=UTC)), "overdue"
    assert not still_open(datetime(2026, 8, 24, 14, tzinfo=UTC)), "a genuine gap"


@pytest.mark.parametrize(
    ("as_of", "cause"),
    [
        ("2016-06-30T12:29", "not_yet_published"),
        ("2016-06-30T12:30", "overdue"),
        ("2016-07-01T13:59", "overdue"),  # the next day's rate is due at the new time
        ("2016-07-01T14:00", "no_such_observation"),
    ],
)
def test_the_due_time_moved_on_1_july_2016(as_of: str, cause: str) -> None:
    now = datetime.fromisoformat(as_of).replace(tzinfo=UTC)
    assert absent("2016-06-30", "2016-06-30", as_of=now) == {cause: 1}


@pytest.mark.parametrize(
    ("day", "due"),
    [("2026-03-27", 15), ("2026-03-30", 14), ("2026-10-23", 14), ("2026-10-26", 15)],
)
def test_the_weeks_in_which_clocks_change_are_due_by_frankfurt_time(day: str, due: int) -> None:
    at = datetime.fromisoformat(day).replace(tzinfo=UTC, hour=due)
    assert absent(day, day, as_of=at - timedelta(seconds=1)) == {"not_yet_published": 1}
    assert absent(day, day, as_of=at) == {"overdue": 1}


def test_future_closing_days_are_closed_already() -> None:
    assert absent("2027-03-25", "2027-03-30") == {"not_yet_published": 2, "target_closed": 4}


def test_days_beyond_the_checked_calendar_are_unknown_weekends_included() -> None:
    assert absent("2027-12-31", "2028-01-02") == {"not_yet_published": 1, "unknown": 2}
    answer = Certifier().answer(window("2028-01-01", "2028-12-31"), NOTHING, bounds_of("USD"), AS_OF, None)
    assert answer.certificate.absent["unknown"] == 366
    assert not answer.certificate.window_still_open


def test_what_was_due_after_the_capture_is_not_in_the_snapshot() -> None:
    november = datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert absent("2026-08-25", "2026-08-31", full_history(), as_of=november, captured_at=CAPTURED) == {
        "target_closed": 2,
        "not_in_snapshot": 4,
    }
    day = ("2026-08-26", "2026-08-26")
    assert absent(*day, full_history(), as_of=AS_OF, captured_at=CAPTURED) == {"not_yet_published": 1}
    assert absent(*day, as_of=november) == {"no_such_observation": 1}
    due_as_it_was_captured = datetime(2026, 8, 26, 14, tzinfo=UTC)
    assert absent(*day, as_of=due_as_it_was_captured, captured_at=due_as_it_was_captured) == {"overdue": 1}


def test_a_doctored_body_that_lacks_a_business_day_shows_a_genuine_gap() -> None:
    doctored = Rows("USD", tuple(row for row in full_history().rows if row.day != date(2026, 4, 8)))
    easter = Window(date(2026, 3, 30), date(2026, 4, 10))
    certificate = Certifier().certify(easter, doctored, bounds_of("USD"), AS_OF, CAPTURED)
    assert certificate.absent["no_such_observation"] == 1
    assert (certificate.expected_observations, certificate.delivered_observations) == (8, 7)
    assert not certificate.window_still_open


def test_a_doctored_value_on_a_closing_day_is_delivered_and_reported() -> None:
    good_friday = date(2026, 4, 3)
    doctored = Rows("USD", tuple(sorted((*full_history().rows, Row(good_friday, 1.15)))))
    easter = Window(date(2026, 3, 30), date(2026, 4, 10))
    answer = Certifier().answer(easter, doctored, bounds_of("USD"), AS_OF, CAPTURED)
    assert (good_friday, 1.15) in answer.observations
    assert answer.certificate.absent["target_closed"] == 3
    assert answer.to_json()["coverage"]["delivered_on_closing_days"] == ["2026-04-03"]
    check_identities(answer, easter)


def test_a_placeholder_row_is_a_closed_day_and_not_a_value() -> None:
    assert date(2001, 12, 31) in full_history().placeholders
    assert absent("2001-12-31", "2002-01-01", full_history()) == {"target_closed": 2}


def test_the_classes_are_ten_in_their_order() -> None:
    assert [cause.value for cause in DayClass] == [
        "delivered",
        "before_the_series",
        "after_the_series",
        "suspended",
        "unknown",
        "target_closed",
        "not_yet_published",
        "not_in_snapshot",
        "overdue",
        "no_such_observation",
    ]


# --- The latest rate -------------------------------------------------------------------------------------------------


def test_the_latest_rate_is_certified_from_its_day_to_today_in_frankfurt() -> None:
    answer = Certifier().latest(full_history(), bounds_of("USD"), AS_OF, CAPTURED)
    assert answer.observations == ((date(2026, 8, 25), 1.1662),)
    assert (answer.certificate.requested_from, answer.certificate.requested_to) == (
        date(2026, 8, 25),
        date(2026, 8, 26),
    )
    assert answer.certificate.absent["not_yet_published"] == 1
    assert answer.certificate.window_still_open


def test_today_is_the_date_in_frankfurt_and_not_in_utc() -> None:
    half_past_midnight = datetime(2026, 8, 25, 22, 30, tzinfo=UTC)
    answer = Certifier().latest(full_history(), bounds_of("USD"), half_past_midnight, CAPTURED)
    assert answer.certificate.requested_to == date(2026, 8, 26)


@settings(deadline=None)
@given(as_of=utc_instants)
def test_the_latest_rate_is_never_later_than_as_of_and_its_certificate_adds_up(as_of: datetime) -> None:
    answer = Certifier().latest(full_history(), bounds_of("USD"), as_of, CAPTURED)
    asked = Window(answer.certificate.requested_from, answer.certificate.requested_to)
    check_identities(answer, asked)
    assert all(day == asked.first <= as_of.date() + timedelta(days=1) for day, _ in answer.observations)
    assert bool(answer.observations) == (asked.last >= date(1999, 1, 4))


# --- What is refused -------------------------------------------------------------------------------------------------


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(WindowError, match="after it ends"):
        window("2026-04-02", "2026-04-01")


def test_a_window_longer_than_four_centuries_is_refused() -> None:
    first = date(1700, 1, 1)
    assert Window(first, first + timedelta(days=MAX_CALENDAR_DAYS - 1)).calendar_days == MAX_CALENDAR_DAYS
    with pytest.raises(WindowError, match="more than"):
        Window(first, first + timedelta(days=MAX_CALENDAR_DAYS))


def test_a_clock_without_a_time_zone_is_refused() -> None:
    naive = datetime(2026, 8, 26, 12)  # noqa: DTZ001
    with pytest.raises(WindowError, match="time zone"):
        absent("2026-04-01", "2026-04-01", as_of=naive)
    with pytest.raises(WindowError, match="time zone"):
        Certifier().latest(NOTHING, bounds_of("USD"), naive, None)


def test_the_instant_is_written_in_utc_whatever_zone_it_came_in() -> None:
    elsewhere = AS_OF.astimezone(timezone(timedelta(hours=-7)))
    answer = Certifier().answer(
        window("2026-04-01", "2026-04-01"), full_history(), bounds_of("USD"), elsewhere, CAPTURED
    )
    assert answer.to_json()["coverage"]["body_completed_at"] == "2026-08-26T12:00:00Z"


# --- Parts can be replaced, and the gate is fast ---------------------------------------------------------------------


class ForgetsGoodFriday(Certifier):
    def is_closed(self, day: date) -> bool:
        return is_closed(day) and day != date(2026, 4, 3)


class CallsEveryGapClosed(Certifier):
    def classify(self, day: date, evidence: Evidence) -> DayClass:
        truth = super().classify(day, evidence)
        return DayClass.TARGET_CLOSED if truth is DayClass.NO_SUCH_OBSERVATION else truth


class DueAtMidnight(Certifier):
    def due_at(self, day: date) -> datetime:
        return datetime.combine(day, datetime.min.time(), UTC)


def test_a_subclass_that_replaces_one_method_changes_that_decision_alone() -> None:
    def causes(certifier: Certifier, first: str, last: str) -> dict[str, int]:
        certificate = certifier.certify(window(first, last), full_history(), bounds_of("USD"), AS_OF, CAPTURED)
        return {cause: days for cause, days in certificate.absent.items() if days}

    easter = ("2026-03-30", "2026-04-10")
    assert causes(Certifier(), *easter) == {"target_closed": 4}
    assert causes(ForgetsGoodFriday(), *easter) == {"target_closed": 3, "no_such_observation": 1}
    assert causes(CallsEveryGapClosed(), *easter) == {"target_closed": 4}
    assert causes(DueAtMidnight(), "2026-08-26", "2026-08-26") == {"overdue": 1}


def test_certifying_ten_years_takes_less_time_than_parsing_their_body() -> None:
    cassette = json.loads((cassette_folder() / "full-history.json").read_text("ascii"))
    header, *lines = cassette["interactions"][0]["response"]["body"]["string"].splitlines(keepends=True)
    body = (header + "".join(line for line in lines if line.split(",")[6] > "2016-08-25")).encode()
    decade = Window(date(2016, 8, 26), date(2026, 8, 25))
    rows, certifier = parse_csvdata(body, "USD"), Certifier()

    def fastest(action: Callable[[], object]) -> float:
        ticks: list[float] = []
        for _ in range(7):
            begin = perf_counter()
            action()
            ticks.append(perf_counter() - begin)
        return min(ticks)

    parsing = fastest(lambda: parse_csvdata(body, "USD"))
    certifying = fastest(lambda: certifier.answer(decade, rows, bounds_of("USD"), AS_OF, CAPTURED))
    assert certifying < parsing, f"{certifying * 1e3:.1f} ms to certify, {parsing * 1e3:.1f} ms to parse"


def test_the_history_is_strictly_ascending() -> None:
    assert all(before.day < after.day for before, after in pairwise(full_history().rows))

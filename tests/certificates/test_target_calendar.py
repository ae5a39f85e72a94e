"""The TARGET calendar against two oracles that do not know its rule: the package `holidays`, and the ECB's series."""

import csv
import io
import zipfile
from datetime import UTC, date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import holidays
import pytest

from quenchz_reference.target_calendar import (
    CHECKED_UNTIL,
    CLOSING_RULES,
    closing_days,
    due_at,
    is_closed,
    next_business_day,
)


def days(first: date, last: date) -> list[date]:
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def test_the_rule_agrees_with_the_holidays_package_on_every_weekday_until_the_date_it_was_checked() -> None:
    oracle = holidays.financial_holidays("ECB", years=range(1999, CHECKED_UNTIL.year + 1))
    weekdays = [day for day in days(date(1999, 1, 1), CHECKED_UNTIL) if day.weekday() < 5]
    assert [day for day in weekdays if is_closed(day) != (day in oracle)] == []
    assert sum(map(is_closed, weekdays)) == 139


def test_the_rule_explains_every_day_of_the_published_series() -> None:
    package = find_spec("currency_converter")
    assert package is not None
    assert package.origin is not None
    with zipfile.ZipFile(Path(package.origin).parent / "eurofxref-hist.zip") as archive:
        text = archive.read("eurofxref-hist.csv").decode("ascii")
    published = {date.fromisoformat(row["Date"]) for row in csv.DictReader(io.StringIO(text))}
    assert len(published) == 7126
    span = days(date(1999, 1, 4), date(2026, 10, 30))
    assert [day for day in span if is_closed(day) == (day in published)] == []


def test_every_weekend_is_closed_and_every_day_before_target_opened() -> None:
    assert all(is_closed(day) for day in days(date(1999, 1, 1), CHECKED_UNTIL) if day.weekday() >= 5)
    assert all(map(is_closed, days(date(1990, 1, 1), date(1999, 1, 1))))
    assert not is_closed(date(1999, 1, 4))


@pytest.mark.parametrize(
    ("day", "closed"),
    [
        ("1999-04-02", False),  # Good Friday of the first year was a business day
        ("1999-04-05", False),
        ("1999-12-31", True),
        ("2000-12-29", False),
        ("2001-12-31", True),
        ("2002-12-31", False),
        ("2000-02-29", False),
        ("2022-12-27", False),  # 25 and 26 December were a Sunday and a Monday: no substitute
        ("2026-04-03", True),
        ("2026-04-06", True),
        ("2027-03-29", True),
    ],
)
def test_the_days_on_which_calendars_differ_are_right(day: str, closed: bool) -> None:
    assert is_closed(date.fromisoformat(day)) == closed


def test_every_closing_rule_names_its_press_release() -> None:
    assert all(rule.sources and all("ECB press release" in source for source in rule.sources) for rule in CLOSING_RULES)


def test_closing_days_of_2026_are_five_on_weekdays() -> None:
    on_weekdays = sorted(day for day in closing_days(2026) if day.weekday() < 5)
    assert [f"{day:%m-%d}" for day in on_weekdays] == ["01-01", "04-03", "04-06", "05-01", "12-25"]


@pytest.mark.parametrize(
    ("day", "utc"),
    [
        ("2016-06-30", "2016-06-30T12:30"),  # 14:30 in Frankfurt, the last day of the old time
        ("2016-07-01", "2016-07-01T14:00"),  # 16:00 in Frankfurt
        ("2016-01-04", "2016-01-04T13:30"),
        ("2026-03-27", "2026-03-27T15:00"),  # Friday before the clocks go forward
        ("2026-03-30", "2026-03-30T14:00"),
        ("2026-10-23", "2026-10-23T14:00"),
        ("2026-10-26", "2026-10-26T15:00"),  # Monday after they went back
    ],
)
def test_a_rate_is_due_by_frankfurt_civil_time(day: str, utc: str) -> None:
    assert due_at(date.fromisoformat(day)) == datetime.fromisoformat(utc).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("day", "following"),
    [
        ("2026-04-02", "2026-04-07"),
        ("2026-08-21", "2026-08-24"),
        ("2026-08-24", "2026-08-25"),
        ("2001-12-28", "2002-01-02"),
        ("1990-06-01", "1999-01-04"),
    ],
)
def test_the_next_business_day_skips_closing_days(day: str, following: str) -> None:
    assert next_business_day(date.fromisoformat(day)) == date.fromisoformat(following)

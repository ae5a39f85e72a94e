"""Windows of calendar days: single days, holidays, leap days, decades, before the series and in the future."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from hypothesis import strategies as st

from quenchz_spec.codec import plain
from quenchz_spec.requirement import Row


@plain
@dataclass(frozen=True)
class Window:
    """A window of calendar days, both ends inclusive."""

    since: dt.date
    until: dt.date

    @property
    def days(self) -> int:
        """How many calendar days the window holds; zero or less when it is reversed."""
        return (self.until - self.since).days + 1

    @property
    def words(self) -> str:
        """The window in words."""
        return f"{self.since.isoformat()}..{self.until.isoformat()}"


def window(since: str, until: str) -> Window:
    """Return the window between two ISO 8601 dates."""
    return Window(dt.date.fromisoformat(since), dt.date.fromisoformat(until))


def _row(words: str, since: str, until: str) -> Row:
    return Row(words, window(since, until), must="either", quenchz="accounted for")


WINDOWS = {
    "Easter": _row("a window over Easter 2026", "2026-03-30", "2026-04-10"),
    "one day": _row("one business day", "2026-04-01", "2026-04-01"),
    "Sunday": _row("one Sunday", "2024-01-07", "2024-01-07"),
    "weekend": _row("one weekend", "2024-11-02", "2024-11-03"),
    "leap day": _row("the leap day of 2024", "2024-02-28", "2024-03-01"),
    "leap day on a Saturday": _row("the leap day of 2020, a Saturday", "2020-02-28", "2020-03-02"),
    "summer time": _row("the week summer time began in 2026", "2026-03-26", "2026-04-01"),
    "winter time": _row("the week summer time ended in 2025", "2025-10-23", "2025-10-28"),
    "turn of the year": _row("the turn of 1999, when 31 December was closed", "1999-12-29", "2000-01-05"),
    "across the start": _row("across the start of the euro", "1998-12-30", "1999-01-06"),
    "before the euro": _row("the year 1990", "1990-01-01", "1990-12-31"),
    "future": _row("a week far in the future", "2057-12-10", "2057-12-16"),
    "into the future": _row("from the past into the future", "2026-08-20", "2027-01-31"),
    "decade": _row("the years 2010 to 2019", "2010-01-01", "2019-12-31"),
}


def windows(longest: int = 800) -> st.SearchStrategy[Window]:
    """Return windows of at most `longest` days between 1990 and 2060, most of them within the series."""
    starts = st.dates(dt.date(1999, 1, 1), dt.date(2026, 12, 31)) | st.dates(dt.date(1990, 1, 1), dt.date(2058, 1, 1))
    lengths = st.integers(0, 40) | st.integers(0, longest - 1)
    return st.builds(_from, starts, lengths)


def _from(start: dt.date, length: int) -> Window:
    return Window(start, start + dt.timedelta(length))


@plain
@dataclass(frozen=True)
class Split:
    """A window and the day that begins its second part, in days after the window's start."""

    window: Window
    after: int


def splits() -> st.SearchStrategy[Split]:
    """Return windows of two days or more with a day to split them at."""
    return windows(400).flatmap(
        lambda w: st.builds(Split, st.just(w), st.integers(1, w.days - 1)) if w.days > 1 else st.nothing()
    )


SPLITS = {
    "Easter": Row(
        "Easter 2026, split on Good Friday", Split(window("2026-03-30", "2026-04-10"), 4), "either", "adds up"
    ),
    "start": Row(
        "across the start of the euro, split at it", Split(window("1998-12-30", "1999-01-06"), 5), "either", "adds up"
    ),
    "future": Row("from the past into the future", Split(window("2026-08-20", "2026-09-10"), 6), "either", "adds up"),
    "decade": Row(
        "a decade, split in the middle", Split(window("2010-01-01", "2019-12-31"), 1826), "either", "adds up"
    ),
}

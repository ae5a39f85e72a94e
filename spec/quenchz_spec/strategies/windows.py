"""Windows of calendar days: single days, holidays, leap days, decades, before the series and in the future."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from hypothesis import strategies as st

from quenchz_spec.codec import plain


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

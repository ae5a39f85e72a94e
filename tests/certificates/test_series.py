"""From a body to rows: what is accepted keeps its digits, and what cannot be right is refused by name."""

import csv
import io
import json
import zipfile
from datetime import date, timedelta
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quenchz_reference.series import (
    SERIES,
    BodyError,
    DigitsError,
    ForeignRowError,
    HeaderError,
    OrderError,
    Row,
    RowError,
    UnknownSeriesError,
    VendorError,
    bounds_of,
    number,
    parse_csvdata,
)
from quenchz_reference.target_calendar import is_closed

HEADER = "KEY,TIME_PERIOD,OBS_VALUE,OBS_STATUS,TITLE_COMPL,UNIT_MULT\r\n"


def line(day: str = "2026-04-01", value: str = "1.1605", status: str = "A", key: str = "EXR.D.USD.EUR.SP00.A") -> str:
    return f'{key},{day},{value},{status},"US dollar, 2.15 pm",0\r\n'


def body(*lines: str, header: str = HEADER) -> bytes:
    return (header + "".join(lines)).encode()


def eurofxref() -> list[dict[str, str]]:
    """The rows of the ECB's eurofxref-hist.csv, descending."""
    package = find_spec("currency_converter")
    assert package is not None
    assert package.origin is not None
    with zipfile.ZipFile(Path(package.origin).parent / "eurofxref-hist.zip") as archive:
        return list(csv.DictReader(io.StringIO(archive.read("eurofxref-hist.csv").decode("ascii"))))


def test_every_value_the_ecb_ever_published_keeps_its_digits_in_json() -> None:
    values = {
        cell for row in eurofxref() for column, cell in row.items() if column not in {"Date", ""} and cell != "N/A"
    }
    assert len(values) > 50_000
    assert [digits for digits in values if json.dumps(number(digits)) != digits] == []


@pytest.mark.parametrize("digits", ["1", "1.0", "0.9", "1.179", "13111", "0.00012"])
def test_a_decimal_keeps_its_digits(digits: str) -> None:
    assert json.dumps(number(digits)) == digits


CHANGED = ["1.10", "01", ".5", "5.", "1e3", "0.00001", "1.12345678901234567890"]
NO_RATE = ["", "0", "0.0", "-1", " 1", "1,1", "NaN", "Infinity", "N/A", "\u0661"]


@pytest.mark.parametrize("digits", CHANGED + NO_RATE)
def test_digits_that_json_would_change_or_that_are_no_rate_are_refused(digits: str) -> None:
    with pytest.raises(DigitsError):
        number(digits)


def test_the_bounds_are_those_of_the_published_file() -> None:
    table = eurofxref()[::-1]
    newest = date.fromisoformat(table[-1]["Date"])
    currencies = set(table[0]) - {"Date", ""}
    assert set(SERIES) == currencies
    for currency in currencies:
        days = [date.fromisoformat(row["Date"]) for row in table if row[currency] != "N/A"]
        bounds = SERIES[currency]
        assert bounds.first == days[0], currency
        assert bounds.last == (None if days[-1] == newest else days[-1]), currency
        pauses = tuple(
            (before + timedelta(days=1), after - timedelta(days=1))
            for before, after in pairwise(days)
            if any(not is_closed(before + timedelta(days=n)) for n in range(1, (after - before).days))
        )
        assert bounds.suspensions == pauses, currency


@pytest.mark.parametrize("currency", ["GRD", "ARS", "EUR", "ZZZ", "usd", ""])
def test_a_currency_that_is_not_in_the_table_is_unknown(currency: str) -> None:
    with pytest.raises(UnknownSeriesError):
        bounds_of(currency)


def test_a_body_of_zero_bytes_is_zero_rows() -> None:
    assert parse_csvdata(b"", "USD").rows == ()


def test_a_placeholder_is_a_row_and_not_a_value() -> None:
    rows = parse_csvdata(body(line("1999-12-30"), line("1999-12-31", "", "H"), line("2000-01-03", "1")), "USD")
    assert rows.rows == (
        Row(date(1999, 12, 30), 1.1605),
        Row(date(1999, 12, 31), None),
        Row(date(2000, 1, 3), 1),
    )
    assert rows.placeholders == (date(1999, 12, 31),)
    assert rows.observations == ((date(1999, 12, 30), 1.1605), (date(2000, 1, 3), 1))


def test_columns_are_found_by_name_and_lines_may_end_either_way() -> None:
    moved = b"OBS_STATUS,NEW,OBS_VALUE,KEY,TIME_PERIOD\nA,?,1.5,EXR.D.USD.EUR.SP00.A,2026-04-01\n"
    assert parse_csvdata(moved, "USD").rows == (Row(date(2026, 4, 1), 1.5),)


def test_a_changed_title_changes_no_value() -> None:
    titled = body(line()).replace(b"2.15 pm", b"2:15 pm")
    assert parse_csvdata(titled, "USD") == parse_csvdata(body(line()), "USD")


REFUSED = {
    "not UTF-8": (BodyError, b"\xff" + body(line())),
    "a byte order mark": (HeaderError, b"\xef\xbb\xbf" + body(line())),
    "only four columns, the status not among them": (HeaderError, b"KEY,TIME_PERIOD,OBS_VALUE,TITLE\r\n"),
    "a column twice": (HeaderError, b"KEY,KEY,TIME_PERIOD,OBS_VALUE,OBS_STATUS\r\n"),
    "edits instead of observations": (HeaderError, b"ACTION,KEY,TIME_PERIOD,OBS_VALUE,OBS_STATUS\r\n"),
    "HTML": (HeaderError, b"<!doctype html>\r\n<title>Request blocked</title>\r\n"),
    "XML": (HeaderError, b'<?xml version="1.0"?><message/>'),
    "cut inside a row": (RowError, body(line(), line("2026-04-02"))[:-30]),
    "cut inside a quoted field": (RowError, body(line(), line("2026-04-02"))[:-8]),
    "cut before the last line end": (RowError, body(line(), line("2026-04-02"))[:-2]),
    "cut inside the last field": (RowError, body(line(), line("2026-04-02"))[:-3]),
    "an empty line": (RowError, body(line(), "\r\n", line("2026-04-02"))),
    "a field too many": (RowError, body(line().replace("\r\n", ",\r\n"))),
    "a day in another notation": (RowError, body(line("20260401"))),
    "a week": (RowError, body(line("2026-W14-3"))),
    "a day that does not exist": (RowError, body(line("2026-02-30"))),
    "a value that was lost": (RowError, body(line(value=""))),
    "a value on a missing day": (RowError, body(line(status="H"))),
    "an unknown status": (RowError, body(line(status="E"))),
    "not a number": (DigitsError, body(line(value="NaN"))),
    "digits that JSON would change": (DigitsError, body(line(value="1.10"))),
    "another currency": (ForeignRowError, body(line(key="EXR.D.GBP.EUR.SP00.A"))),
    "another day": (ForeignRowError, body(line("2026-05-04"))),
    "a day twice": (OrderError, body(line(), line())),
    "days in descending order": (OrderError, body(line("2026-04-02"), line())),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_body_that_cannot_be_right_is_refused_by_name(what: str) -> None:
    error, wrong = REFUSED[what]
    with pytest.raises(error) as refusal:
        parse_csvdata(wrong, "USD", date(2026, 4, 1), date(2026, 4, 30))
    assert type(refusal.value) is error
    assert isinstance(refusal.value, VendorError)


@given(cut=st.integers(min_value=1, max_value=len(body(line(), line("2026-04-02"))) - 1))
def test_no_truncation_passes_unless_it_ends_at_a_line_end(cut: int) -> None:
    whole = body(line(), line("2026-04-02"))
    if whole[:cut].endswith(b"\n"):
        assert len(parse_csvdata(whole[:cut], "USD").rows) == whole[:cut].count(b"\n") - 1
    else:
        with pytest.raises(BodyError):
            parse_csvdata(whole[:cut], "USD")


@given(first=st.dates(), last=st.dates())
def test_a_cut_holds_exactly_the_rows_of_its_days(first: date, last: date) -> None:
    rows = parse_csvdata(body(line("1999-12-30"), line("1999-12-31", "", "H"), line("2000-01-03")), "USD")
    assert rows.cut(first, last).rows == tuple(row for row in rows.rows if first <= row.day <= last)

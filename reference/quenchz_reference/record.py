"""Cassettes: what is in one, which six there are, and `python -m quenchz_reference.record`, which records them anew.

A cassette is a file in vcrpy's JSON format with one exchange. Its member `metadata.provenance` states where it is from.
The six exchanges are asked for first and written only when all six are there, each into a temporary file that takes
its name at once, so that no cassette is ever half written.

Exit codes: 0 recorded; 1 an answer is not one to keep; 2 usage; 3 there is no network.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import httpx2

from quenchz_reference.certificates import SOURCE
from quenchz_reference.vendor import (
    API,
    MAX_SECONDS,
    Exchange,
    UnreachableError,
    VendorError,
    csvdata_body,
    exchange,
    new_client,
)

__all__ = ["EXCHANGES", "cassette_text", "main", "record", "write_all"]

EXCHANGES: Final[Mapping[str, str]] = {
    "full-history": f"{API}D.USD.EUR.SP00.A?format=csvdata",
    "easter-window": f"{API}D.USD.EUR.SP00.A?format=csvdata&startPeriod=2026-03-30&endPeriod=2026-04-10",
    "weekend-window": f"{API}D.USD.EUR.SP00.A?format=csvdata&startPeriod=2026-08-22&endPeriod=2026-08-23",
    "july-2026": f"{API}D.USD.EUR.SP00.A?format=csvdata&startPeriod=2026-07-01&endPeriod=2026-07-31",
    "unknown-key": f"{API}D.ZZZ.EUR.SP00.A?format=csvdata",
    "nonsense-format": f"{API}D.USD.EUR.SP00.A?format=nonsense&startPeriod=2026-07-01&endPeriod=2026-07-31",
}
"""The cassettes' names and the addresses they answer."""

_MUST_BE_CSVDATA: Final = ("full-history", "easter-window", "july-2026", "weekend-window")


def cassette_text(reply: Exchange, captured_at: datetime, provenance: Mapping[str, str]) -> str:
    """The text of a cassette: ASCII, ending with a line feed.

    Args:
        reply: the exchange; its body must be UTF-8.
        captured_at: when it took place; aware.
        provenance: how it got here: `body` and `headers`, a sentence each, and what else there is to say.
    """
    headers: dict[str, list[str]] = {}
    for name, value in reply.headers:
        headers.setdefault(name, []).append(value)
    content: dict[str, object] = {
        "version": 1,
        "metadata": {
            "provenance": {
                "url": reply.url,
                "status": reply.status,
                "captured_at": captured_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
                "series": reply.url.removeprefix(API).split(".")[1],
                "bytes": len(reply.body),
                "sha256": hashlib.sha256(reply.body).hexdigest(),
                **provenance,
                "source": SOURCE,
            }
        },
        "interactions": [
            {
                "request": {"method": "GET", "uri": reply.url, "body": "", "headers": {}},
                "response": {
                    "status": {"code": reply.status, "message": reply.reason},
                    "headers": headers,
                    "body": {"string": reply.body.decode("utf-8")},
                },
            }
        ],
    }
    return json.dumps(content, indent=1) + "\n"


def write_all(folder: Path, cassettes: Mapping[str, str]) -> None:
    """Write cassettes by name. Each appears complete or not at all, and none before all have been written to disk."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".recording-") as scratch:
        for name, text in cassettes.items():
            (Path(scratch) / f"{name}.json").write_text(text, "ascii")
        for name in cassettes:
            (Path(scratch) / f"{name}.json").replace(folder / f"{name}.json")


async def record(transport: httpx2.AsyncBaseTransport | None = None) -> dict[str, str]:
    """Ask for the six exchanges, one after the other, and return the texts of their cassettes by name.

    Raises:
        VendorError: one of them could not be had, or a series came back as something else than csvdata.
    """
    cassettes: dict[str, str] = {}
    async with new_client(transport) as client:
        for name, url in EXCHANGES.items():
            with anyio.fail_after(MAX_SECONDS):
                reply = await exchange(client, url)
            if name in _MUST_BE_CSVDATA:
                csvdata_body(reply)
            provenance = {"body": "recorded by quenchz_reference.record", "headers": "recorded with the body"}
            try:
                cassettes[name] = cassette_text(reply, datetime.now(UTC).replace(microsecond=0), provenance)
            except UnicodeDecodeError:
                raise VendorError(f"{url} answered with a body that is not UTF-8") from None
    return cassettes


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the six exchanges; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m quenchz_reference.record", description="Record the ECB cassettes.")
    parser.add_argument(
        "--into",
        type=Path,
        default=Path(f"cassettes-{datetime.now(UTC):%Y-%m-%d}"),
        help="folder to write to (default: %(default)s; `cassettes` replaces the committed ones)",
    )
    into: Path = parser.parse_args(arguments).into
    try:
        cassettes = anyio.run(record)
    except (UnreachableError, TimeoutError) as error:
        print(f"No network: {error}; nothing was written.", file=sys.stderr)
        return 3
    except VendorError as error:
        print(f"Not recorded: {error}; nothing was written.", file=sys.stderr)
        return 1
    write_all(into, cassettes)
    for name in cassettes:
        print(into / f"{name}.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())

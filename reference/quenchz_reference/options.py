"""The options of the server, and one line for each way to get them wrong."""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, NoReturn, cast
from urllib.parse import urlsplit

from quenchz_reference.reserves import UnknownCallers

Framing = Literal["json", "sse"]

DEFAULT_RESOURCE = "https://rates.quenchz.invalid/mcp"
DEFAULT_RESERVES = {"broad": 5, "narrow": 5, "quiet": 5}
DEFAULT_AS_OF = "2026-08-26T12:00:00Z"
"""The date of the cassette: the instant for which answers are true when the vendor is a recording."""


class ConfigurationError(Exception):
    """The server cannot start as it was told to; the text names the option, its value and what to do."""


@dataclass(frozen=True)
class Options:
    """What the command line asked for.

    Attributes:
        host: address or name to bind.
        port: 0 for a free one.
        resource: the audience that tokens must have.
        tokens_file: where the in-process issuer's tokens go, or None for no such issuer.
        trust_issuers: issuers whose keys are fetched by HTTP.
        trust_tenants: base URLs; every `BASE/<slug>` is a trusted issuer.
        keys_refetch: seconds between two fetches of a key set for unknown key ids.
        keys_timeout: seconds after which keys that have not come are not waited for.
        keys_keep: seconds for which a key set is believed.
        budget: units per window and issuer.
        window: seconds.
        reserves: units per window of each declared caller.
        unknown_callers: what others get.
        as_of: the instant for which answers are true, or None for the present.
        vendor: `cassette` or `live`.
        framing: `json` or `sse`, of 2025-11-25 responses, and of 2026-07-28 responses that carry notifications.
        log_level: of the standard logging module.
    """

    host: str
    port: int
    resource: str
    tokens_file: Path | None
    trust_issuers: tuple[str, ...]
    trust_tenants: tuple[str, ...]
    keys_refetch: float
    keys_timeout: float
    keys_keep: float
    budget: int
    window: float
    reserves: dict[str, int]
    unknown_callers: UnknownCallers
    as_of: datetime | None
    vendor: str
    framing: Framing
    log_level: str


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong and leave with status 2."""
        sys.stderr.write(f"{self.prog}: {message}\n")
        raise SystemExit(2)


def parse(arguments: Sequence[str]) -> Options:
    """Read the command line (without the program's name).

    Raises:
        SystemExit: status 2 after one line on stderr if an option is wrong, 0 after `--help`.
    """
    parser = _parser()
    found = parser.parse_args(arguments)
    if found.tokens_file is None and not found.trust_issuer and not found.trust_tenants:
        parser.error("no issuer is trusted: give --tokens-file F, --trust-issuer URL or --trust-tenants URL")
    reserves = dict(cast("list[tuple[str, int]]", found.reserve) or DEFAULT_RESERVES.items())
    if sum(reserves.values()) > found.budget:
        parser.error(
            f"--reserve: the reserves add up to {sum(reserves.values())} units, but --budget is {found.budget}; "
            "lower the reserves or raise the budget"
        )
    as_of = found.as_of
    if as_of is None and found.vendor == "cassette":
        as_of = datetime.fromisoformat(DEFAULT_AS_OF)
    return Options(
        host=found.host,
        port=found.port,
        resource=found.resource,
        tokens_file=found.tokens_file,
        trust_issuers=tuple(found.trust_issuer),
        trust_tenants=tuple(found.trust_tenants),
        keys_refetch=found.keys_refetch,
        keys_timeout=found.keys_timeout,
        keys_keep=found.keys_keep,
        budget=found.budget,
        window=found.window,
        reserves=reserves,
        unknown_callers=found.unknown_callers,
        as_of=as_of,
        vendor=found.vendor,
        framing=found.framing,
        log_level=found.log_level,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(
        prog="quenchz_reference",
        description="ECB euro reference rates over MCP streamable HTTP, behind four gates.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to bind (default %(default)s)")
    add("--port", type=_port, default=8931, help="port to bind, 0 for a free one (default %(default)s)")
    add("--resource", type=_resource, default=DEFAULT_RESOURCE, metavar="URI", help="audience of good tokens")
    add("--tokens-file", type=Path, metavar="F", help="start an in-process issuer and write its tokens to F")
    add("--trust-issuer", type=_url, action="append", default=[], metavar="URL", help="trust this issuer; repeatable")
    add("--trust-tenants", type=_url, action="append", default=[], metavar="URL", help="trust every URL/<slug>")
    add("--keys-refetch", type=_seconds, default=5.0, help="between fetches for unknown key ids (default %(default)s)")
    add("--keys-timeout", type=_seconds, default=5.0, help="seconds to wait for an issuer's keys (default %(default)s)")
    add("--keys-keep", type=_seconds, default=300.0, help="seconds a key set is believed (default %(default)s)")
    add("--budget", type=_units, default=25, help="units per window and issuer (default %(default)s)")
    add("--window", type=_seconds, default=2.0, help="length of the window in seconds (default %(default)s)")
    add("--reserve", type=_reserve, action="append", metavar="CALLER=R", help="units only CALLER can spend; repeatable")
    add("--unknown-callers", type=_unknown_callers, default=UnknownCallers(), metavar="pool|grant:R|refuse")
    add(
        "--as-of", type=_instant, metavar="INSTANT", help="instant for which answers are true (default: the cassette's)"
    )
    add("--vendor", choices=["cassette", "live"], default="cassette", help="source of rates (default %(default)s)")
    add("--framing", choices=["json", "sse"], default="json", help="of responses (default %(default)s)")
    add("--log-level", choices=["debug", "info", "warning", "error"], default="warning", help="default %(default)s")
    return parser


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; use a number from 0 to 65535")
    return int(text)


def _units(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of units; use a whole number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 1e-6 <= seconds <= 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time; use seconds greater than 0, such as 60")
    return seconds


def _reserve(text: str) -> tuple[str, int]:
    caller, separator, number = text.rpartition("=")
    if not separator or not caller:
        raise argparse.ArgumentTypeError(f"{text!r} is not a reserve; use CALLER=R, such as broad=5")
    return caller, _units(number)


def _unknown_callers(text: str) -> UnknownCallers:
    try:
        return UnknownCallers.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an instant with a time zone; use one such as {DEFAULT_AS_OF}"
        )
    return instant


def _url(text: str) -> str:
    return _absolute(text, ("http", "https"), "https://issuer.example")


def _resource(text: str) -> str:
    return _absolute(text, ("http", "https"), DEFAULT_RESOURCE)


def _absolute(text: str, schemes: tuple[str, ...], example: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    # RFC 8707 section 2 and RFC 8414 section 2: no fragment. A blank or a quote would break the challenge header.
    if not usable or "#" in text or "?" in text or '"' in text or not text.isprintable() or " " in text:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an absolute http(s) URI without query and fragment; use one such as {example}"
        )
    return text

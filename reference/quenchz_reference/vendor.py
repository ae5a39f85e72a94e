"""The vendor: the ECB's data API over HTTP, live or played from recorded exchanges by the same code.

`LiveVendor` asks https://data-api.ecb.europa.eu. `CassetteVendor` sends the same requests through the same client; only
the transport at its very bottom is played by vcrpy from the committed cassettes, so nothing ever reaches a network.

Errors, all of them `VendorError` (quenchz_reference.series, where the tree of `BodyError` is):

    VendorError
    ├── UnreachableError        no connection, or a broken one
    │   └── LateError           no complete reply within the time cap
    ├── TooLargeError           a reply larger than the size cap
    ├── ContentTypeError        a reply of a type that the status does not explain
    ├── StatusError             a reply that is an error and says so
    ├── BodyError               csvdata that cannot be right
    └── NotRecordedError        offline, and the cassettes do not hold it
"""

import importlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import anyio
import httpx2

from quenchz_reference.certificates import Window
from quenchz_reference.series import Rows, VendorError, parse_csvdata

__all__ = [
    "CassetteVendor",
    "ContentTypeError",
    "Exchange",
    "LateError",
    "LiveVendor",
    "NotRecordedError",
    "StatusError",
    "TooLargeError",
    "UnreachableError",
    "Vendor",
    "VendorError",
    "cassette_folder",
    "exchange",
    "new_client",
    "series_url",
]

API: Final = "https://data-api.ecb.europa.eu/service/data/EXR/"
"""Base of the series' addresses (data.ecb.europa.eu/help/api/data). A trailing slash after a series key is a 404."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""Size cap of a reply: ten times the longest series of 2026."""

MAX_SECONDS: Final = 30.0
"""Time cap of a reply, waiting for our own earlier requests included."""

FULL_HISTORY: Final = "full-history.json"
"""The cassette that every offline window is cut from."""


class UnreachableError(VendorError):
    """The vendor could not be reached, or the connection broke."""


class LateError(UnreachableError):
    """No complete reply came within the time cap."""


class TooLargeError(VendorError):
    """A reply is larger than the size cap."""


class ContentTypeError(VendorError):
    """A reply has a media type that its status does not explain: XML or HTML under 200, HTML under 404, none at all."""


class StatusError(VendorError):
    """A reply is an error in the vendor's own form.

    Attributes:
        status: its status. A 404 never proves that a series or an observation does not exist: in the outage of
            2025-05-27 the API answered 404 for valid series.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class NotRecordedError(VendorError):
    """Offline, and the cassettes do not hold what was asked for; the text says what they hold."""


class Vendor(Protocol):
    """Where rows come from."""

    @property
    def captured_at(self) -> datetime | None:
        """When the replies were captured, or None if they are live."""
        ...

    @property
    def cached(self) -> tuple[str, ...]:
        """The addresses whose rows are kept in memory."""
        ...

    async def rows(self, currency: str, window: Window | None = None) -> Rows:
        """The rows of a currency's series, those of a window or (None) all of them.

        Raises:
            VendorError: the vendor did not give them; see the module's tree.
        """
        ...

    def forget(self) -> int:
        """Drop what is kept in memory, and say how many replies that were."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


# --- HTTP, the same for both -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exchange:
    """What came back for one address: status, reason, headers in order, and the body's exact bytes."""

    url: str
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def media_type(self) -> str:
        """The Content-Type without parameters, in lower case; empty if there is none."""
        content_type = next((value for name, value in self.headers if name.lower() == "content-type"), "")
        return content_type.partition(";")[0].strip().lower()


@lru_cache(maxsize=1024)
def series_url(currency: str, window: Window | None = None) -> str:
    """The address of a currency's daily reference rates as csvdata, for a window or (None) for all days."""
    query = {"format": "csvdata"}
    if window is not None:
        query |= {"startPeriod": window.first.isoformat(), "endPeriod": window.last.isoformat()}
    return f"{API}D.{quote(currency, safe='')}.EUR.SP00.A?{urlencode(query)}"


def new_client(transport: httpx2.AsyncBaseTransport | None = None) -> httpx2.AsyncClient:
    """A client for the vendor. Redirects are not followed: the API has none, and they would leave its origin."""
    # Without compression the size cap counts the bytes that are held, and a cassette has the bytes that were sent.
    return httpx2.AsyncClient(
        transport=transport,
        timeout=MAX_SECONDS,
        headers={"User-Agent": "quenchz-reference", "Accept-Encoding": "identity"},
    )


async def exchange(client: httpx2.AsyncClient, url: str, *, max_bytes: int = MAX_BYTES) -> Exchange:
    """One GET, whatever its status, its body capped in size.

    Raises:
        UnreachableError: there is no reply, or it broke off.
        TooLargeError: the body has more than `max_bytes` bytes.
    """
    body = bytearray()
    try:
        async with client.stream("GET", url) as response:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > max_bytes:
                    raise TooLargeError(f"the reply to {url} has more than {max_bytes} bytes")
            return Exchange(
                url, response.status_code, response.reason_phrase, tuple(response.headers.multi_items()), bytes(body)
            )
    except httpx2.TimeoutException as error:
        raise LateError(f"{url} did not answer in time ({type(error).__name__})") from error
    except httpx2.HTTPError as error:
        raise UnreachableError(f"{url} cannot be reached ({type(error).__name__}: {error})") from error


def csvdata_body(reply: Exchange) -> bytes:
    """The body of a reply that really is csvdata. The media type is looked at before the status is believed.

    Raises:
        ContentTypeError: the media type is not the one that the API uses with this status.
        StatusError: the API answered with an error of its own.
    """
    expected = "text/csv" if reply.status == HTTPStatus.OK else "application/problem+json"
    if reply.media_type != expected:
        raise ContentTypeError(
            f"{reply.url} answered {reply.status} with {reply.media_type or 'no media type'}, expected {expected}"
        )
    if reply.status != HTTPStatus.OK:
        what = "; that proves nothing about the series" if reply.status == HTTPStatus.NOT_FOUND else ""
        raise StatusError(reply.status, f"{reply.url} answered {reply.status} {reply.reason}".rstrip() + what)
    return reply.body


def _max_age(reply: Exchange) -> float:
    """For how many seconds the vendor allows a reply to be kept (`Cache-Control: max-age`); 0 if it says nothing."""
    for name, value in reply.headers:
        if name.lower() == "cache-control":
            for directive in value.split(","):
                word, _, seconds = directive.strip().partition("=")
                if word.lower() == "max-age" and seconds.isascii() and seconds.isdigit():
                    return float(seconds)
    return 0.0


# --- Live ------------------------------------------------------------------------------------------------------------


class LiveVendor:
    """The ECB's data API. One client is kept; parsed replies are kept for as long as `Cache-Control` allows.

    Requests go out one at a time. The API publishes no rate limit, so this is a courtesy that we chose.

    Args:
        transport: what carries the requests; None is the network.
        clock: seconds on a clock that never goes back.
        max_bytes: size cap of a reply.
        max_seconds: time cap of a reply.
    """

    captured_at: datetime | None = None
    _MAX_KEPT = 64

    def __init__(
        self,
        transport: httpx2.AsyncBaseTransport | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_bytes: int = MAX_BYTES,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        self._client = new_client(transport)
        self._clock = clock
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._one_at_a_time = anyio.Lock()
        self._kept: OrderedDict[str, tuple[float, Rows]] = OrderedDict()

    @property
    def cached(self) -> tuple[str, ...]:
        """The addresses whose rows are kept in memory."""
        now = self._clock()
        return tuple(url for url, (until, _) in self._kept.items() if until > now)

    async def rows(self, currency: str, window: Window | None = None) -> Rows:
        """The rows of a currency's series, those of a window or (None) all of them.

        Raises:
            VendorError: the vendor did not give them; see the module's tree.
        """
        url = series_url(currency, window)
        if (kept := self._keeps(url)) is not None:
            return kept
        try:
            with anyio.fail_after(self._max_seconds):
                async with self._one_at_a_time:
                    if (kept := self._keeps(url)) is not None:
                        return kept
                    reply = await exchange(self._client, url, max_bytes=self._max_bytes)
        except TimeoutError:
            raise LateError(f"{url} did not answer within {self._max_seconds:g} seconds") from None
        body = csvdata_body(reply)
        if window is None:
            rows = parse_csvdata(body, currency)
        else:
            rows = parse_csvdata(body, currency, window.first, window.last)
        self._keep(url, self._may_keep_for(reply), rows)
        return rows

    def forget(self) -> int:
        """Drop what is kept in memory, and say how many replies that were."""
        kept = len(self._kept)
        self._kept.clear()
        return kept

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _may_keep_for(self, reply: Exchange) -> float:
        return _max_age(reply)

    def _keeps(self, url: str) -> Rows | None:
        until, rows = self._kept.get(url, (0.0, None))
        return rows if until > self._clock() else None

    def _keep(self, url: str, seconds: float, rows: Rows) -> None:
        if seconds > 0:
            self._kept[url] = (self._clock() + seconds, rows)
            self._kept.move_to_end(url)
            while len(self._kept) > self._MAX_KEPT:
                self._kept.popitem(last=False)


# --- Played from cassettes -------------------------------------------------------------------------------------------


def cassette_folder() -> Path:
    """Where the cassettes are: in the package (an installed wheel), else at the top of the repository.

    Raises:
        NotRecordedError: in neither.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "cassettes", package.parents[1] / "cassettes"):
        if (folder / FULL_HISTORY).is_file():
            return folder
    raise NotRecordedError(f"there is no cassette {FULL_HISTORY} beside the package or at the top of the repository")


def played(cassette: Path) -> httpx2.AsyncBaseTransport:
    """A transport that answers every request from a cassette, by vcrpy, and never opens a socket.

    A request that the cassette does not hold raises `NotRecordedError`.
    """
    # vcrpy has no type information, and is needed offline only.
    vcr: Any = importlib.import_module("vcr")
    errors: Any = importlib.import_module("vcr.errors")
    recorder = vcr.VCR(serializer="json", record_mode=vcr.mode.NONE, match_on=("method", "uri"))
    # vcrpy patches the transport class of the whole process. Taking the patched method and leaving at once, without
    # awaiting in between, keeps the player for this transport alone: other clients of the process stay as they are.
    with _PATCHING, recorder.use_cassette(str(cassette), allow_playback_repeats=True):
        play: Any = httpx2.AsyncHTTPTransport.handle_async_request

    class Played(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            try:
                response: httpx2.Response = await play(self, request)
            except errors.CannotOverwriteExistingCassetteException:
                raise NotRecordedError(f"the cassette {cassette.name} holds no reply to {request.url}") from None
            return response

    return Played()


_PATCHING = threading.Lock()


class CassetteVendor(LiveVendor):
    """The recorded exchanges instead of the network; every window is cut from the one full history they hold.

    Args:
        folder: where the cassettes are; None finds the ones that are delivered with the package.

    Raises:
        NotRecordedError: there are none.
    """

    def __init__(self, folder: Path | None = None) -> None:
        cassette = (folder or cassette_folder()) / FULL_HISTORY
        if not cassette.is_file():
            raise NotRecordedError(f"there is no cassette {FULL_HISTORY} in {cassette.parent.name}/")
        try:
            provenance = json.loads(cassette.read_text("utf-8"))["metadata"]["provenance"]
            self.captured_at = datetime.fromisoformat(provenance["captured_at"])
            self._held: str = provenance["series"]
        except (ValueError, KeyError) as error:
            raise NotRecordedError(f"the cassette {cassette.name} does not state where it is from") from error
        super().__init__(played(cassette))

    async def rows(self, currency: str, window: Window | None = None) -> Rows:
        """As for `LiveVendor`, of the one currency that was recorded.

        Raises:
            NotRecordedError: another currency.
            VendorError: the cassette does not hold what it says.
        """
        if currency != self._held:
            raise NotRecordedError(
                f"offline: the cassettes hold {self._held} only, captured {self.captured_at:%Y-%m-%d}; "
                f"{currency!r} needs the live vendor"
            )
        whole = await super().rows(currency)
        return whole if window is None else whole.cut(window.first, window.last)

    def _may_keep_for(self, reply: Exchange) -> float:  # noqa: ARG002  # a recording does not age
        return float("inf")

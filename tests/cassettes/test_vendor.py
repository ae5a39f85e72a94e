"""The vendor's client: one code for live and recorded replies, which believes nothing that it can check."""

import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, date, datetime
from pathlib import Path
from time import perf_counter

import anyio
import httpx2
import pytest

from quenchz_reference import vendor as vendor_module
from quenchz_reference.certificates import Window
from quenchz_reference.record import EXCHANGES
from quenchz_reference.series import BodyError, HeaderError, Rows
from quenchz_reference.vendor import (
    CassetteVendor,
    ContentTypeError,
    Exchange,
    LateError,
    LiveVendor,
    NotRecordedError,
    StatusError,
    TooLargeError,
    UnreachableError,
    VendorError,
    cassette_folder,
    csvdata_body,
    exchange,
    new_client,
    played,
    series_url,
)

EASTER = Window(date(2026, 3, 30), date(2026, 4, 10))
ONE_ROW = b"KEY,TIME_PERIOD,OBS_VALUE,OBS_STATUS\r\nEXR.D.USD.EUR.SP00.A,2026-04-01,1.1605,A\r\n"
RECORDED_WINDOWS = {
    "easter-window": EASTER,
    "july-2026": Window(date(2026, 7, 1), date(2026, 7, 31)),
    "weekend-window": Window(date(2026, 8, 22), date(2026, 8, 23)),
}


def ask(vendor: LiveVendor, currency: str = "USD", window: Window | None = None) -> Rows:
    async def asking() -> Rows:
        try:
            return await vendor.rows(currency, window)
        finally:
            await vendor.aclose()

    return anyio.run(asking)


def answering(status: int, content_type: str | None, body: bytes, **headers: str) -> httpx2.MockTransport:
    fields = headers | ({} if content_type is None else {"content-type": content_type})
    return httpx2.MockTransport(lambda _: httpx2.Response(status, headers=fields, content=body))


# --- Recorded --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECORDED_WINDOWS)
def test_a_recorded_window_equals_the_cut_from_the_full_history(name: str) -> None:
    window = RECORDED_WINDOWS[name]
    recorded = ask(LiveVendor(played(cassette_folder() / f"{name}.json")), "USD", window)
    assert recorded == ask(CassetteVendor(), "USD", window)
    assert len(recorded.rows) == {"easter-window": 8, "july-2026": 23, "weekend-window": 0}[name]


def test_the_full_history_is_played_through_the_client_and_parsed_once() -> None:
    vendor = CassetteVendor()
    assert len(vendor.cached) == 0

    async def twice() -> tuple[Rows, Rows]:
        return await vendor.rows("USD"), await vendor.rows("USD")

    first, second = anyio.run(twice)
    assert first is second
    assert (len(first.rows), len(first.observations), len(first.placeholders)) == (7_140, 7_078, 62)
    assert list(vendor.cached) == [EXCHANGES["full-history"]]
    assert vendor.forget() == 1
    assert len(vendor.cached) == 0
    assert ask(vendor) == first


def test_the_snapshot_knows_when_it_was_captured_and_a_live_reply_is_no_snapshot() -> None:
    assert CassetteVendor().captured_at == datetime(2026, 8, 26, 7, 43, 14, tzinfo=UTC)
    assert LiveVendor(answering(200, "text/csv", b"")).captured_at is None


def test_another_currency_is_refused_offline_with_what_the_cassettes_hold() -> None:
    with pytest.raises(NotRecordedError, match=r"hold USD only, captured 2026-08-26; 'GBP' needs the live vendor"):
        ask(CassetteVendor(), "GBP")


def test_an_address_that_was_not_recorded_is_never_sent() -> None:
    with pytest.raises(NotRecordedError, match="holds no reply"):
        ask(LiveVendor(played(cassette_folder() / "easter-window.json")), "USD", Window(EASTER.first, EASTER.first))


def test_playing_leaves_other_clients_of_the_process_alone() -> None:
    untouched = httpx2.AsyncHTTPTransport.handle_async_request
    ask(CassetteVendor())
    assert httpx2.AsyncHTTPTransport.handle_async_request is untouched


def test_a_folder_without_cassettes_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotRecordedError, match=r"no cassette full-history\.json"):
        CassetteVendor(tmp_path)


def test_a_cassette_without_provenance_is_refused(tmp_path: Path) -> None:
    (tmp_path / "full-history.json").write_text('{"version": 1, "interactions": []}', "ascii")
    with pytest.raises(NotRecordedError, match="where it is from"):
        CassetteVendor(tmp_path)


def test_cassettes_in_the_package_come_before_those_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "top" / "reference" / "quenchz_reference"
    monkeypatch.setattr(vendor_module, "__file__", str(package / "vendor.py"))
    with pytest.raises(NotRecordedError):
        cassette_folder()
    for folder in (tmp_path / "top" / "cassettes", package / "cassettes"):
        folder.mkdir(parents=True)
        (folder / "full-history.json").touch()
        assert cassette_folder() == folder


def test_a_404_proves_nothing_about_the_series() -> None:
    with pytest.raises(StatusError, match="proves nothing") as refusal:
        ask(LiveVendor(played(cassette_folder() / "unknown-key.json")), "ZZZ")
    assert refusal.value.status == 404


def test_xml_under_status_200_is_refused_by_its_media_type() -> None:
    async def nonsense() -> Exchange:
        async with new_client(played(cassette_folder() / "nonsense-format.json")) as client:
            return await exchange(client, EXCHANGES["nonsense-format"])

    reply = anyio.run(nonsense)
    assert reply.status == 200
    with pytest.raises(ContentTypeError, match=r"answered 200 with application/vnd\.sdmx\.genericdata\+xml"):
        csvdata_body(reply)


# --- Live, by a transport of ours ------------------------------------------------------------------------------------


def test_a_window_is_asked_for_by_its_first_and_last_day() -> None:
    assert series_url("USD", EASTER) == EXCHANGES["easter-window"]
    assert series_url("USD") == EXCHANGES["full-history"]


def test_a_currency_cannot_leave_its_place_in_the_address() -> None:
    assert series_url("../?x=").startswith("https://data-api.ecb.europa.eu/service/data/EXR/D...%2F%3Fx%3D.EUR.SP00.A?")


REFUSED = {
    "HTML under 200": (ContentTypeError, 200, "text/html", b"<p>Request blocked</p>"),
    "JSON under 200": (ContentTypeError, 200, "application/json", b"{}"),
    "no media type": (ContentTypeError, 200, None, ONE_ROW),
    "HTML under 404": (ContentTypeError, 404, "text/html", b"<p>Not here</p>"),
    "csvdata under 500": (ContentTypeError, 500, "text/csv", ONE_ROW),
    "HTML under 400": (ContentTypeError, 400, "text/html", b"<p>Bad</p>"),
    "a redirect": (ContentTypeError, 302, None, b""),
    "a 404 of an outage": (StatusError, 404, "application/problem+json", b'{"detail":"No results found."}'),
    "a 406": (StatusError, 406, "application/problem+json;charset=utf-8", b"{}"),
    "XML that claims to be csv": (HeaderError, 200, "text/csv", b"<?xml version='1.0'?>"),
    "a row outside the window": (BodyError, 200, "text/csv", ONE_ROW.replace(b"2026-04-01", b"2026-05-04")),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_reply_that_cannot_be_right_is_refused_by_name(what: str) -> None:
    error, status, content_type, body = REFUSED[what]
    with pytest.raises(error) as refusal:
        ask(LiveVendor(answering(status, content_type, body)), "USD", EASTER)
    assert isinstance(refusal.value, VendorError)


def test_a_media_type_may_have_parameters_and_capitals() -> None:
    assert len(ask(LiveVendor(answering(200, "Text/CSV; charset=utf-8", ONE_ROW)), "USD", EASTER).rows) == 1


def test_a_reply_larger_than_the_cap_is_refused_before_it_is_read_to_its_end() -> None:
    read = 0

    async def long() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(1_000):
            read += 1_000
            yield b"x" * 1_000

    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(200, headers={"content-type": "text/csv"}, content=long())
    )
    with pytest.raises(TooLargeError, match="more than 5000 bytes"):
        ask(LiveVendor(transport, max_bytes=5_000))
    assert read <= 7_000


def test_a_reply_that_never_comes_is_given_up() -> None:
    async def never(_: httpx2.Request) -> httpx2.Response:
        await anyio.sleep_forever()
        raise AssertionError

    begin = perf_counter()
    with pytest.raises(LateError, match=r"within 0\.05 seconds"):
        ask(LiveVendor(httpx2.MockTransport(never), max_seconds=0.05))
    assert perf_counter() - begin < 2


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (httpx2.ConnectError("refused"), UnreachableError),
        (httpx2.RemoteProtocolError("cut"), UnreachableError),
        (httpx2.ProxyError("403"), UnreachableError),
        (httpx2.ReadTimeout("slow"), LateError),
    ],
)
def test_a_connection_that_fails_is_a_vendor_error(raised: Exception, error: type[VendorError]) -> None:
    def fail(_: httpx2.Request) -> httpx2.Response:
        raise raised

    with pytest.raises(error) as refusal:
        ask(LiveVendor(httpx2.MockTransport(fail)))
    assert type(refusal.value) is error


def counting(asked: list[str], **headers: str) -> httpx2.MockTransport:
    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        return httpx2.Response(200, headers=headers | {"content-type": "text/csv"}, content=b"")

    return httpx2.MockTransport(answer)


class HandClock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def kept_for(cache_control: str, wait: float, clock: Callable[[], float] | None = None) -> int:
    """How many requests two questions make that lie `wait` seconds apart."""
    asked: list[str] = []
    hand = HandClock()
    vendor = LiveVendor(counting(asked, **{"cache-control": cache_control}), clock=clock or hand)

    async def twice() -> None:
        await vendor.rows("USD", EASTER)
        hand.now += wait
        await vendor.rows("USD", EASTER)

    anyio.run(twice)
    return len(asked)


def test_a_live_reply_is_kept_for_as_long_as_the_vendor_allows_and_no_longer() -> None:
    assert kept_for("max-age=30", 29.9) == 1
    assert kept_for("max-age=30", 30) == 2
    assert kept_for("max-age=60, proxy-revalidate, no-transform", 59) == 1
    assert kept_for("no-store", 0) == 2
    assert kept_for("max-age=soon", 0) == 2


def test_an_error_is_not_kept() -> None:
    asked: list[str] = []

    def first_fails(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        status, media = (503, "text/html") if len(asked) == 1 else (200, "text/csv")
        return httpx2.Response(status, headers={"content-type": media, "cache-control": "max-age=60"})

    vendor = LiveVendor(httpx2.MockTransport(first_fails))
    with pytest.raises(ContentTypeError):
        anyio.run(vendor.rows, "USD", EASTER)
    assert anyio.run(vendor.rows, "USD", EASTER).rows == ()


def test_questions_for_the_same_rows_at_the_same_time_make_one_request() -> None:
    asked: list[str] = []
    vendor = LiveVendor(counting(asked, **{"cache-control": "max-age=30"}))

    async def together() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(vendor.rows, "USD", EASTER)

    anyio.run(together)
    assert asked == [EXCHANGES["easter-window"]]


def test_what_is_kept_is_bounded() -> None:
    vendor = LiveVendor(counting([], **{"cache-control": "max-age=30"}))

    async def many() -> None:
        for day in range(1, 29):
            for month in range(1, 13):
                await vendor.rows("USD", Window(date(2025, month, day), date(2025, month, day)))

    anyio.run(many)
    assert len(vendor.cached) == 64


def test_the_provenance_of_the_cassette_names_the_capture_that_the_vendor_reports() -> None:
    content = json.loads((cassette_folder() / "full-history.json").read_text("ascii"))
    captured_at = datetime.fromisoformat(content["metadata"]["provenance"]["captured_at"])
    assert CassetteVendor().captured_at == captured_at

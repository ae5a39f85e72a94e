"""`python -m quenchz_reference.record`: all six exchanges or none, and one clear sentence where there is no network."""

import json
import os
import subprocess
import sys
from datetime import date
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest

from quenchz_reference import record as recording
from quenchz_reference.certificates import Window
from quenchz_reference.record import EXCHANGES, main, record, write_all
from quenchz_reference.vendor import CassetteVendor, LiveVendor, VendorError, cassette_folder, played

BODIES = {
    url: json.loads((cassette_folder() / f"{name}.json").read_text("ascii"))["interactions"][0]["response"]
    for name, url in EXCHANGES.items()
}


def api(request: httpx2.Request) -> httpx2.Response:
    """The API as it was on 26 August 2026."""
    response = BODIES[str(request.url)]
    headers = [(name, value) for name, values in response["headers"].items() for value in values]
    return httpx2.Response(response["status"]["code"], headers=headers, content=response["body"]["string"].encode())


def test_without_a_network_it_says_so_in_one_sentence_and_writes_nothing(tmp_path: Path) -> None:
    # A proxy on a closed port of the loopback: there is surely no network behind it.
    surroundings = {
        **os.environ,
        "HTTPS_PROXY": "http://127.0.0.1:1",
        "https_proxy": "http://127.0.0.1:1",
        "NO_PROXY": "",
    }
    run = subprocess.run(
        [sys.executable, "-m", "quenchz_reference.record"],
        cwd=tmp_path,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout) == (3, "")
    assert run.stderr.startswith("No network: ")
    assert run.stderr.endswith("nothing was written.\n")
    assert run.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_new_recording_plays_like_the_old_one(tmp_path: Path) -> None:
    cassettes = anyio.run(record, httpx2.MockTransport(api))
    write_all(tmp_path / "new", cassettes)
    assert {file.name for file in (tmp_path / "new").iterdir()} == {f"{name}.json" for name in EXCHANGES}
    new, old = CassetteVendor(tmp_path / "new"), CassetteVendor()
    assert anyio.run(new.rows, "USD") == anyio.run(old.rows, "USD")
    assert new.captured_at is not None
    assert old.captured_at is not None
    assert new.captured_at > old.captured_at
    july = Window(date(2026, 7, 1), date(2026, 7, 31))
    assert anyio.run(LiveVendor(played(tmp_path / "new" / "july-2026.json")).rows, "USD", july) == anyio.run(
        old.rows, "USD", july
    )


def test_a_recording_states_that_it_is_one() -> None:
    for text in anyio.run(record, httpx2.MockTransport(api)).values():
        provenance = json.loads(text)["metadata"]["provenance"]
        assert provenance["body"] == "recorded by quenchz_reference.record"
        assert provenance["headers"] == "recorded with the body"


@pytest.mark.parametrize("failing", EXCHANGES)
def test_one_exchange_that_fails_leaves_every_cassette_as_it_was(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full-history.json").write_text("as it was")

    def broken(request: httpx2.Request) -> httpx2.Response:
        if str(request.url) == EXCHANGES[failing]:
            raise httpx2.ReadError("cut")
        return api(request)

    monkeypatch.setattr(recording, "record", partial(record, httpx2.MockTransport(broken)))
    assert main(["--into", str(tmp_path)]) == 3
    assert [file.name for file in tmp_path.iterdir()] == ["full-history.json"]
    assert (tmp_path / "full-history.json").read_text() == "as it was"


def test_a_page_of_an_intermediary_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    portal = httpx2.MockTransport(lambda _: httpx2.Response(200, html="<p>Log in to the network</p>"))
    monkeypatch.setattr(recording, "record", partial(record, portal))
    assert main(["--into", str(tmp_path)]) == 1
    assert "answered 200 with text/html" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_body_that_is_not_utf_8_is_not_recorded() -> None:
    def odd(request: httpx2.Request) -> httpx2.Response:
        if str(request.url) == EXCHANGES["nonsense-format"]:
            return httpx2.Response(200, content=b"\xff\xfe")
        return api(request)

    with pytest.raises(VendorError, match="not UTF-8"):
        anyio.run(record, httpx2.MockTransport(odd))


def test_a_disk_that_fails_halfway_leaves_every_cassette_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_text("as it was")
    write_text = Path.write_text

    def full(self: Path, data: str, encoding: str | None = None) -> int:
        if self.name == "b.json":
            raise OSError(28, "No space left on device")
        return write_text(self, data, encoding)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        write_all(tmp_path, {"a": "new", "b": "new"})
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "as it was"

"""The six cassettes are the exchanges of 26 August 2026, byte for byte, and can be rebuilt from the ECB's own file."""

import csv
import hashlib
import io
import json
import shutil
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from quenchz_reference.record import EXCHANGES
from quenchz_reference.target_calendar import is_closed

FOLDER = Path(__file__).resolve().parents[2] / "cassettes"

# What the public recording says: length, SHA-256, status, media type.
RECORDING = {
    "full-history": (1_479_424, "8a4a28c269cbe6bcb5ebaaa72102594afa5dcfc80c5ed125d673a48d1f3c4bd9", 200, "text/csv"),
    "easter-window": (1_990, "8115c9b9fbe9e87d2e20df74c236f86277dbb8b27f5582b2b4de5a4a959d2691", 200, "text/csv"),
    "weekend-window": (0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 200, "text/csv"),
    "july-2026": (5_108, "3dfbe47e333cc141bf1bf5d7c2695ccb17424fc46d76a63be7e4c9db07fadbd4", 200, "text/csv"),
    "unknown-key": (
        406,
        "a825c24327bbf50053033d2bb2b0dc449d023fb2c09748e82d9567d7ae61a5dd",
        404,
        "application/problem+json",
    ),
    "nonsense-format": (
        7_563,
        "00469d9c48e487fea48376203fc533e240117f525ac69d6047e34f097fd2cbcf",
        200,
        "application/vnd.sdmx.genericdata+xml;version=2.1",
    ),
}


def cassette(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("ascii"))
    return content


def body(name: str) -> bytes:
    text: str = cassette(name)["interactions"][0]["response"]["body"]["string"]
    return text.encode()


def rebuild(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "rebuild.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_there_are_exactly_six_cassettes() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == set(RECORDING) == set(EXCHANGES)


@pytest.mark.parametrize("name", RECORDING)
def test_a_body_has_the_length_and_the_hash_of_the_recording(name: str) -> None:
    length, sha256, _, _ = RECORDING[name]
    assert (len(body(name)), hashlib.sha256(body(name)).hexdigest()) == (length, sha256)


@pytest.mark.parametrize("name", RECORDING)
def test_a_cassette_states_where_it_is_from(name: str) -> None:
    length, sha256, status, media_type = RECORDING[name]
    content = cassette(name)
    (interaction,) = content["interactions"]
    provenance = content["metadata"]["provenance"]
    assert interaction["request"] == {"method": "GET", "uri": EXCHANGES[name], "body": "", "headers": {}}
    assert interaction["response"]["status"]["code"] == status
    assert interaction["response"]["headers"]["content-type"] == [media_type]
    assert provenance["url"] == EXCHANGES[name]
    assert (provenance["status"], provenance["bytes"], provenance["sha256"]) == (status, length, sha256)
    assert provenance["captured_at"] in {"2026-08-26T07:43:14Z", "2026-08-26T07:43:15Z"}
    assert interaction["response"]["headers"]["date"][0].endswith(provenance["captured_at"][11:19] + " GMT")
    assert provenance["body"].split()[0] in {"rebuilt", "copied", "zero"}
    assert "transcribed" in provenance["headers"]
    assert provenance["source"] == "ECB statistics."


def test_the_full_history_has_7140_rows_of_which_7078_values_and_62_placeholders() -> None:
    rows = list(csv.DictReader(io.StringIO(body("full-history").decode(), newline="")))
    values = [row for row in rows if row["OBS_VALUE"]]
    placeholders = [row for row in rows if not row["OBS_VALUE"]]
    assert (len(rows), len(values), len(placeholders)) == (7_140, 7_078, 62)
    assert {row["OBS_STATUS"] for row in values} == {"A"}
    assert {row["OBS_STATUS"] for row in placeholders} == {"H"}
    assert (rows[0]["TIME_PERIOD"], rows[-1]["TIME_PERIOD"]) == ("1999-01-04", "2026-08-25")


def test_the_placeholders_are_the_weekdays_on_which_target_was_closed_until_may_2012() -> None:
    rows = csv.DictReader(io.StringIO(body("full-history").decode(), newline=""))
    placeholders = [date.fromisoformat(row["TIME_PERIOD"]) for row in rows if not row["OBS_VALUE"]]
    days = [date(1999, 1, 4) + timedelta(days=n) for n in range((date(2012, 5, 1) - date(1999, 1, 4)).days + 1)]
    assert placeholders == [day for day in days if day.weekday() < 5 and is_closed(day)]


def test_the_payload_carries_the_time_1415_and_no_other() -> None:
    text = body("full-history").decode()
    assert text.count("2.15 pm (C.E.T.)") == 7_140
    assert not any(other in text for other in ("16:00", "4 pm", "14:10", "2.10 pm"))


def test_the_cassettes_stay_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*.*")) < 2_000_000


def test_rebuilding_gives_the_committed_files() -> None:
    run = rebuild("--check")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.count("equal") == 6


def test_a_changed_cassette_is_found(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    july = tmp_path / "july-2026.json"
    july.write_text(july.read_text("ascii").replace("1.1383", "1.1384"), "ascii")
    run = rebuild("--check", "--into", str(tmp_path))
    assert run.returncode == 1
    assert "DIFFERS  july-2026.json" in run.stdout
    assert run.stdout.count("DIFFERS") == 1
    assert rebuild("--into", str(tmp_path)).returncode == 0
    assert july.read_bytes() == (FOLDER / "july-2026.json").read_bytes()
    assert not list(tmp_path.glob(".recording-*"))

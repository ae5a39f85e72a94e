"""The server as a process: readiness, the tokens file, the end, and one line for each wrong option."""

import json
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from reference_support import LEGACY, MODERN, Wire

from quenchz_reference.options import DEFAULT_AS_OF, parse
from quenchz_reference.serving import address_of, bind

SCHEMA = json.loads(Path(__file__).parents[2].joinpath("spec/schemas/tokens-file.json").read_text("utf-8"))
MODULES = ["quenchz_reference", "quenchz.interop_server"]


@contextmanager
def process(*options: str, module: str = "quenchz_reference") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process and the address that its readiness line names."""
    command = [sys.executable, "-m", module, "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            assert line.startswith("quenchz reference ready: http://127.0.0.1:"), line
            yield server, line.split()[-1].removesuffix("/mcp")
        finally:
            if server.poll() is None:
                server.kill()


def ended(server: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str, str]:
    """Status, rest of the standard output and the standard error after a signal."""
    server.send_signal(number)
    out, err = server.communicate(timeout=10)
    return server.returncode, out, err


@pytest.mark.parametrize("module", MODULES)
def test_a_process_says_once_that_it_is_ready_serves_both_wires_and_ends_cleanly(module: str, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    with process("--tokens-file", str(tokens), module=module) as (server, address):
        content = json.loads(tokens.read_text("utf-8"))
        assert content["url"] == f"{address}/mcp"
        for revision in (MODERN, LEGACY):
            wire = Wire(address, content["callers"]["narrow"]["token"], revision)
            assert wire.call().status == 200
            wire.close()
        assert ended(server) == (0, "", "")


def test_a_token_of_64_kb_that_comes_in_pieces_is_refused_and_the_connection_kept(tmp_path: Path) -> None:
    """The limit for heads that are not complete yet lies beyond it; uvicorn's own answers 400 and breaks off."""
    head = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nAuthorization: Bearer " + b"a" * 70_000 + b"\r\n\r\n"
    with process("--tokens-file", str(tmp_path / "tokens.json")) as (_, address):
        parts = urlsplit(address)
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(2):
                for start in range(0, len(head), 16_384):
                    sock.sendall(head[start : start + 16_384])
                    time.sleep(0.005)
                sock.sendall(b"{}")
                assert sock.recv(65_536).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_open_stream_does_not_hold_up_the_end(number: int, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    with process("--tokens-file", str(tokens)) as (server, address):
        wire = Wire(address, json.loads(tokens.read_text("utf-8"))["callers"]["broad"]["token"])
        wire.ask_without_reading("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        status, out, _ = ended(server, number)
        wire.close()
    assert (status, out) == (0, "")


def test_the_tokens_file_is_private_and_valid_and_its_tokens_do_what_it_says(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text("old")
    tokens.chmod(0o644)
    with process("--tokens-file", str(tokens), "--log-level", "info") as (server, address):
        assert stat.S_IMODE(tokens.stat().st_mode) == 0o600
        assert [file.name for file in tmp_path.iterdir()] == ["tokens.json"]
        content = json.loads(tokens.read_text("utf-8"))
        Draft202012Validator.check_schema(SCHEMA)
        Draft202012Validator(SCHEMA, format_checker=FormatChecker()).validate(content)

        def status(token: str) -> int:
            wire = Wire(address, token)
            answer = wire.ask("tools/list")
            wire.close()
            return answer.status

        held = [held for caller in content["callers"].values() for held in (caller["token"], *caller["fresh_tokens"])]
        assert {status(token) for token in held} == {200}
        assert len(set(held)) == 75
        bad = {name: entry["token"] for name, entry in content["bad_tokens"].items()}
        assert {name: status(token) for name, token in bad.items()} == dict.fromkeys(bad, 401)
        assert content["granted"]["tools"] == ["exchange_rates", "latest_rate"]
        assert content["hidden"] == {
            "tools": ["full_history", "refresh_cache"],
            "prompts": ["audit_history"],
            "resources": ["rates://cache/state"],
            "resource_templates": ["rates://history/{currency}"],
        }
        _, out, err = ended(server)
    for token in [*held, *bad.values()]:
        assert not [part for part in token.split(".") if part in out + err]
    assert err.count("token refused: ") == 4


def test_a_bad_token_differs_from_the_good_one_in_one_claim(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    with process("--tokens-file", str(tokens)):
        content = json.loads(tokens.read_text("utf-8"))

    def claims(token: str) -> dict[str, Any]:
        import jwt

        decoded: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
        return decoded

    good = claims(content["callers"]["broad"]["token"])
    for name, entry in content["bad_tokens"].items():
        other = claims(entry["token"])
        changed = {claim for claim in good.keys() | other.keys() if good.get(claim) != other.get(claim)}
        assert changed == ({"exp"} if name == "expired" else {"aud"}), name
    fresh = [claims(token) for token in content["callers"]["broad"]["fresh_tokens"]]
    assert all({c for c in good if good[c] != one[c]} == {"jti"} for one in fresh)


WRONG: dict[str, tuple[list[str], str]] = {
    "no issuer": (["--port", "0"], "no issuer is trusted: give --tokens-file F, --trust-issuer URL"),
    "port": (["--tokens-file", "x", "--port", "65536"], "--port: '65536' is not a port"),
    "port in words": (["--tokens-file", "x", "--port", "http"], "--port: 'http' is not a port"),
    "reserves": (
        ["--tokens-file", "x", "--reserve", "a=20", "--reserve", "b=6"],
        "add up to 26 units, but --budget is 25",
    ),
    "reserve of nothing": (["--tokens-file", "x", "--reserve", "a=0"], "'0' is not a number of units"),
    "reserve without a name": (["--tokens-file", "x", "--reserve", "=1"], "'=1' is not a reserve"),
    "budget": (["--tokens-file", "x", "--budget", "-1"], "'-1' is not a number of units"),
    "window": (["--tokens-file", "x", "--window", "0"], "--window: '0' is not a length of time"),
    "window nan": (["--tokens-file", "x", "--window", "nan"], "--window: 'nan' is not a length of time"),
    "keys timeout": (["--tokens-file", "x", "--keys-timeout", "never"], "--keys-timeout: 'never' is not a length of"),
    "unknown callers": (
        ["--tokens-file", "x", "--unknown-callers", "grant:x"],
        "'grant:x' is not one of pool, refuse, grant:R",
    ),
    "as of": (["--tokens-file", "x", "--as-of", "2026-08-26T12:00:00"], "is not an instant with a time zone"),
    "issuer": (["--trust-issuer", "issuer.example"], "--trust-issuer: 'issuer.example' is not an absolute http(s) URI"),
    "resource": (["--tokens-file", "x", "--resource", "https://x/#f"], "--resource: 'https://x/#f' is not an absolute"),
    "vendor": (["--tokens-file", "x", "--vendor", "ecb"], "--vendor: invalid choice: 'ecb'"),
    "an option": (["--tokens-file", "x", "--tokens", "y"], "unrecognized arguments: --tokens y"),
    "a folder": (
        ["--port", "0", "--tokens-file", "/nowhere/at/all.json"],
        "--tokens-file /nowhere/at/all.json: No such file",
    ),
    "host": (["--tokens-file", "x", "--port", "0", "--host", "203.0.113.1"], "--host 203.0.113.1: Cannot assign"),
}


@pytest.mark.parametrize(("options", "text"), WRONG.values(), ids=WRONG)
def test_a_wrong_option_is_told_in_one_line(
    options: list[str], text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from quenchz_reference.__main__ import main

    monkeypatch.chdir(tmp_path)
    try:
        status = main(options)
    except SystemExit as leaving:
        status = leaving.code  # type: ignore[assignment]
    told = capsys.readouterr()
    assert (status, told.out, told.err.count("\n")) == (2, "", 1)
    assert text in told.err


def test_a_port_in_use_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "quenchz_reference", "--port", port, "--tokens-file", str(tmp_path / "t")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"quenchz_reference: --port {port} on 127.0.0.1: Address already in use; stop what")
    assert not (tmp_path / "t").exists()


def test_the_defaults_are_those_that_are_documented() -> None:
    found = parse(["--tokens-file", "x"])
    assert (found.host, found.port, found.budget, found.window) == ("127.0.0.1", 8931, 25, 2.0)
    assert (found.resource, found.framing, found.vendor) == ("https://rates.quenchz.invalid/mcp", "json", "cassette")
    assert found.reserves == {"broad": 5, "narrow": 5, "quiet": 5}
    assert found.as_of is not None
    assert found.as_of.isoformat().replace("+00:00", "Z") == DEFAULT_AS_OF
    assert str(found.unknown_callers) == "pool"
    assert (found.keys_refetch, found.keys_timeout, found.keys_keep) == (5.0, 5.0, 300.0)
    assert parse(["--tokens-file", "x", "--vendor", "live"]).as_of is None


def test_the_address_of_a_wildcard_socket_is_one_that_clients_can_use() -> None:
    with bind("0.0.0.0", 0) as everywhere:
        port = everywhere.getsockname()[1]
        assert address_of(everywhere, "https://rates.example/mcp") == "https://rates.example"
        assert address_of(everywhere, "https://rates.quenchz.invalid/mcp") == f"http://127.0.0.1:{port}"


def test_a_counterfeit_starts_with_the_same_options(tmp_path: Path) -> None:
    program = tmp_path / "counterfeit.py"
    program.write_text(
        "from dataclasses import replace\n"
        "from quenchz_reference.__main__ import main\n"
        "from quenchz_reference.audience import Audience\n"
        "from quenchz_reference.parts import recast\n"
        "class AcceptsAnyAudience(Audience):\n"
        "    def check_audience(self, claims):\n"
        "        pass\n"
        "raise SystemExit(main(alter=lambda p: replace(p, audience=recast(AcceptsAnyAudience, p.audience))))\n"
    )
    tokens = tmp_path / "tokens.json"
    command = [sys.executable, str(program), "--port", "0", "--tokens-file", str(tokens)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1].removesuffix("/mcp")
        bad = json.loads(tokens.read_text("utf-8"))["bad_tokens"]
        wires = {name: Wire(address, entry["token"]) for name, entry in bad.items()}
        statuses = {name: wire.ask("tools/list").status for name, wire in wires.items()}
        for wire in wires.values():
            wire.close()
        server.terminate()
    assert statuses == {"other_audience": 200, "two_audiences": 200, "no_audience": 200, "expired": 401}

"""The benchmark runs in a tiny form, and says what it must say; nothing here asserts a speed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

BENCH = Path(__file__).resolve().parents[2] / "bench"
TINY = ("--rounds", "1", "--examples", "1", "--calls", "24", "--callers", "8")


def module(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    """Import a module of the benchmark as the script does: its folder is on the path."""
    monkeypatch.syspath_prepend(BENCH)
    for sibling in ("bearer", "judging", "load", "servers"):
        monkeypatch.delitem(sys.modules, sibling, raising=False)
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, found)  # dataclasses look their module up
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    path = tmp_path_factory.mktemp("bench") / "bench.json"
    done = subprocess.run(
        [sys.executable, str(BENCH / "run.py"), *TINY, "--json", str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(path.read_text(encoding="utf-8"))


def test_every_goal_of_the_acceptance_is_measured(ran: tuple[str, dict[str, Any]]) -> None:
    names = [goal["name"] for goal in ran[1]["goals"]]
    for words in (
        "judge's requests/s over a bare client's (httpx2, the goal's denominator), trivial server",
        "judge's requests/s over a bare client's (http.client), trivial server",
        "judge's requests/s over a bare client's (httpx2, the goal's denominator), reference server",
        "judge's requests/s over a bare client's (http.client), reference server",
        "calls/s: reference server with its gates",
        "its tracing left out as here",
        "the same by server CPU per call",
        "1,000 tools over 1 tool",
        "gate 1, tokens unseen, over the SDK's path with the same verifier",
        "gate 1, tokens unseen, over the SDK's path with jwt.decode",
    ):
        assert [name for name in names if words in name], words
    assert sorted(goal["goal"] for goal in ran[1]["goals"]) == [
        "<= 1.00",
        "<= 1.00",
        "<= 1.15",
        *[">= 0.75"] * 4,
        *[">= 0.85"] * 3,
    ]


def test_ratios_are_positive_numbers_and_unmet_goals_come_first(ran: tuple[str, dict[str, Any]]) -> None:
    goals = ran[1]["goals"]
    assert all(ratio > 0 for goal in goals for ratio in [goal["got"], *goal["per_round"]])
    assert [goal["met"] for goal in goals] == sorted(goal["met"] for goal in goals)
    printed = [line for line in ran[0].splitlines() if "  goal " in line]
    assert [line.startswith("met ") for line in printed] == [goal["met"] for goal in goals]
    assert all(goal["name"] in line for goal, line in zip(goals, printed, strict=True))


def test_the_tables_name_every_server_and_client(ran: tuple[str, dict[str, Any]]) -> None:
    for words in ("playback", "httpx2", "http.client", "judge", "bare SDK", "reference", "1 tool", "1000 tools"):
        assert any(line.startswith((words, "playback", "reference")) and words in line for line in ran[0].splitlines())


def test_the_table_of_the_bearer_token_has_every_way_with_its_spread(ran: tuple[str, dict[str, Any]]) -> None:
    lines = ran[0].partition("One request through the bearer token, 8 tokens a round")[2].splitlines()
    ways = list(ran[1]["bearer CPU us per request"])
    assert ways == ["gate 1, token not seen before", "gate 1, token in its cache", *(w for w in ways if "SDK" in w)]
    for way in ways:
        (line,) = [line for line in lines if line.startswith(way)]
        median, lowest, highest = (float(word) for word in line.removeprefix(way).split())
        assert 0 < lowest <= median <= highest
    assert 0 < ran[1]["facts"]["bytes per cached token"] < 10_000


def test_a_token_that_is_not_let_through_voids_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    bearer = module(monkeypatch, "bearer")

    async def cost_behind_a_wrong_key() -> float:
        verifier = bearer.PlainVerifier("https://issuer.example", {})
        behind = bearer.Behind()
        return await bearer.cost(bearer.sdk_path(behind, verifier), behind, [b"a.b.c"])

    with pytest.raises(RuntimeError, match="a good token was answered 401"):
        asyncio.run(cost_behind_a_wrong_key())


def test_a_recorded_request_is_the_bytes_that_the_judge_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    judging = module(monkeypatch, "judging")
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                received.append(connection.recv(65_536))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Case: kept\r\n\r\n{}")

        thread = threading.Thread(target=answer)
        thread.start()
        with judging.Recorder("127.0.0.1", port) as recorder:
            headers = [("Content-Type", "application/json"), ("Mcp-Method", "ping")]
            recorder.exchange("POST", "/mcp", headers, b'{"id":1}', timeout=5, size_cap=1000)
        thread.join()
    (sent,) = recorder.exchanges
    assert sent.request(f"127.0.0.1:{port}") == received[0]
    assert sent.response() == b"HTTP/1.1 200 OK\r\nX-Case: kept\r\ncontent-length: 2\r\n\r\n{}"


def test_a_request_is_complete_with_its_last_body_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    playback = module(monkeypatch, "playback")
    request = b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody"
    assert playback.request_length(request + b"GET") == len(request)
    assert playback.request_length(b"DELETE / HTTP/1.1\r\nA: b\r\n\r\n") == 27
    assert {playback.request_length(request[:length]) for length in range(len(request))} == {None}


def test_an_answer_that_is_not_the_expected_one_voids_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    load = module(monkeypatch, "load")
    refusal = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown name"}}'
    failed = b'{"jsonrpc":"2.0","id":1,"result":{"isError":true,"structuredContent":{}}}'
    for body in (refusal, failed):
        with pytest.raises(load.VoidError):
            load.structured_content(body)
    playback = module(monkeypatch, "playback")
    servers = module(monkeypatch, "servers")
    answers = [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", b"HTTP/1.1 429 No\r\ncontent-length: 2\r\n\r\n{}"]
    with servers.running(server := servers.Server("playback", [playback.__file__ or ""])):
        request = load.request_of(server, None)
        server.feed(json.dumps([(request.decode(), answer.decode()) for answer in answers]))
        assert load.drive(server, iter([request] * 2), 2, b"{}").calls == 2
        with pytest.raises(load.VoidError, match="of 40 calls answered rightly"):
            load.drive(server, iter([request] * 40), 40, b"{}")
        assert server.cpu() > 0

"""A load client that costs little: prepared bytes over kept connections, every answer compared byte for byte."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from servers import Server

CONNECTIONS = 8
CALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "exchange_rates",
        "arguments": {"currency": "USD", "from": "2026-03-30", "to": "2026-04-10"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}
_BODY = json.dumps(CALL).encode()


class VoidError(RuntimeError):
    """What was measured is not what was meant to be: the figure does not count."""


@dataclass
class Load:
    """One measurement: calls that were answered rightly, and their cost."""

    calls: int
    seconds: float
    server_cpu: float

    @property
    def rate(self) -> float:
        """Calls per second."""
        return self.calls / self.seconds

    @property
    def cpu_per_call(self) -> float:
        """Microseconds of the server's CPU per call."""
        return self.server_cpu / self.calls * 1e6


def request_of(server: Server, token: str | None) -> bytes:
    """Return one tools/call as bytes, by the caller whose token it is. The JSON-RPC id is always the same."""
    fields = [
        f"Host: 127.0.0.1:{server.port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        "Mcp-Name: exchange_rates",
        f"Content-Length: {len(_BODY)}",
    ]
    if token is not None:
        fields.append(f"Authorization: Bearer {token}")
    return "\r\n".join(["POST /mcp HTTP/1.1", *fields, "", ""]).encode("ascii") + _BODY


@dataclass
class _State:
    requests: Iterator[bytes]
    expected: bytes | None
    right: int = 0
    wrong: bytes = b""
    bodies: list[bytes] = field(default_factory=list[bytes])


class _Connection(asyncio.Protocol):
    """One kept connection with one call in flight."""

    def __init__(self, state: _State, ended: asyncio.Future[None]) -> None:
        self._state = state
        self._ended = ended
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        length = self._buffer[:end].lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if not length.strip().isdigit():
            self._state.wrong = self._buffer[:end]
            self._stop()
            return
        whole = end + 4 + int(length)
        if len(self._buffer) < whole:
            return
        body = self._buffer[end + 4 : whole]
        if not self._buffer.startswith(b"HTTP/1.1 200 ") or body != (self._state.expected or body):
            self._state.wrong = self._buffer[:whole]
            self._stop()
            return
        if self._state.expected is None:
            self._state.bodies.append(body)
        self._state.right += 1
        self._buffer = self._buffer[whole:]
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if not self._ended.done():
            self._ended.set_result(None)

    def _next(self) -> None:
        request = None if self._state.wrong else next(self._state.requests, None)
        if request is None or self._transport is None:
            self._stop()
        else:
            self._transport.write(request)

    def _stop(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def _drive(port: int, state: _State) -> None:
    loop = asyncio.get_running_loop()
    ends: list[asyncio.Future[None]] = []
    for _ in range(CONNECTIONS):
        ended: asyncio.Future[None] = loop.create_future()
        ends.append(ended)
        await loop.create_connection(partial(_Connection, state, ended), "127.0.0.1", port)
    await asyncio.gather(*ends)


def drive(server: Server, requests: Iterator[bytes], calls: int, expected: bytes) -> Load:
    """Send `calls` requests over eight connections, one in flight on each.

    Raises:
        VoidError: an answer was not HTTP 200 with exactly the `expected` body, or did not come.
    """
    state = _State(islice(requests, calls), expected)
    cpu, began = server.cpu(), time.perf_counter()
    asyncio.run(_drive(server.port, state))
    load = Load(state.right, time.perf_counter() - began, server.cpu() - cpu)
    if state.wrong or state.right != calls:
        raise VoidError(f"{server.name}: {state.right} of {calls} calls answered rightly, then {state.wrong[:300]!r}")
    return load


def warm(server: Server, requests: Sequence[bytes]) -> bytes:
    """Send every request once, so that every token is verified; return the one body that all answers have.

    Raises:
        VoidError: an answer was no successful result with structured content, or two differed.
    """
    state = _State(iter(requests), None)
    asyncio.run(_drive(server.port, state))
    if state.wrong or state.right != len(requests):
        raise VoidError(f"{server.name}: {state.right} of {len(requests)} answered, then {state.wrong[:300]!r}")
    if len(set(state.bodies)) != 1:
        raise VoidError(f"{server.name}: {len(set(state.bodies))} different answers to one call")
    structured_content(state.bodies[0])
    return state.bodies[0]


def structured_content(body: bytes) -> dict[str, Any]:
    """Return the structured content of a successful answer.

    Raises:
        VoidError: it is none.
    """
    result = json.loads(body).get("result", {})
    content = result.get("structuredContent")
    if result.get("isError") or not isinstance(content, dict):
        raise VoidError(f"no result: {body[:300]!r}")
    return content

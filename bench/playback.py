"""The trivial server of the judge's benchmark: plays recorded answers in order, and says how well it was asked.

`python bench/playback.py` serves on a free loopback port, which it prints. What it serves it reads from standard input,
so that no token is ever in a file: one JSON document, a list of pairs of request and answer as latin-1 text. Every
connection starts at the first exchange: a request is answered with the recorded answer whose turn it is, whatever it
says. When a connection ends, one line of JSON says how many requests came and how many of them were the recorded bytes.

An answer costs it some 20 microseconds: little enough that it hides nothing of what its client costs.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys

_LENGTH = b"content-length:"


class Playback(asyncio.Protocol):
    """One connection."""

    def __init__(self, exchanges: list[tuple[bytes, bytes]]) -> None:
        self._exchanges = exchanges
        self._buffer = b""
        self._turn = 0
        self._identical = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self._buffer += data
        while self._transport is not None and (length := request_length(self._buffer)) is not None:
            request, self._buffer = self._buffer[:length], self._buffer[length:]
            if self._turn >= len(self._exchanges):
                self._transport.close()
                return
            recorded, answer = self._exchanges[self._turn]
            self._turn += 1
            self._identical += request == recorded
            self._transport.write(answer)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Say what came."""
        self._transport = None
        print(json.dumps({"requests": self._turn, "identical": self._identical}), flush=True)


def request_length(buffer: bytes) -> int | None:
    """Return how many bytes the first request of `buffer` has, or None while it is incomplete."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = buffer[:end].lower()
    at = head.find(_LENGTH)
    body = 0 if at < 0 else int(head[at + len(_LENGTH) :].partition(b"\r\n")[0])
    return end + 4 + body if len(buffer) >= end + 4 + body else None


async def serve() -> None:
    """Say where, read what, then play it until SIGTERM."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    # Named TCP by hand, or asyncio leaves Nagle's algorithm on.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # whoever connects before the exchanges are read waits for its answer
        print(f"playback ready: http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        text = await loop.run_in_executor(None, sys.stdin.read)
        pairs: list[tuple[str, str]] = json.loads(text or "[]")
        exchanges = [(request.encode("latin-1"), answer.encode("latin-1")) for request, answer in pairs]
        server = await loop.create_server(lambda: Playback(exchanges), sock=listener)
        async with server:
            await ended.wait()


if __name__ == "__main__":
    asyncio.run(serve())

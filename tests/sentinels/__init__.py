"""Sentinels: servers that do nothing right, none of which may ever earn a pass.

Two kinds. A `Sentinel` is useless from its first byte and is judged by its URL. A *turncoat* is the honest reference
server until both callers have listed everything, and useless from then on: the checks before a run do not see it, only
the control inside each example does. `python -m sentinels NAME OPTIONS` starts a turncoat with the options of the
reference server (tests/ on the path).
"""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Request:
    """One request as it came: method, target, header lines and body."""

    verb: str
    target: str
    head: bytes
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        """The JSON-RPC message in the body; empty when there is none."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


Answer = Callable[[Request], bytes | None]
"""What a sentinel sends for a request; None for never anything."""


def response(status: str, body: bytes = b"", *fields: str) -> bytes:
    """Return an HTTP answer with JSON as its type."""
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", *fields, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def constant(answer: bytes) -> Answer:
    """Return an answer that does not depend on the request."""
    return lambda _: answer


def echo(request: Request) -> bytes:
    """Send the request's own body back."""
    return response("200 OK", request.body)


TOOLS = ("exchange_rates", "latest_rate", "full_history", "refresh_cache")
_LISTED: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "tools/list": (
        "tools",
        [
            {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
            for name in ("exchange_rates", "latest_rate", "full_history", "refresh_cache")
        ],
    ),
    "prompts/list": ("prompts", [{"name": name} for name in ("explain_rate", "audit_history")]),
    "resources/list": ("resources", [{"uri": uri, "name": uri} for uri in ("rates://calendar", "rates://cache/state")]),
    "resources/templates/list": (
        "resourceTemplates",
        [{"uriTemplate": f"rates://{name}/{{currency}}", "name": name} for name in ("latest", "history")],
    ),
}


def grant_everything(request: Request) -> bytes:
    """Give a plausible result to anybody for anything, whatever the token."""
    message = request.message
    method, params = str(message.get("method", "")), message.get("params", {})
    if method.startswith("notifications/"):
        return response("202 Accepted")
    result: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
    if method in _LISTED:
        member, entries = _LISTED[method]
        result = {member: entries}
    elif method == "initialize":
        result = {"protocolVersion": params.get("protocolVersion"), "capabilities": {}, "serverInfo": {"name": "yes"}}
    elif method == "tools/call":
        result["structuredContent"] = {"observations": [["2026-04-01", 1.1]]}
    return response("200 OK", json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode())


HTML = b"<!doctype html><title>It works!</title>"
SENTINELS: dict[str, tuple[Answer, str]] = {
    "hang": (lambda _: None, "no bytes came"),
    "unauthorized": (constant(response("401 Unauthorized", b"", "WWW-Authenticate: Bearer")), "answered HTTP 401"),
    "forbidden": (constant(response("403 Forbidden", b'{"error":"no"}')), "answered HTTP 403"),
    "not_found": (constant(response("404 Not Found", b"{}")), "answered HTTP 404"),
    "too_many": (constant(response("429 Too Many Requests", b"{}", "Retry-After: 86400")), "HTTP 429"),
    "server_error": (constant(response("500 Internal Server Error", b"{}")), "answered HTTP 500"),
    "empty_object": (constant(response("200 OK", b"{}")), "answered HTTP 200 with an unreadable body"),
    "empty_body": (constant(response("200 OK")), "answered HTTP 200 with no body"),
    "web_page": (
        constant(response("200 OK", HTML).replace(b"application/json", b"text/html")),
        "answered HTTP 200 with an unreadable body",
    ),
    "redirect_loop": (constant(response("307 Temporary Redirect", b"", "Location: /mcp")), "answered HTTP 307"),
    "garbage": (constant(b"\x00\xff\x80 \r\n\r\nHTTP/9.9 wat\r\n"), "not HTTP/1.1"),
    "echo": (echo, "answered HTTP 200 with an unreadable body"),
}
"""Name, behaviour, and what the reason for not judging it says."""


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while (request := self._read()) is not None:
                answer = self.server.answer(request)
                self.server.requests.append(request)
                if answer is None:
                    self.server.over.wait()
                    return
                self.wfile.write(answer)

    def _read(self) -> Request | None:
        start = self.rfile.readline()
        if not start.strip():
            return None
        head = bytearray()
        while (line := self.rfile.readline()).strip():
            head += line
        lengths = [line for line in bytes(head).lower().split(b"\r\n") if line.startswith(b"content-length:")]
        body = self.rfile.read(int(lengths[0].split(b":")[1])) if lengths else b""
        verb, target, *_ = start.decode("latin-1").split(" ")
        return Request(verb, target, bytes(head), body)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.requests: list[Request] = []
        self.over = threading.Event()


@dataclass(frozen=True)
class Sentinel:
    """A running sentinel: where it is, and what it was sent."""

    url: str
    requests: list[Request]


@contextmanager
def running(answer: Answer) -> Iterator[Sentinel]:
    """Serve `answer` on a free loopback port."""
    server = _Server(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield Sentinel(f"http://127.0.0.1:{server.server_address[1]}/mcp", server.requests)
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def closed_url() -> str:
    """Return a URL at whose port nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}/mcp"

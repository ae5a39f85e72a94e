"""What the tests of the reference server share: honest parts, tokens, and a client that shows exact bytes."""

import http.client
import json
import select
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from mcp.shared.inbound import encode_header_value
from starlette.types import ASGIApp

from quenchz_reference.app import build_app
from quenchz_reference.issuer import ISSUER, InProcessIssuer
from quenchz_reference.options import DEFAULT_RESOURCE, parse
from quenchz_reference.parts import Parts
from quenchz_reference.serving import Alter, default_parts, serving_in_thread
from quenchz_reference.tokens_file import CALLERS

Json: TypeAlias = Any
"""A JSON value of any shape, wrong ones included."""

MODERN, LEGACY = "2026-07-28", "2025-11-25"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def claims_of(caller: str, now: float, **changes: Json) -> dict[str, Any]:
    """The claims of a good token, with changes; a change to None leaves the claim out."""
    claims = {
        "iss": ISSUER,
        "sub": caller,
        "aud": DEFAULT_RESOURCE,
        "exp": int(now) + 3600,
        "iat": int(now),
        "jti": "one",
        "scope": " ".join(CALLERS.get(caller, ())),
        "client_id": "test",
    } | changes
    return {name: value for name, value in claims.items() if value is not None}


@dataclass
class Answer:
    """Status, headers without Date, and body, as they came."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)

    @property
    def message(self) -> dict[str, Any]:
        """The JSON-RPC message, out of an event stream if need be."""
        text = self.body.decode()
        if (self.header("content-type") or "").startswith("text/event-stream"):
            text = next(line[5:] for line in text.splitlines() if line.startswith("data:"))
        message: dict[str, Any] = json.loads(text)
        return message


@dataclass
class Wire:
    """One caller on one protocol revision, over one kept connection."""

    address: str
    token: str | None
    revision: str = MODERN
    connection: http.client.HTTPConnection = field(init=False)
    session: str | None = None
    stream: http.client.HTTPResponse | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.address)
        self.connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
        if self.revision == LEGACY and self.token is not None:
            params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
            opened = self.ask("initialize", params)
            assert opened.status == 200, opened
            self.session = opened.header("mcp-session-id")
            self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def http(self, method: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Answer:
        sent = {"Accept": "application/json, text/event-stream", **(headers or {})}
        if self.token is not None and "Authorization" not in sent:
            sent["Authorization"] = f"Bearer {self.token}"
        if self.session is not None:
            sent["Mcp-Session-Id"] = self.session
        self.connection.request(method, "/mcp", body, sent)
        response = self.connection.getresponse()
        headers_seen = [(name, value) for name, value in response.getheaders() if name.lower() != "date"]
        return Answer(response.status, headers_seen, response.read())

    def post(self, message: Json, headers: Mapping[str, str] | None = None) -> Answer:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        sent = {"Content-Type": "application/json", "MCP-Protocol-Version": self.revision, **(headers or {})}
        return self.http("POST", body, sent)

    def ask(
        self, method: str, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        params = dict(params or {})
        sent: dict[str, str] = {}
        if self.revision == MODERN:
            params["_meta"] = META
            sent["Mcp-Method"] = method
            if method in NAMED_BY:
                sent["Mcp-Name"] = encode_header_value(params[NAMED_BY[method]])
        message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return self.post(message, {**sent, **(headers or {})})

    def ask_without_reading(self, method: str, params: Mapping[str, Any]) -> None:
        """Ask for a stream on 2026-07-28 and read no more than its head."""
        message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": META}}
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": method,
            "Authorization": f"Bearer {self.token}",
        }
        self.connection.request("POST", "/mcp", json.dumps(message), headers)
        self.stream = self.connection.getresponse()

    def read_event(self) -> bytes:
        """The data of the next event of the stream."""
        assert self.stream is not None
        while True:
            line = self.stream.readline()
            if line.startswith(b"data:") or not line:
                return line

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
        self.connection.close()

    def nothing_to_read(self, seconds: float = 0.3) -> bool:
        """Whether the stream stays silent for this long."""
        readable, _, _ = select.select([self.connection.sock], [], [], seconds)
        return not readable

    def call(self, name: str = "latest_rate", arguments: Mapping[str, Any] | None = None) -> Answer:
        return self.ask(
            "tools/call", {"name": name, "arguments": {"currency": "USD"} if arguments is None else arguments}
        )


@dataclass
class Running:
    """A reference server in a thread, and its issuer."""

    address: str
    issuer: InProcessIssuer
    parts: Parts
    wires: list[Wire] = field(default_factory=list)

    def token(self, caller: str, **changes: Json) -> str:
        return self.issuer.mint(claims_of(caller, self.parts.clock.now(), **changes))

    def wire(self, caller: str, revision: str = MODERN) -> Wire:
        return self.wire_with(self.token(caller), revision)

    def wire_with(self, token: str | None, revision: str = MODERN) -> Wire:
        """A connection that is closed when the server ends."""
        opened = Wire(self.address, token, revision)
        self.wires.append(opened)
        return opened


@contextmanager
def running(*options: str, alter: Alter = lambda parts: parts) -> Iterator[Running]:
    """Serve the honest parts, altered, with a budget that is no obstacle unless the options say so."""
    issuer = InProcessIssuer()
    found = parse(["--tokens-file", "unused", "--budget", "100000", *options])
    made: list[Parts] = []

    def app_of(address: str) -> ASGIApp:
        made.append(alter(default_parts(found, address, issuer)))
        return build_app(made[0])

    with serving_in_thread(app_of) as address:
        server = Running(address, issuer, made[0])
        try:
            yield server
        finally:
            for wire in server.wires:
                wire.close()

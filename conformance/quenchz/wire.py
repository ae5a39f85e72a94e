"""A request as bytes, for the two protocol revisions that are first class.

`2026-07-28` is stateless: each POST carries its method and name in headers and its version in `_meta`
(MCP 2026-07-28, basic/transports/streamable-http). `2025-11-25` opens a session with `initialize`.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quenchz_spec.vocabulary import Ask

STATELESS = "2026-07-28"
SESSIONS = "2025-11-25"
PROTOCOLS = (STATELESS, SESSIONS)

CLIENT = {"name": "quenchz", "version": "1"}
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

Headers = list[tuple[str, str]]


def request(ask: Ask, wire: str, rpc_id: int, session: str | None) -> tuple[Headers, str, int | None]:
    """Return the header fields (without credentials), the body, and the JSON-RPC id if the request has one."""
    headers: Headers = [("User-Agent", "quenchz"), ("Accept-Encoding", "identity")]
    if ask.verb != "POST":
        headers.append(("Accept", "text/event-stream" if ask.verb == "GET" else "application/json"))
        headers.append(("MCP-Protocol-Version", wire))
        if session is not None:
            headers.append(("Mcp-Session-Id", session))
        return headers, "", None
    headers += [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")]
    params = dict(ask.params)
    if ask.method == "initialize":
        params = {"protocolVersion": SESSIONS, "capabilities": {}, "clientInfo": CLIENT, **params}
    elif wire == STATELESS:
        headers += [("MCP-Protocol-Version", wire), ("Mcp-Method", ask.method)]
        if (member := _NAMED.get(ask.method)) is not None and isinstance(params.get(member), str):
            headers.append(("Mcp-Name", header_value(params[member])))
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": wire,
            "io.modelcontextprotocol/clientInfo": CLIENT,
            "io.modelcontextprotocol/clientCapabilities": {},
            **params.get("_meta", {}),
        }
    else:
        headers.append(("MCP-Protocol-Version", wire))
        if session is not None:
            headers.append(("Mcp-Session-Id", session))
    message: dict[str, Any] = {"jsonrpc": "2.0"}
    has_id = not ask.method.startswith("notifications/")
    if has_id:
        message["id"] = rpc_id
    message["method"] = ask.method
    if params:
        message["params"] = params
    body = json.dumps(message, ensure_ascii=False) if ask.body is None else ask.body
    return headers, body, rpc_id if has_id else None


def header_value(text: str) -> str:
    """Return `text` as a header value: itself if plain ASCII, else the Base64 sentinel form (Value Encoding)."""
    plain = text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?base64?")
    if plain:
        return text
    encoded = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")
    return f"=?base64?{encoded}?="


def is_answered(body: bytes) -> bool:
    """Whether an SSE body so far holds the response to a request: more of the stream is not waited for."""
    return b'"result"' in body or b'"error"' in body

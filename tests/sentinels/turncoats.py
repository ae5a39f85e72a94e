"""Turncoats: the reference server until both callers have listed everything, and useless from then on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LISTINGS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
HONEST_LISTINGS = 2 * len(LISTINGS)
"""Two callers list four kinds before a run begins."""


def _constant(status: int, body: bytes = b"", *headers: tuple[bytes, bytes]) -> App:
    async def app(_: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": body})

    return app


async def _hang(_: Scope, receive: Receive, send: Send) -> None:
    while (await receive())["type"] != "http.disconnect":
        await asyncio.sleep(0)


async def _empty_result(_: Scope, receive: Receive, send: Send) -> None:
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = bool(message.get("more_body"))
    found = json.loads(body) if body else {}
    answer = json.dumps({"jsonrpc": "2.0", "id": found.get("id"), "result": {}}).encode()
    fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": answer})


TURNCOATS: dict[str, App] = {
    "turns_to_500": _constant(500, b"{}"),
    "turns_to_401": _constant(401, b"", (b"www-authenticate", b"Bearer")),
    "turns_to_403": _constant(403, b"{}"),
    "turns_to_429": _constant(429, b"{}", (b"retry-after", b"1")),
    "turns_to_404": _constant(404, b"{}"),
    "turns_to_an_empty_object": _constant(200, b"{}"),
    "turns_to_an_empty_result": _empty_result,
    "turns_to_a_redirect": _constant(307, b"", (b"location", b"/mcp")),
    "turns_to_hanging": _hang,
}


def turn(app: App, then: App) -> App:
    """Return `app` until it has answered the listings of both callers, and `then` afterwards."""
    listed = 0

    async def either(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal listed
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        if listed >= HONEST_LISTINGS:
            await then(scope, receive, send)
            return
        body = b""

        async def watched() -> Scope:
            nonlocal body
            message = await receive()
            body += message.get("body", b"")
            return message

        await app(scope, watched, send)
        listed += any(f'"{method}"'.encode() in body for method in LISTINGS)

    return either

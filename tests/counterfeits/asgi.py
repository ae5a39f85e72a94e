"""What ASGI wrappers of several counterfeits share."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Claims = dict[str, Any]


def presented(scope: Scope) -> tuple[bytes, Claims] | None:
    """Return the token that a request presents and its claims, nothing of it verified, or None if there is none."""
    credentials = dict(scope["headers"]).get(b"authorization", b"")
    token = credentials.partition(b" ")[2]
    if not token:
        return None
    payload = token.split(b".")[1]
    return token, json.loads(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))


def heading(app: ASGIApp, change: Callable[[Scope, Message], None]) -> ASGIApp:
    """Change the status and the headers of every answer."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                change(scope, message)
            await send(message)

        await app(scope, receive, sending)

    return wrapped


async def asked(scope: Scope, receive: Receive) -> tuple[Claims, Receive]:
    """Return the JSON-RPC message of a request, and a channel that hands its body out again."""
    body = await Request(scope, receive).body() if scope["type"] == "http" and scope["method"] == "POST" else b""
    first = iter([{"type": "http.request", "body": body, "more_body": False}] if body else [])

    async def again() -> Message:
        return next(first, None) or await receive()

    return json.loads(body or b"{}"), again

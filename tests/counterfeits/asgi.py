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
    """Return the bearer token that a request presents and its claims, nothing of it verified, or None without one.

    What cannot be read as a JWT claims nothing.
    """
    scheme, _, token = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"bearer" or not token:
        return None
    return token, segment_of(token, 1)


def segment_of(token: bytes, number: int) -> Claims:
    """Return a segment of a JWT as an object; what cannot be read is an empty one."""
    try:
        segment = token.split(b".")[number]
        return object_of(base64.urlsafe_b64decode(segment + b"=" * (-len(segment) % 4)))
    except (IndexError, ValueError):
        return {}


def object_of(text: bytes) -> Claims:
    """Return JSON text as an object; what is none is an empty one."""
    try:
        found = json.loads(text or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def bearing(scope: Scope, token: bytes) -> Scope:
    """Return a request that bears one token, in the one place for it."""
    others = [(key, value) for key, value in scope["headers"] if key != b"authorization"]
    return {**scope, "headers": [*others, (b"authorization", b"Bearer " + token)]}


def heading(app: ASGIApp, change: Callable[[Scope, Message], None]) -> ASGIApp:
    """Change the status and the headers of every answer."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                change(scope, message)
            await send(message)

        await app(scope, receive, sending)

    return wrapped


async def body_of(scope: Scope, receive: Receive) -> tuple[bytes, Receive]:
    """Return the body of a request, and a channel that hands it out again."""
    body = await Request(scope, receive).body() if scope["type"] == "http" and scope["method"] == "POST" else b""
    first = iter([{"type": "http.request", "body": body, "more_body": False}] if body else [])

    async def again() -> Message:
        return next(first, None) or await receive()

    return body, again


async def asked(scope: Scope, receive: Receive) -> tuple[Claims, Receive]:
    """Return the JSON-RPC message of a request, empty if there is none, and a channel that hands its body out again."""
    body, again = await body_of(scope, receive)
    return object_of(body), again

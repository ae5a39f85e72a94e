"""Variants that change what leaves the server."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from variants import wrapping

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]


def _with_headers(app: App, change: Callable[[int, list[Header]], Iterable[Header]]) -> App:
    async def changed(scope: Message, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": list(change(message["status"], list(message["headers"])))}
            await send(message)

        await app(scope, receive, sending)

    return changed


@wrapping
def headers_reversed(app: App) -> App:
    """Response headers stand in the opposite order."""
    return _with_headers(app, lambda _, headers: reversed(headers))


@wrapping
def trace_id(app: App) -> App:
    """Every response has a trace id that varies."""
    return _with_headers(app, lambda _, headers: [*headers, (b"x-trace-id", secrets.token_hex(8).encode())])


@wrapping
def sometimes_a_hint(app: App) -> App:
    """Every other response has a header more, in the order of all responses."""
    served = 0

    def change(_: int, headers: list[Header]) -> list[Header]:
        nonlocal served
        served += 1
        return [*headers, (b"server-timing", b"app;dur=1")] if served % 2 else headers

    return _with_headers(app, change)


@wrapping
def described_refusals(app: App) -> App:
    """A refusal has a realm, and for any bad token the same description."""

    def change(status: int, headers: list[Header]) -> list[Header]:
        if status != 401:
            return headers
        more = b'Bearer realm="rates of exchange, daily", '
        described = b'error="invalid_token", error_description="This token is not good here: get another.", '
        return [
            (name, value.replace(b"Bearer ", more, 1).replace(b'error="invalid_token", ', described))
            if name == b"www-authenticate"
            else (name, value)
            for name, value in headers
        ]

    return _with_headers(app, change)


@wrapping
def challenges_of_two_schemes(app: App) -> App:
    """A refusal offers DPoP before Bearer in one field; parameters stand in another order, quoted only if need be."""

    def change(status: int, headers: list[Header]) -> list[Header]:
        if status != 401:
            return headers
        return [(name, _rewritten(value) if name == b"www-authenticate" else value) for name, value in headers]

    return _with_headers(app, change)


def _rewritten(challenge: bytes) -> bytes:
    *error, metadata = challenge.removeprefix(b"Bearer ").split(b", ")
    bare = [parameter.replace(b'"', b"") for parameter in error]
    offered = [
        metadata.replace(b"resource_metadata=", b"Resource_Metadata = "),
        b'scope="rates:read rates:history"',
        *bare,
    ]
    return b'DPoP algs="ES256 EdDSA", bearer ' + b" , ".join(offered)


@wrapping
def one_thing_a_page(app: App) -> App:
    """Listings have one entry a page."""

    async def paged(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        body = await _whole(receive)
        asked = _object(body)
        members = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}
        members["resources/templates/list"] = "resourceTemplates"
        member = members.get(str(asked.get("method")))
        params = asked.get("params")
        cursor = params.pop("cursor", None) if isinstance(params, dict) else None
        at = int(cursor) if isinstance(cursor, str) and cursor.isascii() and cursor.isdigit() else 0
        if member is None or (cursor is not None and str(at) != cursor):
            await app(scope, _again(body, receive), send)
            return
        sent: list[Message] = []

        async def keep(message: Message) -> None:
            sent.append(message)

        await app(_with_length(scope, len(json.dumps(asked))), _again(json.dumps(asked).encode(), receive), keep)
        answer = b"".join(message.get("body", b"") for message in sent[1:])
        found = _object(answer)
        if isinstance(found.get("result"), dict):
            everything = found["result"][member]
            found["result"][member] = everything[at : at + 1]
            if at + 1 < len(everything):
                found["result"]["nextCursor"] = str(at + 1)
            answer = json.dumps(found).encode()
        headers = [(k, v) for k, v in sent[0]["headers"] if k.lower() != b"content-length"]
        await send({**sent[0], "headers": [*headers, (b"content-length", str(len(answer)).encode())]})
        await send({"type": "http.response.body", "body": answer})

    return paged


def _with_length(scope: Message, length: int) -> Message:
    headers = [(k, v) for k, v in scope["headers"] if k != b"content-length"]
    return {**scope, "headers": [*headers, (b"content-length", str(length).encode())]}


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


async def _whole(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return body


def _again(body: bytes, receive: Receive) -> Receive:
    handed_out = False

    async def once_more() -> Message:
        nonlocal handed_out
        if handed_out:
            return await receive()
        handed_out = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once_more

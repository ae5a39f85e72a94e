"""The server: four gates in the order in which a request meets them, around the official SDK."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from quenchz_reference.parts import Parts
from quenchz_reference.scopes import READ

ENDPOINT = "/mcp"
"""Path of the one MCP endpoint; `/mcp/` is another path and not found."""

_METADATA = "/.well-known/oauth-protected-resource"
_INSTRUCTIONS = (
    "Euro foreign exchange reference rates of the European Central Bank. Every answer carries a certificate, "
    "`coverage`, that says what became of each requested calendar day. The rates are for reference, not for trading."
)
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def build_app(parts: Parts) -> ASGIApp:
    """The ASGI application made of `parts`: gate 1 outermost, then gates 2, 3 and 4."""
    handlers = parts.handlers(parts.catalogue, parts.access, parts.service)
    server: Server[Any] = Server(
        "quenchz-reference",
        version=version("quenchz"),
        title="QUENCHZ reference server",
        instructions=_INSTRUCTIONS,
        get_tool_input_schema=handlers.input_schema,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_completion=handlers.complete,
        on_subscriptions_listen=handlers.listen,
    )
    # By default its one member opens a tracing span that bears the name which was asked for. That name is the caller's
    # own text and may be anything, even a token; and nobody collects spans here.
    server.middleware.clear()
    manager = StreamableHTTPSessionManager(
        server, json_response=parts.options.framing == "json", security_settings=_loopback_only(parts.address)
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with manager.run():
            try:
                yield
            finally:
                handlers.streams.close()
                await parts.trust.aclose()
                await parts.service.aclose()

    metadata_url = f"{parts.address}{_METADATA}{ENDPOINT}"
    charged = parts.reserves_gate(manager.handle_request, parts.budgets, parts.charges)
    gated = parts.audience_gate(charged, parts.audience, metadata_url)
    paths = {_METADATA, f"{_METADATA}{ENDPOINT}", f"{_METADATA}{urlsplit(parts.audience.resource).path.rstrip('/')}"}
    endpoint = partial(_metadata, _metadata_document(parts))
    elsewhere = Starlette(routes=[Route(path, endpoint) for path in sorted(paths)], lifespan=lifespan)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        is_endpoint = scope["type"] == "http" and scope["path"] == ENDPOINT
        await (gated if is_endpoint else elsewhere)(scope, receive, send)

    return app


def _metadata_document(parts: Parts) -> dict[str, Any]:
    """Protected resource metadata (RFC 9728 section 2); only the scope that makes the server useful is named."""
    return {
        "resource": parts.audience.resource,
        "authorization_servers": list(parts.trust.names()),
        "scopes_supported": [READ],
        "bearer_methods_supported": ["header"],
        "resource_name": "QUENCHZ reference server",
    }


async def _metadata(document: dict[str, Any], _: Request) -> JSONResponse:
    return JSONResponse(document)


def _loopback_only(address: str) -> TransportSecuritySettings | None:
    """On loopback, refuse the Host and Origin of other names: a web page could rebind its own name to 127.0.0.1."""
    host = urlsplit(address).netloc.rpartition(":")[0]
    if host not in _LOOPBACK:
        return None
    hosts = [f"{name}{port}" for name in _LOOPBACK for port in ("", ":*")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[f"http://{name}" for name in hosts],
    )

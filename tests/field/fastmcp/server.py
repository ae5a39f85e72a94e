"""A FastMCP server with bearer tokens and a scope per component, as FastMCP's own documentation sets one up.

It runs in the environment that `environment.py` makes and imports nothing of this project. Token verification
(`JWTVerifier` inside `RemoteAuthProvider`) follows the documentation's pages "Token Verification" and "Remote OAuth",
the scopes (`auth=require_scopes(...)` on each tool, prompt and resource) its page "Authorization", all for FastMCP 4.2.
Nothing is tuned: options that those pages do not set keep their defaults. It is a foreign server, so it has no budget
and its answers carry no certificate.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider, require_scopes
from fastmcp.server.auth.providers.jwt import JWTVerifier
from mcp_types import ToolAnnotations
from pydantic import AnyHttpUrl

if TYPE_CHECKING:
    from collections.abc import Generator

PATH = "/mcp"
READ = "rates:read"
ADMIN = "rates:admin"


@dataclass(frozen=True)
class Rate:
    """One fixed euro reference rate: units of `currency` for one euro on `date` (ISO 8601)."""

    currency: str
    date: str
    rate: float


def build(issuer: str, jwks_url: str, resource: str) -> FastMCP:
    """Build the server.

    Args: the issuer whose tokens it trusts, where that issuer's keys are, and the resource a token must be for, whose
    path ends in `/mcp`, since FastMCP derives the metadata's `resource` (RFC 9728) from a base URL and its own path.
    Raises: ValueError if the resource's path does not end so.
    """
    base_url = resource.removesuffix(PATH)
    if base_url == resource:
        raise ValueError(f"resource {resource!r} does not end in {PATH!r}, the path that this server is served at")
    verifier = JWTVerifier(jwks_uri=jwks_url, issuer=issuer, audience=resource, algorithm="ES256")
    auth = RemoteAuthProvider(
        token_verifier=verifier,
        authorization_servers=[AnyHttpUrl(issuer)],
        base_url=base_url,
        scopes_supported=[READ, ADMIN],
    )
    mcp: FastMCP = FastMCP(name="field-rates", version="1.0.0", auth=auth)

    @mcp.tool(auth=require_scopes(READ), annotations=ToolAnnotations(read_only_hint=True))
    async def exchange_rate(currency: str) -> Rate:
        """Give the rate of a currency."""
        return Rate(currency=currency, date="2026-04-10", rate=1.1711)

    @mcp.tool(auth=require_scopes(ADMIN), annotations=ToolAnnotations(read_only_hint=True))
    async def reprice(currency: str) -> Rate:
        """Work the rate of a currency out anew."""
        return Rate(currency=currency, date="2026-04-10", rate=1.1712)

    @mcp.prompt(auth=require_scopes(READ))
    async def explain_rate(currency: str) -> str:
        """Ask for an explanation of a rate."""
        return f"Explain the euro reference rate of {currency}."

    @mcp.prompt(auth=require_scopes(ADMIN))
    async def audit_rates(currency: str) -> str:
        """Ask for an audit of a rate."""
        return f"Audit the euro reference rate of {currency}."

    @mcp.resource("rates://calendar", auth=require_scopes(READ))
    async def calendar() -> str:
        """Say on which days there are rates."""
        return "TARGET days"

    @mcp.resource("rates://cache/state", auth=require_scopes(ADMIN))
    async def cache_state() -> str:
        """Say what is cached."""
        return "empty"

    return mcp


class Server(uvicorn.Server):
    """uvicorn that says when it is ready and ends with exit code 0 on SIGTERM and SIGINT."""

    def __init__(self, config: uvicorn.Config, url: str) -> None:
        super().__init__(config)
        self.url = url

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop on a signal; uvicorn's own version raises the signal again after the shutdown."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, then print the readiness line."""
        await super().startup(sockets)
        print(f"field server ready: {self.url}", flush=True)


def main() -> None:
    """Serve on loopback until SIGTERM."""
    parser = argparse.ArgumentParser(description="A FastMCP server with bearer tokens and a scope per component")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--issuer", required=True, metavar="URL", help="the issuer whose tokens are trusted")
    parser.add_argument("--jwks-url", required=True, metavar="URL", help="where that issuer's keys are")
    parser.add_argument("--resource", required=True, metavar="URI", help="what a token must be for; ends in /mcp")
    options = parser.parse_args()
    try:
        mcp = build(options.issuer, options.jwks_url, options.resource)
    except ValueError as error:
        parser.error(str(error))
    # The protocol number is named because asyncio sets TCP_NODELAY only on sockets that carry it.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", options.port))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}{PATH}"
        config = uvicorn.Config(mcp.http_app(path=PATH), lifespan="on", log_level="warning", access_log=False)
        asyncio.run(Server(config, url).serve(sockets=[listener]))


if __name__ == "__main__":
    main()

"""The denominator of the server benchmark: the SDK's own low-level server with nothing of ours around it.

No bearer token, no ledger, no certificate: one async tool that answers a constant of the reference server's size, over
the same transport (streamable HTTP, JSON answers) and the same stack (uvicorn, h11, asyncio). The answer's text is
serialised once, ahead, so that the denominator is as fast as the SDK allows and the ratio is never flattered.

`python bench/bare_server.py --port 0 --tools N`
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import socket
from typing import TYPE_CHECKING, Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from mcp.server.context import ServerRequestContext

CALLED = "exchange_rates"

# The reference server's answer to USD, 2026-03-30 to 2026-04-10 (Easter), as of 2026-08-26T12:00:00Z.
ANSWER: dict[str, Any] = {
    "observations": [
        ["2026-03-30", 1.1484],
        ["2026-03-31", 1.1498],
        ["2026-04-01", 1.1605],
        ["2026-04-02", 1.1525],
        ["2026-04-07", 1.1557],
        ["2026-04-08", 1.1706],
        ["2026-04-09", 1.1685],
        ["2026-04-10", 1.1711],
    ],
    "coverage": {
        "requested_from": "2026-03-30",
        "requested_to": "2026-04-10",
        "requested_calendar_days": 12,
        "expected_observations": 8,
        "delivered_observations": 8,
        "delivered_from": "2026-03-30",
        "delivered_to": "2026-04-10",
        "absent": {
            "target_closed": 4,
            "not_yet_published": 0,
            "no_such_observation": 0,
            "before_the_series": 0,
        },
        "window_still_open": False,
        "body_completed_at": "2026-08-26T12:00:00Z",
        "source": "ECB statistics.",
    },
    "source": "ECB statistics.",
}
ANSWER_TEXT = json.dumps(ANSWER, separators=(",", ":"))

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
        "from": {"type": "string", "format": "date"},
        "to": {"type": "string", "format": "date"},
    },
    "required": ["currency", "from", "to"],
    "additionalProperties": False,
}


def build(tools: int, *, tracing: bool = True) -> Server[Any]:
    """Build the server.

    Args: how many tools it lists, one or more; the first is `exchange_rates`, the only one that is meant to be called;
    whether the SDK's tracing middleware stays, as it is by default.
    """
    names = [CALLED, *(f"unused_tool_{number:04d}" for number in range(1, tools))]
    listing = [
        Tool(
            name=name,
            description="Euro reference rates of a currency over a window of days.",
            input_schema=INPUT_SCHEMA,
            annotations=ToolAnnotations(read_only_hint=True),
        )
        for name in names
    ]
    schemas = dict.fromkeys(names, INPUT_SCHEMA)

    async def list_tools(
        context: ServerRequestContext[Any],  # noqa: ARG001 (the SDK's signature)
        params: PaginatedRequestParams | None,  # noqa: ARG001
    ) -> ListToolsResult:
        return ListToolsResult(tools=listing)

    async def call_tool(
        context: ServerRequestContext[Any],  # noqa: ARG001
        params: CallToolRequestParams,
    ) -> CallToolResult:
        if params.name != CALLED:
            raise MCPError(INVALID_PARAMS, "Unknown tool")
        return CallToolResult(content=[TextContent(type="text", text=ANSWER_TEXT)], structured_content=ANSWER)

    # Given a lookup, the SDK does not list all tools on every call (measured: 80 times the CPU at 1000 tools).
    server = Server(
        "bare", version="1.0.0", get_tool_input_schema=schemas.get, on_list_tools=list_tools, on_call_tool=call_tool
    )
    if not tracing:
        server.middleware.clear()
    return server


class BareServer(uvicorn.Server):
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
        print(f"bare server ready: {self.url}", flush=True)


def main() -> None:
    """Serve on loopback until SIGTERM."""
    parser = argparse.ArgumentParser(description="The bare SDK server that the reference server is measured against")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--no-tracing", action="store_true", help="leave out the SDK's tracing middleware")
    parser.add_argument("--tools", type=int, default=1, metavar="N", help="how many tools are listed")
    options = parser.parse_args()
    if options.tools < 1:
        parser.error(f"--tools {options.tools}: there is at least one tool, the one that is called")
    app = build(options.tools, tracing=not options.no_tracing).streamable_http_app(json_response=True)
    # asyncio sets TCP_NODELAY on accepted sockets only if the listener names its protocol; uvicorn's own does not, and
    # without it small answers may wait for the client's delayed acknowledgement (tens of milliseconds).
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", options.port))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        config = uvicorn.Config(
            app, loop="asyncio", http="h11", ws="none", lifespan="on", log_level="warning", access_log=False
        )
        asyncio.run(BareServer(config, url).serve(sockets=[listener]))


if __name__ == "__main__":
    main()

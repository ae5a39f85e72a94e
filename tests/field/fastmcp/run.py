"""Start and end the FastMCP field server as a process of its own environment."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from field.fastmcp import environment
from field.processes import serving

if TYPE_CHECKING:
    from collections.abc import Generator

SERVER = Path(__file__).resolve().parent / "server.py"
READY = "field server ready: "


@contextlib.contextmanager
def start(
    issuer: str, jwks_url: str, resource: str, *, ready_within: float = 30.0, ended_within: float = 10.0
) -> Generator[str]:
    """Run the field server and yield its URL; end it, by its id, on the way out.

    Args: the issuer it trusts, the URL of that issuer's JWKS, the resource that tokens are for (ends in `/mcp`), and
    how many seconds it has to become ready and, after SIGTERM, to end before it is killed.
    Raises: FieldServerError if it ends or says nothing before it is ready; FileNotFoundError if its environment has
    not been made (`environment.py` makes it, which takes a package index or a filled cache and is therefore not done
    here).
    """
    if not environment.is_ready():
        raise FileNotFoundError(
            f"no current environment in {environment.ENVIRONMENT}: run python {SERVER.with_name('environment.py')}"
        )
    command = [str(environment.PYTHON), "-I", str(SERVER), "--port", "0"]
    command += ["--issuer", issuer, "--jwks-url", jwks_url, "--resource", resource]
    # FastMCP reads its settings from FASTMCP_ variables (-I covers Python's own), and from a .env file of the working
    # directory, which is therefore empty: what is measured is the defaults.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("FASTMCP_")}
    with serving(command, READY, variables=variables, ready_within=ready_within, ended_within=ended_within) as url:
        yield url

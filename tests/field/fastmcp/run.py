"""Start and end the FastMCP field server as a process of its own environment."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from field.fastmcp import environment

if TYPE_CHECKING:
    from collections.abc import Generator

SERVER = Path(__file__).resolve().parent / "server.py"
READY = "field server ready: "


class FieldServerError(RuntimeError):
    """The field server did not become ready; the text ends with what it wrote to standard error."""


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
    # FastMCP reads its settings from FASTMCP_ variables (-I covers Python's own): what is measured is the defaults.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("FASTMCP_")}
    with (
        tempfile.TemporaryDirectory() as folder,  # FastMCP also reads a .env file of the working directory
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            line = _first_line(process, ready_within)
            if not line.startswith(READY):
                errors.seek(0)
                said = errors.read().decode(errors="replace")[-2000:]
                raise FieldServerError(
                    f"got {line!r} in place of the readiness line (waited up to {ready_within} s); {said}"
                )
            yield line.removeprefix(READY).strip()
        finally:
            process.terminate()
            try:
                process.wait(ended_within)
            except subprocess.TimeoutExpired:
                process.kill()


def _first_line(process: subprocess.Popen[bytes], within: float) -> str:
    """Read the first line of a process's output; "" if it ends, or is silent for `within` seconds."""
    lines: list[bytes] = []

    def read() -> None:
        if process.stdout is not None:
            lines.append(process.stdout.readline())

    # A thread, since a pipe has no read with a limit on every platform; the process's end ends it too.
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(within)
    return lines[0].decode(errors="replace") if lines else ""

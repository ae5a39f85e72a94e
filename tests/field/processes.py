"""Servers of the field as processes: each says in one line that it is ready, and ends by its id."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence


class FieldServerError(RuntimeError):
    """A field server did not become ready; the text ends with what it wrote to standard error."""


@contextlib.contextmanager
def serving(
    command: Sequence[str],
    ready: str,
    *,
    variables: Mapping[str, str] | None = None,
    ready_within: float = 30.0,
    ended_within: float = 10.0,
) -> Generator[str]:
    """Run a command in an empty folder and yield the URL that follows `ready` in its first line; end it afterwards.

    Args: the command, the beginning of its readiness line, its environment (ours by default), and how many seconds it
    has to become ready and, after SIGTERM, to end before it is killed.
    Raises: FieldServerError if it ends or says something else before it is ready.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            line = _first_line(process, ready_within)
            if not line.startswith(ready):
                errors.seek(0)
                said = errors.read().decode(errors="replace")[-2000:]
                raise FieldServerError(
                    f"got {line!r} in place of the readiness line (waited up to {ready_within} s); {said}"
                )
            yield line.removeprefix(ready).strip()
        finally:
            process.terminate()
            try:
                process.wait(ended_within)
            except subprocess.TimeoutExpired:
                process.kill()


def reference(*options: str) -> contextlib.AbstractContextManager[str]:
    """Run the reference server with options and yield its URL.

    Its budget is far above what a test asks for: budgets are not the question here.
    """
    command = [sys.executable, "-m", "quenchz_reference", "--budget", "999999", *options]
    return serving(command, "quenchz reference ready: ")


@contextlib.contextmanager
def kept_port() -> Generator[int]:
    """Yield a loopback port that the kernel gives to nobody else who asks for a free one.

    For a server whose address must be known before it starts. The port is bound and not listened on, so that a server
    that sets SO_REUSEADDR, as servers do, can still bind it.
    """
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", 0))
        yield keeper.getsockname()[1]


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

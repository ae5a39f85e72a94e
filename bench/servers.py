"""Server processes of the benchmark: start, readiness, CPU time, a core of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

FOLDER = Path(__file__).resolve().parent
CORES = sorted(os.sched_getaffinity(0))
"""The cores this process may use: servers get the first, clients the last."""


class StartError(RuntimeError):
    """A server ended before it was ready."""


class Server:
    """A server process. It serves on loopback and prints one line that ends in its URL when it is ready."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = ""

    def ready(self) -> None:
        """Wait for the readiness line.

        Raises:
            StartError: there is none; what the server wrote to standard error is on the terminal.
        """
        line = self.line()
        self.url = line.rpartition(" ")[2].strip()
        if not self.url.startswith("http://127.0.0.1:"):
            raise StartError(f"{self.name} did not start (exit {self._process.poll()}); it said {line.strip()!r}")
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():  # later threads inherit it
            os.sched_setaffinity(int(task.name), {CORES[0]})

    @property
    def port(self) -> int:
        """Where it listens."""
        return urlsplit(self.url).port or 0

    def line(self) -> str:
        """Return the next line of its standard output, waiting for it."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def feed(self, text: str) -> None:
        """Write all of its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.close()

    def cpu(self) -> float:
        """Return the CPU seconds of its living threads so far, exact to the nanosecond (schedstat; stat has ticks)."""
        nanoseconds = 0
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError):  # a thread that ended meanwhile
                nanoseconds += int((task / "schedstat").read_text().split()[0])
        return nanoseconds / 1e9

    def tell_to_stop(self) -> None:
        """Send SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Wait until it has ended, and see to it that it does."""
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextlib.contextmanager
def running(*servers: Server) -> Generator[None, None, None]:
    """Wait until all are ready; stop them at the end."""
    try:
        for server in servers:
            server.ready()
        yield
    finally:
        for server in servers:
            server.tell_to_stop()
        for server in servers:
            server.wait()

"""Starts a server with an in-process issuer, as the second client needs it."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

TESTS = Path(__file__).resolve().parents[1]


@contextmanager
def serving(folder: Path, *module: str) -> Generator[Path, None, None]:
    """Start `python -m MODULE …` with a tokens file and yield the file; the server ends with the context."""
    tokens = folder / "tokens.json"
    command = [sys.executable, "-m", *module, "--port", "0", "--tokens-file", str(tokens), "--window", "1"]
    environment = {"PYTHONPATH": str(TESTS), "PATH": ""}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("quenchz reference ready: "), line
            yield tokens
        finally:
            process.send_signal(signal.SIGTERM)

"""Finds and runs the TypeScript prover, which shares no code with the judge."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

VARIABLE = "QUENCHZ_PROVER"
PROGRAM = "quenchz-prove"
BUILT = Path(__file__).resolve().parents[2] / "clients" / "typescript" / "dist" / "main.js"
"""Where a checkout of the project has the built program."""


class ProverMissingError(RuntimeError):
    """The prover cannot be run; the text says what is missing and how to get it."""


def command() -> list[str]:
    """Return the command that starts the prover: $QUENCHZ_PROVER, the program on the path, or the checkout's own.

    Raises:
        ProverMissingError: there is none, or Node is missing.
    """
    if named := os.environ.get(VARIABLE):
        return shlex.split(named)
    if installed := shutil.which(PROGRAM):
        return [installed]
    node = shutil.which("node")
    if node is None:
        raise ProverMissingError("the prover needs Node 20 or later, and there is no `node` on the path")
    if not BUILT.exists():
        raise ProverMissingError(
            f"there is no built prover: install the npm package {PROGRAM}, or run `npm ci && npm run build` in "
            f"clients/typescript of a checkout, or name a command in {VARIABLE}"
        )
    return [node, str(BUILT)]


def run(options: Sequence[str]) -> int:
    """Run the prover with its own options and return its exit code.

    Raises:
        ProverMissingError: it cannot be started.
    """
    words = command()
    try:
        return subprocess.run([*words, *options], check=False).returncode  # noqa: S603 - the user's own command
    except OSError as error:
        raise ProverMissingError(f"{words[0]!r} cannot be started: {error.strerror}") from None

"""Runs the judge in this process against a server process, and reads its report."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quenchz.cli import main

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

WIRES = ("2026-07-28", "2025-11-25")


@dataclass(frozen=True)
class Judged:
    """One run: the exit code and the report's data."""

    exit: int
    report: dict[str, Any]

    def verdicts(self) -> dict[str, str]:
        """Return the verdict on every id that was selected."""
        return {finding["id"]: finding["verdict"] for finding in self.report["findings"]}

    def ids(self, *verdicts: str) -> set[str]:
        """Return the ids with one of these verdicts."""
        return {name for name, verdict in self.verdicts().items() if verdict in verdicts}

    def finding(self, name: str) -> dict[str, Any]:
        """Return the finding on one id."""
        found: dict[str, Any] = next(f for f in self.report["findings"] if f["id"] == name)
        return found


def judge(folder: Path, *options: str) -> Judged:
    """Run `quenchz check` with options and return what it found."""
    path = folder / "report.json"
    code = main(["check", "--quiet", "--json", str(path), *options])
    return Judged(code, json.loads(path.read_text(encoding="utf-8")))


def judge_module(
    folder: Path, module: str, name: str, *options: str, declares: Mapping[str, Any] | None = None
) -> Judged:
    """Judge the server that `python -m MODULE NAME` starts in place of the reference, and that declares this."""
    command = shlex.join([sys.executable, "-m", module, name])
    return judge(folder, "--reference", "--server", command, *declaring(declares or {}), *options)


def declaring(declares: Mapping[str, Any]) -> list[str]:
    """Return the options that declare keys and values of a target file; JSON is TOML here."""
    return [word for key, value in declares.items() for word in ("--declare", f"{key} = {json.dumps(value)}")]

"""`make full`: every counterfeit against the whole law on one wire, and against its own invariant on the other.

Writes tests/counterfeits/MATRIX.md with the date. Too long for every change: a minute a counterfeit, several at a
time because most of it is waiting. A seed changes nothing here: each fault is found by a row of the written table,
before anything is drawn.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from counterfeits import Counterfeit, counterfeits  # noqa: E402 - the path above makes it importable
from quenchz_spec import LAW  # noqa: E402
from quenchz_spec.requirement import Invariant  # noqa: E402
from support.judging import declaring  # noqa: E402

AT_A_TIME = 6
FAILING = ("fail", "warn", "observed")
WIRES = ("2026-07-28", "2025-11-25")


def failed(fake: Counterfeit, wire: str, *options: str) -> set[str]:
    """Return the ids that a counterfeit fails in one run, as a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        server = shlex.join([sys.executable, "-m", "counterfeits", fake.name])
        command = [sys.executable, "-m", "quenchz", "check", "--quiet", "--reference", "--server", server]
        command += [*declaring(fake.declares), "--profile", "smoke", "--level", "observe"]
        command += ["--seed", "1", "--protocol", wire]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
        done = subprocess.run(  # the exit code says that something failed, which is wanted
            [*command, "--json", str(report), *options], env=environment, check=False, capture_output=True, text=True
        )
        if not report.exists():
            raise RuntimeError(f"{fake.name} was not judged: {done.stderr[-500:]}")
        data: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        return {finding["id"] for finding in data["findings"] if finding["verdict"] in FAILING}


def row(fake: Counterfeit) -> tuple[str, bool]:
    """Return the table row of one counterfeit, and whether all is as declared."""
    wires = [fake.wire] if fake.wire else list(WIRES)
    whole = failed(fake, wires[0])
    own = {name for name in whole if name.split("-")[1] == Invariant[fake.invariant.upper()].value}
    fits = own == fake.ids and all(failed(fake, wire, "--invariant", fake.invariant) == own for wire in wires[1:])
    others = ", ".join(sorted(whole - own)) or "nothing"
    print(f"{fake.name}: {'as declared' if fits else 'NOT AS DECLARED'}, elsewhere {others}", flush=True)
    line = f"| `{fake.name}` | {', '.join(sorted(own))} | {others} | {', '.join(wires)} | {'yes' if fits else 'no'} |"
    return line, fits


def main() -> int:
    """Run everything and write the dated table."""
    fakes = [fake for _, fake in sorted(counterfeits().items())]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        rows = list(pool.map(row, fakes))
    head = [
        f"# Every counterfeit against the whole law {LAW}",
        "",
        f"Written by `make full` on {dt.datetime.now(dt.UTC).date()}: {len(rows)} counterfeits, the whole law on the",
        "first wire, the counterfeit's own invariant on the second.",
        "",
        "| counterfeit | fails of its invariant | fails elsewhere | wires | as declared |",
        "|---|---|---|---|---|",
    ]
    path = ROOT / "tests" / "counterfeits" / "MATRIX.md"
    path.write_text("\n".join([*head, *(line for line, _ in rows)]) + "\n", encoding="utf-8")
    return 0 if all(fits for _, fits in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Two clients, one server: what the TypeScript prover found, example by example, and what the Python law says of it.

The prover records its exchanges as a history. Each example in it is judged three times: by the prover itself (the
outcome it recorded), by the Python law on the prover's own exchanges, and by the Python client, which makes the same
example with the same arguments. All three must agree.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quenchz.check import token_source
from quenchz.driver import HttpSubject, UnreachableError
from quenchz.engine import PROFILES, Runner
from quenchz.history import HistoryWriter, read_history
from quenchz.prover import command
from quenchz.replay import replay
from quenchz.report import printable
from quenchz.target_file import configured
from quenchz.verdicts import Exit
from quenchz_spec.codec import decode
from quenchz_spec.requirement import law

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quenchz.history import History
    from quenchz.target_file import Configuration


@dataclass(frozen=True)
class Compared:
    """One example, judged three times."""

    requirement: str
    row: str
    prover: str
    law: str
    client: str
    detail: str = ""

    @property
    def agrees(self) -> bool:
        """Whether all three say the same."""
        return self.prover == self.law == self.client


@dataclass(frozen=True)
class Agreement:
    """What was compared at one server."""

    url: str
    wire: str
    examples: tuple[Compared, ...]
    reason: str = ""

    @property
    def exit(self) -> Exit:
        """0 when all agree, 1 when some do not, 3 when nothing was compared."""
        if not self.examples:
            return Exit.NOT_ESTABLISHED
        return Exit.OK if all(example.agrees for example in self.examples) else Exit.VIOLATED

    def json(self) -> str:
        """Return the comparison as JSON text."""
        data = {"url": self.url, "protocol": self.wire, "reason": self.reason, "exit": int(self.exit)}
        return json.dumps({**data, "examples": [asdict(example) for example in self.examples]}, indent=2)

    def text(self) -> str:
        """Return the comparison as a table and a sentence."""
        lines = [f"{self.url}, MCP {self.wire}", f"{'':<2}{'id':<11}{'prover':<16}{'law on it':<16}{'client':<16}row"]
        for one in self.examples:
            mark = "  " if one.agrees else "! "
            lines.append(
                f"{mark}{one.requirement:<11}{one.prover:<16}{one.law:<16}{one.client:<16}{printable(one.row)}"
            )
            if not one.agrees:
                lines.append(f"    {printable(one.detail)}")
        apart = sum(not one.agrees for one in self.examples)
        if not self.examples:
            lines.append(f"Nothing was compared: {printable(self.reason)}.")
        else:
            lines.append(f"{len(self.examples)} examples compared, {apart} disagreements (exit {int(self.exit)}).")
        return "\n".join(lines)


def agree(url: str | None, tokens_file: Path, protocol: str) -> Agreement:
    """Run the prover against a server, judge its history, make its examples again, and compare.

    Raises:
        ProverMissingError: the prover cannot be run.
        HistoryError: what it wrote is no history.
        TargetFileError: the tokens file describes no target.
        TokensFileError: the tokens file cannot be read.
    """
    configuration = configured(url, None, tokens_file)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.jsonl"
        options = ["--tokens-file", str(tokens_file), "--protocol", protocol, "--history", str(path)]
        done = subprocess.run(  # noqa: S603 - the user's own command
            [*command(), configuration.url, *options], check=False, capture_output=True, text=True, errors="replace"
        )
        if not path.exists() or path.stat().st_size == 0:
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
            return Agreement(configuration.url, protocol, (), f"the prover recorded nothing; it said: {said[0]}")
        history = read_history(path)
    _, judged = replay(history)
    live = _live(configuration, history, protocol)
    examples = [
        Compared(old.requirement, old.row, old.outcome, new.outcome, made[0], f"law: {new.detail}; client: {made[1]}")
        for old, new, made in zip(history.examples, judged, live, strict=True)
        # A void example says nothing about its claim, and was made again by whoever recorded it.
        if old.outcome != "void"
    ]
    return Agreement(configuration.url, protocol, tuple(examples), "the prover made no example")


def _live(configuration: Configuration, history: History, protocol: str) -> Sequence[tuple[str, str]]:
    """Make every example of a history again and return the outcomes with their details."""
    requirements = {requirement.id: requirement for requirement in law()}
    writer = HistoryWriter(None)
    with token_source(configuration) as source:
        subject = HttpSubject(configuration.url, configuration.target, source, writer, clock=time.monotonic)
        try:
            subject.connect(protocol)
            if (budget := configuration.target.budget) is not None:
                subject.wait(1.02 * budget.window)  # what the prover spent is spent for its callers, who are ours too
            runner = Runner(subject, writer, PROFILES["smoke"], 0)
            made = [
                runner.example(requirements[old.requirement], old.row, decode(old.arguments))
                for old in history.examples
            ]
        except UnreachableError as error:
            return [("unreachable", str(error))] * len(history.examples)
        finally:
            subject.close()
    return [(record.outcome, record.detail) for record in made]

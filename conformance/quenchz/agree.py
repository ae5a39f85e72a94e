"""Two clients, one server: what the TypeScript prover found, example by example, and what the Python law says of it.

The prover records its exchanges as a history. Each example in it is judged three times: by the prover itself (the
outcome it recorded), by the Python law on the prover's own exchanges, and by the Python client, which makes the same
example with the same arguments. All three must agree.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from quenchz.check import token_source
from quenchz.driver import HttpSubject, UnreachableError
from quenchz.engine import PROFILES, Runner
from quenchz.history import HistoryWriter, read_history
from quenchz.prover import ProverMissingError, command
from quenchz.replay import replay
from quenchz.report import printable
from quenchz.target_file import configured
from quenchz.verdicts import Exit
from quenchz_spec.codec import decode
from quenchz_spec.requirement import law
from quenchz_spec.shapes import items, members

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quenchz.history import ExampleRecord, History
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
    """What was compared at one server.

    `refused` says for each client why it judged nothing there; empty for one that made examples. `checks` has the
    prover's own verdicts, by the ids of its checks and properties.
    """

    url: str
    wire: str
    examples: tuple[Compared, ...]
    refused: tuple[str, str] = ("", "")
    checks: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def agrees(self) -> bool:
        """Whether every example is judged alike; where there is none, whether both clients found nothing to judge."""
        if not self.examples:
            return all(self.refused)
        return all(example.agrees for example in self.examples)

    @property
    def exit(self) -> Exit:
        """0 when all agree, 1 when some do not, 3 when nothing was compared."""
        if not self.examples:
            return Exit.NOT_ESTABLISHED
        return Exit.OK if self.agrees else Exit.VIOLATED

    @property
    def failing(self) -> frozenset[str]:
        """The prover's checks that fail or warn."""
        return failing(self.checks)

    def ids(self, outcome: str) -> set[str]:
        """Return the requirements of which the Python law gives an example this outcome."""
        return {one.requirement for one in self.examples if one.law == outcome}

    def json(self) -> str:
        """Return the comparison as JSON text."""
        data = {"url": self.url, "protocol": self.wire, "refused": self.refused, "exit": int(self.exit)}
        return json.dumps(
            {**data, "checks": self.checks, "examples": [asdict(example) for example in self.examples]}, indent=2
        )

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
            prover, client = (printable(reason) or "could be judged" for reason in self.refused)
            lines.append(f"Nothing was compared. The prover: {prover}. The Python client: {client}.")
        else:
            lines.append(f"{len(self.examples)} examples compared, {apart} disagreements (exit {int(self.exit)}).")
        return "\n".join(lines)


@dataclass(frozen=True)
class Proof:
    """What the prover said of one server: its recorded history and its verdicts; or why it said none."""

    history: History | None
    checks: dict[str, str]
    reason: str

    @property
    def failing(self) -> frozenset[str]:
        """The checks that fail or warn."""
        return failing(self.checks)


def failing(checks: dict[str, str]) -> frozenset[str]:
    """Return the ids whose verdict is `fail` or `warn`."""
    return frozenset(name for name, verdict in checks.items() if verdict in ("fail", "warn"))


_NOTE = re.compile(r"([PX]\d+) ([a-z-]+): ")
"""A check's verdict, as the prover's report has it among its notes."""


def proved(
    configuration: Configuration,
    tokens_file: Path,
    protocol: str,
    *,
    history: Path | None = None,
    report: Path | None = None,
) -> Proof:
    """Run the prover against a server and read what it wrote; `history` and `report` say where that is kept.

    Raises:
        ProverMissingError: the prover cannot be run, or did not begin.
        HistoryError: what it wrote is no history.
    """
    with tempfile.TemporaryDirectory() as folder:
        written, said_of_it = history or Path(folder) / "history.jsonl", report or Path(folder) / "report.json"
        options = ["--tokens-file", str(tokens_file), "--protocol", protocol]
        options += ["--history", str(written), "--json", str(said_of_it)]
        done = subprocess.run(  # noqa: S603 - the user's own command
            [*command(), configuration.url, *options], check=False, capture_output=True, text=True, errors="replace"
        )
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
        data = members(json.loads(said_of_it.read_text(encoding="utf-8")) if said_of_it.exists() else {})
        recorded = read_history(written) if written.exists() and written.stat().st_size > 0 else None
    if done.returncode == Exit.USAGE:
        raise ProverMissingError(f"the prover did not begin: {said[0].removeprefix('quenchz-prove: ')}")
    if recorded is None:
        return Proof(None, {}, f"recorded nothing and said: {said[0]}")
    checks = {found[1]: found[2] for note in items(data.get("notes")) if (found := _NOTE.match(str(note)))}
    first = next((str(note) for note in items(data.get("notes"))), "P1 untestable: no reason")
    reason = "" if recorded.examples else f"made no example ({_NOTE.sub('', first)})"
    return Proof(recorded, checks, reason)


def agree(
    url: str | None, tokens_file: Path, protocol: str, again: Callable[[], tuple[str, Path]] | None = None
) -> Agreement:
    """Run the prover against a server, judge its history, make its examples again, and compare.

    `again` starts the server anew for the Python client and returns its URL and tokens file: a server whose behaviour
    depends on what came before is then the same for both.

    Raises:
        ProverMissingError: the prover cannot be run, or did not begin.
        HistoryError: what it wrote is no history.
        TargetFileError: the tokens file describes no target.
        TokensFileError: the tokens file cannot be read.
    """
    configuration = configured(url, None, tokens_file)
    proof = proved(configuration, tokens_file, protocol)
    made_at = configuration
    if again is not None:
        url, tokens_file = again()
        made_at = configured(url, None, tokens_file)
    recorded = () if proof.history is None else tuple(proof.history.examples)
    live, unreached = _live(made_at, recorded, protocol)
    if proof.history is None or not recorded:
        return Agreement(configuration.url, protocol, (), (proof.reason, unreached), proof.checks)
    _, judged = replay(proof.history)
    examples = [
        Compared(old.requirement, old.row, old.outcome, new.outcome, made[0], f"law: {new.detail}; client: {made[1]}")
        for old, new, made in zip(recorded, judged, live, strict=True)
        # A void example says nothing about its claim, and was made again by whoever recorded it.
        if old.outcome != "void"
    ]
    return Agreement(configuration.url, protocol, tuple(examples), ("", unreached), proof.checks)


def _live(
    configuration: Configuration, recorded: Sequence[ExampleRecord], protocol: str
) -> tuple[Sequence[tuple[str, str]], str]:
    """Make every recorded example again; return the outcomes with their details, and why the server was not reached."""
    requirements = {requirement.id: requirement for requirement in law()}
    writer = HistoryWriter(None)
    with token_source(configuration) as source:
        subject = HttpSubject(configuration.url, configuration.target, source, writer, clock=time.monotonic)
        try:
            subject.connect(protocol)
            if (budget := configuration.target.budget) is not None:
                subject.wait(1.02 * budget.window)  # what the prover spent is spent for its callers, who are ours too
            runner = Runner(subject, writer, PROFILES["smoke"], 0)
            made = [runner.example(requirements[old.requirement], old.row, decode(old.arguments)) for old in recorded]
        except UnreachableError as error:
            return [("unreachable", str(error))] * len(recorded), str(error)
        finally:
            subject.close()
    return [(record.outcome, record.detail) for record in made], ""

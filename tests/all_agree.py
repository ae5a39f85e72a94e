"""`make full`: both clients judge every server there is, and must say the same of each.

Writes docs/agreement.md with the date of each row. Servers are run several at a time, since most of a proof is waiting
for windows; the wires take turns. The Python client meets a server that was started for it, so that one client leaves
nothing behind for the other. With the names of servers or sorts only those are judged again.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from agreement.declared import DECLARED  # noqa: E402 - the path above makes it importable
from agreement.serving import every_server  # noqa: E402
from counterfeits import counterfeits  # noqa: E402
from quenchz.agree import Agreement, agree  # noqa: E402
from quenchz_spec import LAW  # noqa: E402

AT_A_TIME = 5
WIRES = ("2026-07-28", "2025-11-25")
PATH = ROOT / "docs" / "agreement.md"
RESULT = ROOT / "tests" / "agreement" / "result.json"


@dataclass(frozen=True)
class Row:
    """One server on one wire: how many examples ended how, what was found, and whether all three agree."""

    sort: str
    name: str
    wire: str
    held: int
    violated: int
    neither: int
    ids: str
    checks: str
    agree: bool
    date: str

    def line(self) -> str:
        """Return the row of the table."""
        counts = f"{self.held} | {self.violated} | {self.neither}"
        said = self.ids or ("" if self.held + self.violated + self.neither else "nothing to judge")
        agree = "yes" if self.agree else "**no**"
        return (
            f"| {self.sort} | `{self.name}` | {self.wire} | {counts} | {said} | {self.checks} | {agree} | {self.date} |"
        )


def row(sort: str, name: str, found: Agreement) -> Row:
    """Return what is kept of one comparison.

    It fits if both agree, and the prover's failing checks are those declared, where any are.
    """
    count = Counter(one.law for one in found.examples)
    return Row(
        sort,
        name,
        found.wire,
        count["held"],
        count["violated"],
        count.total() - count["held"] - count["violated"],
        ", ".join(sorted(found.ids("violated"), key=_order)),
        ", ".join(sorted(found.failing, key=_check_order)),
        found.agrees and found.failing == DECLARED.get(name, found.failing),
        dt.datetime.now(dt.UTC).date().isoformat(),
    )


def _order(name: str) -> tuple[str, int]:
    kind, number = name.rsplit("-", 1)
    return kind, int(number)


def _check_order(name: str) -> tuple[str, int]:
    return name[0], int(name[1:])


def judged(sort: str, name: str, wire: str) -> Row:
    """Have both clients judge one server, each on a process of its own."""
    start = every_server()[sort, name]
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as other,
        start(Path(one)) as tokens,
        start(Path(other)) as fresh,
    ):
        url = json.loads(fresh.read_text(encoding="utf-8"))["url"]
        found = agree(None, tokens, wire, again=lambda: (url, fresh))
    result = row(sort, name, found)
    print(f"{sort} {name}, {wire}: {'agreed' if result.agree else 'NOT AGREED'}", flush=True)
    if not result.agree:
        print(found.text(), result.checks, flush=True)
    return result


def planned(words: list[str]) -> list[tuple[str, str, str]]:
    """Return sort, name and wire of what is to be judged: everything, or what the words name."""
    plan = [("reference", "quenchz_reference", wire) for wire in WIRES]
    fixed = {name: fake.wire for name, fake in counterfeits().items() if fake.wire}
    others = sorted(key for key in every_server() if key[0] != "reference")
    plan += [(sort, name, fixed.get(name, WIRES[at % 2])) for at, (sort, name) in enumerate(others)]
    return [one for one in plan if not words or set(words) & set(one)]


def document(rows: list[Row]) -> str:
    """Return the dated table."""
    examples = sum(row.held + row.violated + row.neither for row in rows)
    sorts = Counter(row.sort for row in rows)
    said = ", ".join(f"{sorts[sort]} {sort}" for sort in ("reference", "counterfeit", "variant", "sentinel", "field"))
    head = f"""# Two clients, one law: {LAW}

Written by `make full`: {len(rows)} servers ({said}); {examples} examples compared,
{sum(row.violated for row in rows)} of them violated; not agreed on: {sum(not row.agree for row in rows)} servers.

Each example is judged three times: by the TypeScript prover itself, by the Python law on the exchanges that the prover
recorded, and by the Python client, which makes the same example at a server of its own. A server is agreed on if all
three say the same of every example; if there is none, both clients must have found nothing to judge. Where the failing
checks were declared before the run (`tests/agreement/declared.py`), they are compared too.

| sort | server | wire | held | violated | neither | ids violated | the prover's failing checks | agree | date |
|---|---|---|---|---|---|---|---|---|---|
"""
    return head + "\n".join(row.line() for row in rows) + "\n"


def kept() -> dict[tuple[str, str], Row]:
    """Return the rows of earlier runs."""
    if not RESULT.exists():
        return {}
    rows = [Row(**data) for data in json.loads(RESULT.read_text(encoding="utf-8"))]
    return {(row.name, row.wire): row for row in rows}


def main(words: list[str]) -> int:
    """Judge everything, or the servers and sorts that are named; write the table; return 1 if any two disagree."""
    sorts, names, wires = zip(*planned(words), strict=True)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        found = {(row.name, row.wire): row for row in pool.map(judged, sorts, names, wires)}
    # What is not there any more is not kept, and what was not named keeps its row and its date.
    old = kept() if words else {}
    rows = [row for _, name, wire in planned([]) if (row := found.get((name, wire), old.get((name, wire)))) is not None]
    RESULT.write_text(json.dumps([asdict(row) for row in rows], indent=0) + "\n", encoding="utf-8")
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(document(rows), encoding="utf-8")
    apart = [name for (name, _), row in found.items() if not row.agree]
    print(f"{len(found)} servers, not agreed on: {', '.join(apart) or 'none'}")
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`make full`: both clients judge every server there is, and must say the same of each.

Writes docs/agreement.md with the date. Servers are run several at a time, since most of a proof is waiting for windows;
the wires take turns. The Python client meets a server that was started for it, so that one client leaves nothing behind
for the other.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Judged:
    """One server, judged by both clients on one wire."""

    sort: str
    name: str
    found: Agreement

    @property
    def fits(self) -> bool:
        """Whether both agree, and the prover's failing checks are those declared where any are."""
        return self.found.agrees and self.found.failing == DECLARED.get(self.name, self.found.failing)

    def line(self) -> str:
        """Return the row of the table."""
        found = self.found
        count = Counter(one.law for one in found.examples)
        counts = " | ".join(str(count[outcome]) for outcome in ("held", "violated")) + f" | {_others(count)}"
        both = ", ".join(sorted(found.ids("violated"), key=_order)) or ("" if found.examples else "nothing to judge")
        checks = ", ".join(sorted(found.failing, key=_check_order))
        return f"| {self.sort} | `{self.name}` | {found.wire} | {counts} | {both} | {checks} | {_yes(self.fits)} |"


def _others(count: Counter[str]) -> int:
    return count.total() - count["held"] - count["violated"]


def _order(name: str) -> tuple[str, int]:
    kind, number = name.rsplit("-", 1)
    return kind, int(number)


def _check_order(name: str) -> tuple[str, int]:
    return name[0], int(name[1:])


def _yes(good: bool) -> str:
    return "yes" if good else "**no**"


def judged(sort: str, name: str, wire: str) -> Judged:
    """Have both clients judge one server, each on a process of its own."""
    start = every_server()[sort, name]
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as other,
        start(Path(one)) as tokens,
        start(Path(other)) as fresh,
    ):
        url = json.loads(fresh.read_text(encoding="utf-8"))["url"]
        result = Judged(sort, name, agree(None, tokens, wire, again=lambda: (url, fresh)))
    print(f"{sort} {name}, {wire}: {'agreed' if result.fits else 'NOT AGREED'}", flush=True)
    if not result.fits:
        print(result.found.text(), result.found.failing, flush=True)
    return result


def planned(words: list[str]) -> list[tuple[str, str, str]]:
    """Return sort, name and wire of what is to be judged: everything, or what the words name."""
    plan = [("reference", "quenchz_reference", wire) for wire in WIRES]
    fixed = {name: fake.wire for name, fake in counterfeits().items() if fake.wire}
    others = sorted(key for key in every_server() if key[0] != "reference")
    plan += [(sort, name, fixed.get(name, WIRES[at % 2])) for at, (sort, name) in enumerate(others)]
    return [one for one in plan if not words or set(words) & set(one)]


def document(rows: list[Judged], seconds: float) -> str:
    """Return the dated table."""
    examples = [one for row in rows for one in row.found.examples]
    apart = sum(not one.agrees for one in examples)
    violated = sum(one.law == "violated" for one in examples)
    sorts = Counter(row.sort for row in rows)
    said = ", ".join(f"{sorts[sort]} {sort}" for sort in ("reference", "counterfeit", "variant", "sentinel", "field"))
    head = f"""# Two clients, one law: {LAW}

Written by `make full` on {dt.datetime.now(dt.UTC).date()}: {len(rows)} servers ({said}); {len(examples)} examples
compared, {violated} of them violated, {apart} disagreements; {seconds / 60:.0f} minutes.

Each example is judged three times: by the TypeScript prover itself, by the Python law on the exchanges that the prover
recorded, and by the Python client, which makes the same example at a server of its own. A server is agreed on if all
three say the same of every example; if there is none, both clients must have found nothing to judge. Where the failing
checks were declared before the run (`tests/agreement/declared.py`), they are compared too.

| sort | server | wire | held | violated | neither | ids violated | the prover's failing checks | agree |
|---|---|---|---|---|---|---|---|---|
"""
    return head + "\n".join(row.line() for row in rows) + "\n"


def main(words: list[str]) -> int:
    """Judge everything, write the table, and return 1 if any two disagree."""
    began = time.monotonic()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        sorts, names, wires = zip(*planned(words), strict=True)
        rows = list(pool.map(judged, sorts, names, wires))
    if not words:
        PATH.parent.mkdir(exist_ok=True)
        PATH.write_text(document(rows, time.monotonic() - began), encoding="utf-8")
    apart = [row.name for row in rows if not row.fits]
    print(f"{len(rows)} servers, not agreed on: {', '.join(apart) or 'none'}")
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

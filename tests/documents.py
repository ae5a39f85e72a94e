"""Writes what documents say from what the code does; `--write` puts it in place, without it differences are named.

A generated region of a document stands between `<!-- begin NAME -->` and `<!-- end NAME -->`. The tests compare every
region and every wholly generated file with what is computed here.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import io
import json
import os
import re
import sys
import tempfile
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from counterfeits import counterfeits  # noqa: E402 - the path above makes it importable when run as a program
from quenchz_reference.certificates import Certifier, Window  # noqa: E402
from quenchz_reference.clock import ManualClock  # noqa: E402
from quenchz_reference.reserves import Ledger, NaiveLedger, ReserveLedger  # noqa: E402
from quenchz_reference.series import bounds_of  # noqa: E402
from quenchz_reference.vendor import CassetteVendor  # noqa: E402
from quenchz_spec import LAW  # noqa: E402
from quenchz_spec.requirement import Invariant, law  # noqa: E402
from support.judging import judge_module  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from quenchz_reference.series import Rows

FAILURE = "admits_an_absent_audience"
AS_OF = dt.datetime(2026, 8, 26, 12, tzinfo=dt.UTC)


def history() -> tuple[Rows, dt.datetime]:
    """Return the rows of the full history and when it was captured."""

    async def read() -> tuple[Rows, dt.datetime]:
        vendor = CassetteVendor()
        try:
            captured = vendor.captured_at
            assert captured is not None
            return await vendor.rows("USD"), captured
        finally:
            await vendor.aclose()

    return asyncio.run(read())


def region_law() -> str:
    """The size of the law."""
    count = Counter(requirement.invariant for requirement in law())
    parts = ", ".join(f"{count[invariant]} on {invariant.title}" for invariant in Invariant)
    rows = sum(len(requirement.rows) for requirement in law())
    return (
        f"The law `{LAW}` has {sum(count.values())} requirements: {parts}. Their attack tables have {rows} rows, which "
        "come before anything is drawn."
    )


def region_certificate() -> str:
    """The answer for the Easter window, as the server writes it."""
    rows, captured = history()
    window = Window(dt.date(2026, 3, 30), dt.date(2026, 4, 10))
    answer = Certifier().answer(window, rows, bounds_of("USD"), AS_OF, captured)
    return f"```json\n{answer.to_text()}\n```"


def region_counts() -> str:
    """How many rows, values and placeholders the full history has."""
    rows, captured = history()
    values, placeholders = len(rows.observations), len(rows.placeholders)
    return (
        f"| the full USD series, captured {captured:%Y-%m-%d} | |\n|---|---|\n"
        f"| rows | {values + placeholders:,} |\n| values | {values:,} |\n| placeholders | {placeholders:,} |"
    )


def region_times() -> str:
    """The three times, and which of them the payload carries."""
    document = json.loads((ROOT / "cassettes" / "full-history.json").read_text(encoding="utf-8"))
    body = json.dumps(document)
    rows = (
        ("concertation between central banks", "about 14:10", ("2.10 pm", "2:10 pm"), "nothing"),
        ("snapshot named in the title", "14:15", ("2.15 pm", "2:15 pm"), "nothing"),
        ("publication", "about 16:00 (14:30 before July 2016)", ("4.00 pm", "4:00 pm", "16:00"), "when a day is due"),
    )
    lines = ["| time | Frankfurt | in the payload | decides |", "|---|---|---|---|"]
    for name, at, spellings, decides in rows:
        carried = "yes" if any(spelling in body for spelling in spellings) else "no"
        lines.append(f"| {name} | {at} | {carried} | {decides} |")
    return "\n".join(lines)


def region_ledgers() -> str:
    """One arrival pattern against both ledgers."""
    reserves, budget, window = {"broad": 5, "narrow": 5, "quiet": 5}, 25, 60.0
    arrivals = ["broad"] * 40 + ["quiet"] * 6
    clock = ManualClock()
    ledgers: dict[str, Ledger] = {
        "reserve ledger": ReserveLedger(budget, window, reserves, clock),
        "one shared counter": NaiveLedger(budget, window, clock),
    }
    lines = ["| 25 units a minute, reserves of 5, pool of 10 | broad calls 40 times | then quiet calls 6 times |"]
    lines.append("|---|---|---|")
    for name, ledger in ledgers.items():
        admitted = Counter(caller for caller in arrivals if ledger.charge(caller).admitted)
        lines.append(f"| {name} | {admitted['broad']} admitted | {admitted['quiet']} admitted |")
    return "\n".join(lines)


def region_failure() -> str:
    """The proof that a counterfeit's failure prints."""
    from quenchz.report import proof
    from quenchz.verdicts import Finding, Verdict

    os.environ["PYTHONPATH"] = str(ROOT / "tests")
    with tempfile.TemporaryDirectory() as folder:
        options = ("--id", "QZ-AUD-4", "--profile", "smoke", "--seed", "1", "--protocol", "2026-07-28")
        with contextlib.redirect_stdout(io.StringIO()):
            found = judge_module(Path(folder), "counterfeits", FAILURE, *options).finding("QZ-AUD-4")
    requirement = next(r for r in law() if r.id == found["id"])
    finding = Finding(
        requirement=requirement,
        verdict=Verdict(found["verdict"]),
        reason=found["reason"],
        counts=found["outcomes"],
        controls=found["controls"],
        probes=found["probes"],
        requests=found["requests"],
        rows_violated=tuple(found["rows_violated"]),
        violation=found["violation"],
        example=found["example"],
        confirmed=tuple(found["confirmed"]),
    )
    return "```\n" + "\n".join(proof(finding)) + "\n```"


def region_kills() -> str:
    """How many counterfeits, variants and sentinels there are."""
    from sentinels import SENTINELS
    from sentinels.turncoats import TURNCOATS
    from variants import variants

    by = Counter(fake.invariant for fake in counterfeits().values())
    parts = ", ".join(f"{by[invariant.word]} of {invariant.title}" for invariant in Invariant)
    sentinels = 1 + len(SENTINELS) + len(TURNCOATS)  # the first is a closed port
    return (
        f"{len(counterfeits())} counterfeits ({parts}) are found, {len(variants())} honest variants raise no alarm, "
        f"and {sentinels} sentinels get no pass, as tests."
    )


def bench_table() -> str:
    """The dated result of the benchmark."""
    result = json.loads((ROOT / "bench" / "result.json").read_text(encoding="utf-8"))
    lines = [
        "# Measures",
        "",
        "Generated by `make docs` from `result.json`, which `make bench` wrote. Each ratio is taken side by side in",
        "one run; medians of the rounds, unmet goals first. `run.py` says what is compared with what.",
        "",
        f"{result['date']}, {result['machine']}:",
        "",
        "| ratio | goal | got | lowest to highest | met |",
        "|---|---|---|---|---|",
    ]
    for goal in result["goals"]:
        spread = f"{min(goal['per_round']):.2f} to {max(goal['per_round']):.2f}"
        met = "yes" if goal["met"] else "**no**"
        lines.append(f"| {goal['name']} | {goal['goal']} | {goal['got']:.2f} | {spread} | {met} |")
    return "\n".join(lines) + "\n"


def kill_table() -> str:
    """The table of counterfeits."""
    lines = [
        "# Counterfeits",
        "",
        "Generated by `make docs`. Each is the reference server with one fault. It declares the ids that must fail,",
        "and the attack row that shows it first; the tests run it and compare.",
        "",
        "| counterfeit | fault | fails | first row |",
        "|---|---|---|---|",
    ]
    order = {requirement.id: place for place, requirement in enumerate(law())}
    for fake in sorted(counterfeits().values(), key=lambda f: (min(order[i] for i in f.ids), f.name)):
        ids = ", ".join(sorted(fake.ids, key=order.__getitem__))
        lines.append(f"| `{fake.name}` | {fake.fault} | {ids} | {fake.row} |")
    return "\n".join(lines) + "\n"


def spec_readme() -> str:
    """The whole law on one page."""
    killers: dict[str, list[str]] = {requirement.id: [] for requirement in law()}
    for fake in sorted(counterfeits().values(), key=lambda f: (len(f.ids), f.name)):
        for name in fake.ids:
            killers[name].append(fake.name)
    lines = [
        f"# The law {LAW}",
        "",
        "Generated by `make docs` from the properties. `must` is what the norms alone demand.",
        "",
    ]
    for invariant in Invariant:
        lines += [f"## {invariant.title.capitalize()}", ""]
        for requirement in (r for r in law() if r.invariant is invariant):
            lines += [f"### {requirement.id} ({requirement.level.value})", "", requirement.claim, ""]
            lines.append(f"- Norm: {requirement.norm.source}: “{requirement.norm.quote}”")
            if requirement.contrary is not None:
                lines.append(f"- Contrary norm: {requirement.contrary.source}: “{requirement.contrary.quote}”")
            lines.append(f"- Cost: {requirement.cost}")
            lines.append(f"- Control: {requirement.control}")
            lines.append(f"- Property: `{requirement.name}`")
            lines.append(f"- Counterfeit that fails it: `{killers[requirement.id][0]}`")
            lines += ["", "| attack | must | quenchz |", "|---|---|---|"]
            lines += [f"| {row.words} | {row.must} | {row.quenchz} |" for row in requirement.rows.values()]
            lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def frozen_ids() -> str:
    """The frozen set of ids of this release of the law."""
    ids = "\n".join(f'    "{requirement.id}",  # {requirement.level.value}' for requirement in law())
    return (
        f"# The frozen set of ids of {LAW}. An id is never reused; changing the set makes another release of the law.\n"
        f'law = "{LAW}"\nids = [\n{ids}\n]\n'
    )


REGIONS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {
        "law": region_law,
        "failure": region_failure,
        "certificate": region_certificate,
        "counts": region_counts,
        "times": region_times,
        "ledgers": region_ledgers,
        "kills": region_kills,
    }
}
FILES: dict[str, Callable[[], str]] = {
    "spec/README.md": spec_readme,
    f"spec/requirements/{LAW}.toml": frozen_ids,
    "tests/counterfeits/README.md": kill_table,
    "bench/README.md": bench_table,
}


def with_region(text: str, name: str, content: str) -> str:
    """Return a document with one region replaced.

    Raises:
        ValueError: the document has no such region.
    """
    pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"no region {name!r}")
    return pattern.sub(lambda match: f"{match.group(1)}{content}\n{match.group(2)}", text)


def documents() -> dict[str, str]:
    """Return every generated document as it must read."""
    found = {name: make() for name, make in FILES.items()}
    for name, regions in REGIONS.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        for region, make in regions.items():
            content = make()
            wrap = not content.startswith(("|", "```"))
            text = with_region(text, region, textwrap.fill(content, 120) if wrap else content)
        found[name] = text
    return found


def main() -> int:
    """Compare, or write with --write."""
    write = "--write" in sys.argv[1:]
    made = documents()
    stale = [n for n, text in made.items() if not (ROOT / n).exists() or (ROOT / n).read_text("utf-8") != text]
    for name in stale:
        print(f"{name}: {'written' if write else 'differs; run make docs'}")
        if write:
            (ROOT / name).write_text(made[name], encoding="utf-8")
    return 0 if write or not stale else 1


if __name__ == "__main__":
    sys.exit(main())

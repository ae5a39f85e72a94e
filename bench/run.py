"""Measures judge and reference server beside their floors, in one run.

`.venv/bin/python bench/run.py [--quick] [--json FILE]` (Linux). Everything that is compared alternates in rounds; a
ratio is taken within a round, and the median over the rounds is printed, with the goal beside it and unmet goals first.
Servers run on the first core, clients on the last one. A figure whose answers were not all as they must be is void, and
the exit status is then 1; an unmet goal is printed and changes no exit status.

Four questions (issue 2, acceptance 7; issue 4, acceptance 5):

1. The judge, generation and judging included, against a bare client that sends the judge's own recorded bytes over one
   kept connection: requests per second. `httpx2` is the goal's denominator, `http.client` of the standard library a
   harder one. Once against a trivial server that plays the recorded answers, so that nothing hides what the client
   costs, and once against the reference server. There the judge's tokens are new in each round and have to be verified,
   while the replayed ones are known to the server: its CPU per request, printed for each, shows the difference.
2. The reference server with 1,000 callers, each with a token and a reserve of its own, against the same tool on a bare
   SDK server without gates: calls per second, and server CPU per call. The bare tool's answer is a constant. The
   reference server leaves out the SDK's tracing middleware, whose spans would bear what a caller sent as a name; so the
   bare server is measured as the SDK ships it, and once more without that middleware.
3. The reference server with 1,000 tools against one tool: server CPU per call.
4. Gate 1 of the reference server, token verified and audience compared, against the SDK's bearer path with
   the same verifier: CPU per request, with tokens that were not seen before. The table has a token in gate 1's cache
   beside it, and the goal below it the SDK's path with PyJWT's own decoding, which checks less. `bearer.py` says more.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bearer import CACHED, SDK_PLAIN, SDK_SAME, UNSEEN
from judging import Run, as_pairs, judge, record, replay_http_client, replay_httpx2
from load import Load, VoidError, drive, request_of, structured_content, warm
from servers import CORES, FOLDER, Server, StartError, running

from quenchz.issuer import SuiteIssuer
from quenchz.mint import Mint, SigningKey
from quenchz.reference import RESOURCE
from quenchz_spec.vocabulary import TokenRecipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from judging import Sent

BARE, REFERENCE, ONE_TOOL, MANY_TOOLS, PLAYBACK = "bare SDK", "reference", "1 tool", "1000 tools", "playback"
UNTRACED = "bare SDK, no tracing"
JUDGE, HTTPX2, HTTP_CLIENT = "judge", "httpx2", "http.client"
PER_CALLER = 100_000
"""Units of each caller's reserve: nothing is ever refused."""


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int
    examples: int
    calls: int
    callers: int
    many: int = 1000


FULL = Size(rounds=7, examples=40, calls=2000, callers=1000)
QUICK = Size(rounds=3, examples=10, calls=500, callers=1000)


@dataclass(frozen=True)
class Goal:
    """A ratio with its goal: at least `at_least`, or at most `at_most`."""

    name: str
    ratios: tuple[float, ...]
    at_least: float | None = None
    at_most: float | None = None

    @property
    def got(self) -> float:
        """The median of the per-round ratios."""
        return statistics.median(self.ratios)

    @property
    def is_met(self) -> bool:
        """Whether the goal is met."""
        return self.got >= (self.at_least or 0.0) and (self.at_most is None or self.got <= self.at_most)

    @property
    def words(self) -> str:
        """The goal as it is printed."""
        return f">= {self.at_least:.2f}" if self.at_least is not None else f"<= {self.at_most or 0:.2f}"

    def to_json(self) -> dict[str, Any]:
        """Return what the JSON file says."""
        return {
            "name": self.name,
            "goal": self.words,
            "got": round(self.got, 4),
            "met": self.is_met,
            "per_round": [round(ratio, 4) for ratio in self.ratios],
        }


T = TypeVar("T")
Judged = dict[tuple[str, str], list[Run]]
Loads = dict[str, list[Load]]
Bearer = dict[str, list[float]]
"""For each way through the bearer token, microseconds of CPU per request in each round."""


def goals_of(judged: Judged, loads: Loads, bearer: Bearer) -> list[Goal]:
    """Return every goal of both acceptances with what was measured for it, unmet ones first."""
    goals: list[Goal] = []
    for server, words in ((PLAYBACK, "trivial server"), (REFERENCE, "reference server")):
        for client, note in ((HTTPX2, ", the goal's denominator"), (HTTP_CLIENT, "")):
            ratios = _ratios(judged[server, JUDGE], judged[server, client], lambda run: run.rate)
            name = f"judge's requests/s over a bare client's ({client}{note}), {words}"
            goals.append(Goal(name, ratios, at_least=0.75))
    reference, bare = loads[REFERENCE], loads[BARE]
    name = "reference server with its gates and many callers over the bare SDK server"
    goals.append(Goal(f"calls/s: {name}", _ratios(reference, bare, lambda load: load.rate), at_least=0.85))
    by_cpu = _ratios(bare, reference, lambda load: load.cpu_per_call)
    goals.append(Goal(f"the same by server CPU per call: {name}", by_cpu, at_least=0.85))
    untraced = _ratios(reference, loads[UNTRACED], lambda load: load.rate)
    goals.append(Goal(f"calls/s: {name}, its tracing left out as here", untraced, at_least=0.85))
    by_tools = _ratios(loads[MANY_TOOLS], loads[ONE_TOOL], lambda load: load.cpu_per_call)
    goals.append(Goal("server CPU per call: reference with 1,000 tools over 1 tool", by_tools, at_most=1.15))
    for way, words in ((SDK_SAME, "with the same verifier"), (SDK_PLAIN, "with jwt.decode, which checks less")):
        ratios = _ratios(bearer[UNSEEN], bearer[way], float)
        goals.append(Goal(f"CPU per request: gate 1, tokens unseen, over the SDK's path {words}", ratios, at_most=1.0))
    return sorted(goals, key=lambda goal: goal.is_met)


def _ratios(above: Sequence[T], below: Sequence[T], value: Callable[[T], float]) -> tuple[float, ...]:
    return tuple(value(one) / value(other) for one, other in zip(above, below, strict=True))


def tokens(issuer: SuiteIssuer, count: int) -> list[str]:
    """Return the tokens of `count` callers, each a subject of its own."""
    key = SigningKey.generate("nobody")
    mint = Mint(issuer.base_url, issuer.key, key, "https://nobody.invalid", RESOURCE, time.time, lifetime=3600)
    return [
        mint.mint(TokenRecipe(caller=name), subject=name, scopes=("rates:read",))
        for name in (f"caller-{number:04d}" for number in range(count))
    ]


def measure_bearer(size: Size) -> tuple[Bearer, int]:
    """Measure the ways through the bearer token, and return them with the bytes that gate 1 keeps for a token.

    Raises:
        VoidError: a good token was not let through.
    """
    command = [sys.executable, str(FOLDER / "bearer.py"), "--tokens", str(size.callers), "--rounds", str(size.rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise VoidError(f"bearer.py ended with {done.returncode}")
    found = json.loads(done.stdout)
    return found["cpu_us_per_request"], found["bytes_per_cached_token"]


def measure(size: Size, progress: Callable[[str], None]) -> tuple[Judged, Loads, dict[str, Any]]:
    """Start everything, take every round, and return the measurements with the facts about them.

    Raises:
        VoidError: an answer was not what it must be.
        StartError: a server did not start.
    """
    os.sched_setaffinity(0, {CORES[-1]})
    with SuiteIssuer() as issuer:
        options = ["--port", "0", "--resource", RESOURCE, "--trust-issuer", issuer.base_url]
        options += ["--trust-tenants", issuer.base_url, "--budget", "999999999", "--window", "60"]
        options += ["--unknown-callers", f"grant:{PER_CALLER}"]
        many = str(FOLDER / "many_tools.py")
        playback = Server(PLAYBACK, [str(FOLDER / "playback.py")])
        servers = {
            BARE: Server(BARE, [str(FOLDER / "bare_server.py"), "--port", "0"]),
            UNTRACED: Server(UNTRACED, [str(FOLDER / "bare_server.py"), "--port", "0", "--no-tracing"]),
            REFERENCE: Server(REFERENCE, ["-m", "quenchz_reference", *options]),
            ONE_TOOL: Server(ONE_TOOL, [many, "1", *options]),
            MANY_TOOLS: Server(MANY_TOOLS, [many, str(size.many), *options]),
        }
        with running(playback, *servers.values()):
            progress(f"{len(servers) + 1} servers started; warming up and recording")
            judge(servers[REFERENCE], issuer, 1)  # imports and caches of the judge, so that every later run draws alike
            recorded = record(servers[REFERENCE], issuer, size.examples)
            playback.feed(as_pairs(recorded, playback))
            credentials = tokens(issuer, size.callers)
            requests: dict[str, Iterator[bytes]] = {}
            expected: dict[str, bytes] = {}
            for name, server in servers.items():
                prepared = [
                    request_of(server, token) for token in ([None] if name in (BARE, UNTRACED) else credentials)
                ]
                expected[name] = warm(server, prepared)
                requests[name] = cycle(prepared)
            facts = {
                "judge requests per run": len(recorded),
                "judge bytes sent per request": round(statistics.mean(len(s.request("x" * 15)) for s in recorded)),
                "callers": size.callers,
                "answer bytes": {name: len(body) for name, body in expected.items()},
            }
            _comparable(expected)
            judged: Judged = {}
            loads: Loads = {}
            for number in range(size.rounds):
                progress(f"round {number + 1} of {size.rounds}")
                _judge_round(judged, (playback, servers[REFERENCE]), issuer, recorded, size.examples)
                # Turned round by round, so that no server is always the one measured after a pause.
                names = list(servers)
                for name in names[number % len(names) :] + names[: number % len(names)]:
                    load = drive(servers[name], requests[name], size.calls, expected[name])
                    loads.setdefault(name, []).append(load)
    return judged, loads, facts


def _comparable(expected: Mapping[str, bytes]) -> None:
    """Make sure that every server gives the same answer, of about the same size."""
    contents = {name: structured_content(body) for name, body in expected.items()}
    sizes = [len(body) for body in expected.values()]
    if any(content != contents[BARE] for content in contents.values()) or max(sizes) > 1.2 * min(sizes):
        raise VoidError(f"the servers answer differently: {dict(zip(expected, sizes, strict=True))} bytes")


def _judge_round(
    judged: Judged, servers: Sequence[Server], issuer: SuiteIssuer, recorded: Sequence[Sent], examples: int
) -> None:
    for server in servers:
        runs = {
            JUDGE: partial(judge, server, issuer, examples),
            HTTPX2: partial(replay_httpx2, server, recorded),
            HTTP_CLIENT: partial(replay_http_client, server, recorded),
        }
        for client, take in runs.items():
            run = take()
            if run.requests != len(recorded):
                raise VoidError(f"{client} made {run.requests} requests, the recorded run {len(recorded)}")
            if server.name == PLAYBACK:
                came = json.loads(server.line())
                # The judge's tokens are new, so its bytes are the recorded ones only where there is no token.
                if came["requests"] != len(recorded) or (client != JUDGE and came["identical"] != len(recorded)):
                    raise VoidError(f"{client} did not send the judge's bytes over one connection: {came}")
            judged.setdefault((server.name, client), []).append(run)


def table(judged: Judged, loads: Loads, bearer: Bearer, facts: Mapping[str, Any], size: Size) -> list[str]:
    """Return the figures behind the ratios as lines of text."""
    lines = [
        "",
        f"Judge and bare clients: {facts['judge requests per run']} requests a run, medians of {size.rounds} rounds",
        f"{'server':<12}{'client':<14}{'requests/s':>11}{'client CPU us':>15}{'server CPU us':>15}{'server busy':>13}",
    ]
    for (server, client), runs in judged.items():
        rate, client_cpu, server_cpu, busy = (
            statistics.median(values)
            for values in (
                [run.rate for run in runs],
                [run.client_cpu / run.requests * 1e6 for run in runs],
                [run.server_cpu / run.requests * 1e6 for run in runs],
                [run.server_cpu / run.seconds for run in runs],
            )
        )
        lines.append(f"{server:<12}{client:<14}{rate:>11.0f}{client_cpu:>15.0f}{server_cpu:>15.0f}{busy:>12.0%}")
    lines += ["", f"One tool called by {size.callers} callers over 8 connections, {size.calls} calls a round"]
    lines.append(f"{'server':<12}{'calls/s':>11}{'server CPU us/call':>20}{'server busy':>13}{'answer bytes':>14}")
    for name, loads_of in loads.items():
        rate = statistics.median(load.rate for load in loads_of)
        cpu = statistics.median(load.cpu_per_call for load in loads_of)
        busy = statistics.median(load.server_cpu / load.seconds for load in loads_of)
        lines.append(f"{name:<12}{rate:>11.0f}{cpu:>20.0f}{busy:>12.0%}{facts['answer bytes'][name]:>14}")
    lines += ["", f"One request through the bearer token, {size.callers} tokens a round; gate 1 keeps"]
    lines[-1] += f" {facts['bytes per cached token']} bytes of each, of 20,000 at most"
    lines.append(f"{'way':<32}{'CPU us/request':>15}{'lowest':>9}{'highest':>9}")
    for way in (UNSEEN, CACHED, SDK_SAME, SDK_PLAIN):
        costs = bearer[way]
        lines.append(f"{way:<32}{statistics.median(costs):>15.1f}{min(costs):>9.1f}{max(costs):>9.1f}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit status: 0, or 1 when a figure is void."""
    parser = argparse.ArgumentParser(description="Judge and reference server beside their floors")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and calls: about 15 seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write goals and per-round ratios")
    for name in ("rounds", "examples", "calls", "callers"):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    chosen = QUICK if options.quick else FULL
    size = Size(
        options.rounds or chosen.rounds,
        options.examples or chosen.examples,
        options.calls or chosen.calls,
        options.callers or chosen.callers,
    )
    try:
        judged, loads, facts = measure(size, lambda text: print(f"... {text}", file=sys.stderr, flush=True))
        bearer, facts["bytes per cached token"] = measure_bearer(size)
    except (VoidError, StartError) as error:
        print(f"void: {error}", file=sys.stderr)
        return 1
    goals = goals_of(judged, loads, bearer)
    machine = f"Python {platform.python_version()}, {len(CORES)} cores, load {os.getloadavg()[0]:.1f} at the end"
    print(f"{machine}; medians of {size.rounds} rounds (lowest to highest)\n")
    for goal in goals:
        mark = "met  " if goal.is_met else "UNMET"
        print(
            f"{mark} {goal.got:5.2f} ({min(goal.ratios):.2f} to {max(goal.ratios):.2f})  goal {goal.words}  {goal.name}"
        )
    print("\n".join(table(judged, loads, bearer, facts, size)))
    if options.json is not None:
        document = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": machine,
            "goals": [goal.to_json() for goal in goals],
            "facts": facts,
            "bearer CPU us per request": {way: round(statistics.median(costs), 1) for way, costs in bearer.items()},
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Starts the reference server, or any server with its options, as a process that trusts the suite's issuer."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from quenchz.target_file import DEFAULT_FREE
from quenchz_spec.subject import Budget, CallerSpec, ObservationTool, Target

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

RESOURCE = "https://rates.quenchz.invalid/mcp"
SCOPES = ("rates:read", "rates:history", "rates:admin")
RESERVE = 5
BUDGET = 25
CALLERS = ("broad", "narrow", "quiet")
WINDOW = 1.5
"""Seconds. Short, so that what must wait for a window waits little; long beside a burst of thirty calls."""
KEYS_REFETCH = 0.2
KEYS_TIMEOUT = 1.0
KEYS_KEEP = 0.5
"""Seconds that the server declares of its issuers' key sets; short for the same reason. In the time of a refetch the
judge presents a few tokens; a key set of ours comes within a few milliseconds."""
READY = re.compile(r"^quenchz reference ready: (\S+)$")
START_SECONDS = 30.0


class ServerStartError(RuntimeError):
    """The server did not say that it is ready; the text holds what it printed instead."""


def reference_target(resource: str = RESOURCE) -> Target:
    """Return the description of the reference server as `quenchz check --reference` starts it."""
    return Target(
        resource=resource,
        callers=(
            CallerSpec(name="broad", scopes=SCOPES, reserve=RESERVE),
            CallerSpec(name="narrow", scopes=SCOPES[:1], reserve=RESERVE),
            CallerSpec(name="quiet", scopes=SCOPES[:1], reserve=RESERVE),
        ),
        broad="broad",
        narrow="narrow",
        budget=Budget(
            limiter="reserve", budget=BUDGET, window=WINDOW, pool=BUDGET - len(CALLERS) * RESERVE, free=DEFAULT_FREE
        ),
        observations=(
            ObservationTool(
                tool="exchange_rates",
                arguments={"currency": "USD"},
                gap_causes=("no_such_observation",),
                open_causes=("not_yet_published", "overdue"),
            ),
        ),
        hidden=(
            ("tools", "full_history"),
            ("tools", "refresh_cache"),
            ("prompts", "audit_history"),
            ("resources", "rates://cache/state"),
            ("resource_templates", "rates://history/{currency}"),
        ),
        may_call=("refresh_cache", "full_history"),
        fresh_budgets=True,
        leeway=0.0,
        refetch=KEYS_REFETCH,
        patience=KEYS_TIMEOUT,
        withdrawal=KEYS_KEEP,
    )


@contextmanager
def running(command: str | None, issuer: str, extra: Sequence[str] = ()) -> Generator[str, None, None]:
    """Start a server on a free port and yield its URL; it ends with the context.

    `command` stands in for the reference server and gets the same options.

    Raises:
        ServerStartError: it ended, or was not ready in time.
    """
    base = [sys.executable, "-m", "quenchz_reference"] if command is None else shlex.split(command)
    options = ["--port", "0", "--resource", RESOURCE, "--trust-tenants", issuer, "--budget", str(BUDGET)]
    options += ["--window", str(WINDOW), "--keys-refetch", str(KEYS_REFETCH), "--keys-timeout", str(KEYS_TIMEOUT)]
    options += ["--keys-keep", str(KEYS_KEEP)]
    for caller in CALLERS:
        options += ["--reserve", f"{caller}={RESERVE}"]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            process = subprocess.Popen(  # noqa: S603 - the command is the user's own
                [*base, *options, *extra], stdout=subprocess.PIPE, stderr=log, text=True, errors="replace"
            )
        except OSError as error:
            raise ServerStartError(f"{base[0]!r} cannot be started: {error.strerror}") from None
        try:
            yield _ready(process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _ready(process: subprocess.Popen[str], log: IO[str]) -> str:
    found: list[str] = []
    printed: list[str] = []
    ready = threading.Event()

    def read() -> None:
        for line in process.stdout or ():
            printed.append(line.rstrip("\n"))
            match = READY.match(printed[-1])
            if match and not found:
                found.append(match.group(1))
                ready.set()
        ready.set()

    threading.Thread(target=read, daemon=True).start()
    if not ready.wait(START_SECONDS) or not found:
        log.seek(0)
        tail = log.read()[-600:].strip()
        said = " ".join([*printed[-3:], tail]) or "nothing"
        how = f"was not ready within {START_SECONDS:g} s" if process.poll() is None else "ended before it was ready"
        raise ServerStartError(f"the server {how}; it said: {said}")
    return found[0]

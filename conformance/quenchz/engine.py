"""Runs the property of one requirement: first every written row, then drawn examples.

Only violations travel through Hypothesis, so that they shrink. Everything else is recorded and stops here: raised
through Hypothesis, a failed control would be shrunk for hundreds of requests, and a skip would end the property.
"""

from __future__ import annotations

import json
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import HypothesisException

from quenchz.history import ExampleRecord, HistoryWriter
from quenchz_spec.codec import NotPlainDataError, decode, encode
from quenchz_spec.outcomes import ControlError, NotDeclaredError, UntestableError, ViolationError, VoidError
from quenchz_spec.requirement import Invariant, Requirement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from quenchz.driver import HttpSubject
    from quenchz_spec.vocabulary import Exchange

ATTEMPTS = 3
"""How often a void example is tried before it counts as untestable."""
GIVE_UP = 3
"""Examples in a row that could not be judged, after which a requirement is not asked any further."""
PATIENCE = 3.0
"""Seconds that those examples of a written table may take together before it is given up: rows that cost nothing,
because a token cannot be minted, are all tried."""

_UNHEEDED = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.large_base_example,
)
"""Checks that mistake a network, or an example recorded as untestable, for a bad strategy."""


@dataclass(frozen=True)
class Profile:
    """How thorough a run is: drawn examples per requirement, executions spent on shrinking, repeats of a finding."""

    name: str
    examples: int
    slow_examples: int
    shrinks: int
    repeats: int


PROFILES = {
    "smoke": Profile("smoke", 0, 0, 0, 1),
    "gate": Profile("gate", 20, 4, 40, 4),
    "deep": Profile("deep", 200, 20, 300, 4),
}


def is_slow(requirement: Requirement) -> bool:
    """Whether an example spends whole budgets or waits, and so a drawn one costs a hundred requests or seconds."""
    return requirement.slow or requirement.invariant is Invariant.RESERVES


def judged(call: Callable[[], None], requirement: Requirement) -> tuple[str, str, ViolationError | None]:
    """Run one example and return its outcome, the detail and the violation; the one place that knows both sides."""
    try:
        call()
    except ViolationError as violation:
        violation.norm = violation.norm or requirement.norm
        return "violated", str(violation), violation
    except ControlError as error:
        return "control-failed", str(error), None
    except UntestableError as error:
        return "untestable", str(error), None
    except NotDeclaredError as error:
        return "not-declared", str(error), None
    except VoidError as error:
        return "void", str(error), None
    return "held", "", None


class Runner:
    """Runs requirements against one subject and keeps what happened."""

    def __init__(
        self,
        subject: HttpSubject,
        history: HistoryWriter,
        profile: Profile,
        seed: int,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.records: list[ExampleRecord] = []
        self._subject = subject
        self._history = history
        self._profile = profile
        self._seed = seed
        self._progress = progress
        self._number = 0

    def run(self, requirement: Requirement) -> list[ExampleRecord]:
        """Run one requirement and return the records of its examples.

        An error of the law or of the judge becomes a `harness-error`, never a verdict about the server.
        """
        before = len(self.records)
        self._number = 0
        try:
            violated = self._table(requirement)
            if not violated and not self._given_up(before) and not self._has_no_object(before):
                self._draw(requirement)
        except _BrokenHarnessError:
            pass
        except KeyboardInterrupt:
            # What was not tried is no pass.
            self._record(requirement, "untestable", "interrupted")
            raise
        except Exception as error:
            self._record(requirement, "harness-error", _where(error))
        records = self.records[before:]
        self._confirm(requirement, [r for r in records if r.outcome == "violated"])
        return self.records[before:]

    def _record(self, requirement: Requirement, outcome: str, detail: str) -> None:
        self._number += 1
        self.records.append(ExampleRecord(requirement.id, self._number, "generate", "", None, outcome, detail))
        self._history.example(self.records[-1])

    def _given_up(self, before: int, patience: float = 0.0) -> bool:
        """Whether the last examples could not be judged, and took longer than `patience` seconds not to be."""
        last = self.records[max(before, len(self.records) - GIVE_UP) :]
        unjudged = all(r.outcome in ("control-failed", "untestable") for r in last)
        return len(last) == GIVE_UP and unjudged and sum(r.seconds for r in last) >= patience

    def _has_no_object(self, before: int) -> bool:
        return all(r.outcome == "not-declared" for r in self.records[before:]) and len(self.records) > before

    # --- the written table ------------------------------------------------------------------------------------------

    def _table(self, requirement: Requirement) -> bool:
        before = len(self.records)
        violated = False
        for name, row in requirement.rows.items():
            if self._given_up(before, patience=PATIENCE):
                self._progress(f"{requirement.id}: gave up after {GIVE_UP} examples that could not be judged")
                break
            record = self._example(requirement, "table", name, row.value)
            violated = violated or record.outcome == "violated"
        return violated

    # --- drawn examples ---------------------------------------------------------------------------------------------

    def _draw(self, requirement: Requirement) -> None:
        count = self._profile.slow_examples if is_slow(requirement) else self._profile.examples
        if count == 0:
            return
        start = len(self.records)
        shrunk = 0
        known: dict[str, ViolationError] = {}
        broken = False

        # A test of its own for every run: a property keeps the settings that it was first decorated with.
        @given(row=requirement.drawn)
        def search(row: Any) -> None:
            nonlocal shrunk, broken
            if broken or (not known and self._given_up(start)):
                return
            if known:
                # Beyond the allowance an example is called held, so that the shrinker ends; what is known to be
                # violated must stay so, or the last replay would be called flaky.
                key = json.dumps(encode(row), sort_keys=True)
                if shrunk >= self._profile.shrinks:
                    if key in known:
                        raise known[key]
                    return
                shrunk += 1
            try:
                record = self._example(requirement, "shrink" if known else "generate", "", row)
            except _BrokenHarnessError:
                broken = True  # asked no further: Hypothesis would shrink a fault of ours for hundreds of requests
                return
            if self._last_violation is not None:
                known[json.dumps(record.arguments, sort_keys=True)] = self._last_violation
                raise self._last_violation

        limits = settings(
            max_examples=count,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
            print_blob=False,
            suppress_health_check=_UNHEEDED,
            verbosity=hypothesis.Verbosity.quiet,
        )
        try:
            hypothesis.seed(self._seed)(limits(search))()
        except (ViolationError, HypothesisException, BaseExceptionGroup):
            # Recorded already. A violation that did not repeat surfaces as Flaky: it was observed all the same.
            if not known:
                raise

    # --- one example ------------------------------------------------------------------------------------------------

    _last_violation: ViolationError | None = None

    def example(self, requirement: Requirement, name: str, row: Any) -> ExampleRecord:
        """Run one example of a requirement and return its record: the row `name`, or a drawn one when it is empty."""
        try:
            return self._example(requirement, "table" if name else "generate", name, row)
        except _BrokenHarnessError:
            return self.records[-1]

    def _example(self, requirement: Requirement, phase: str, name: str, row: Any) -> ExampleRecord:
        record = self._attempt(requirement, phase, name, row, last=False)
        for attempt in range(2, ATTEMPTS + 1):
            if record.outcome != "void":
                break
            record = self._attempt(requirement, phase, name, row, last=attempt == ATTEMPTS)
        return record

    def _attempt(self, requirement: Requirement, phase: str, name: str, row: Any, *, last: bool) -> ExampleRecord:
        self._number += 1
        self._progress(f"{requirement.id} {phase} {name or self._number}")
        began = time.monotonic()
        voids = requirement.invariant is not Invariant.RESERVES
        self._last_violation = None
        wait = 0.0
        self._subject.begin_example()
        with self._subject.channel(requirement.id, self._number, voids_refusals=voids) as counts:

            def call() -> None:
                nonlocal wait
                try:
                    requirement.check(self._subject, row)
                except VoidError as void:
                    wait = void.wait
                    raise

            try:
                encoded = encode(row)
                outcome, detail, violation = judged(call, requirement)
                if outcome == "void" and last:
                    outcome, detail = "untestable", f"void {ATTEMPTS} times: {detail}"
                if outcome == "held" and not (counts.by_role.get("control") and counts.by_role.get("probe")):
                    outcome, detail = "harness-error", "the property held without a control and a probe"
            except KeyboardInterrupt:
                raise
            except NotPlainDataError as error:
                encoded, outcome, detail, violation = None, "harness-error", str(error), None
            except Exception as error:
                encoded, violation = None, None
                outcome, detail = "harness-error", _where(error)
        record = ExampleRecord(
            requirement=requirement.id,
            number=self._number,
            phase=phase,
            row=name,
            arguments=encoded,
            outcome=outcome,
            detail=detail,
            controls=counts.by_role.get("control", 0),
            probes=counts.by_role.get("probe", 0),
            requests=counts.requests,
            seconds=time.monotonic() - began,
            violation=None if violation is None else violation_data(violation),
            recipes=frozenset(counts.recipes),
        )
        self._last_violation = violation
        self.records.append(record)
        self._history.example(record)
        if outcome == "harness-error":
            raise _BrokenHarnessError
        if wait:
            self._subject.wait(wait)
        return record

    # --- a finding is repeated --------------------------------------------------------------------------------------

    def _confirm(self, requirement: Requirement, violated: list[ExampleRecord]) -> None:
        if not violated:
            return
        minimal = smallest(violated)
        row = decode(minimal.arguments)
        repeats = self._profile.repeats if minimal.seconds < 1 else min(1, self._profile.repeats)
        for _ in range(repeats):
            try:
                self._example(requirement, "confirm", minimal.row, row)
            except _BrokenHarnessError:
                return


class _BrokenHarnessError(Exception):
    """An example ended in a harness error; the requirement is not asked any further."""


def smallest(violated: Iterable[ExampleRecord]) -> ExampleRecord:
    """Return the violated example to report: the first row of the table, else the shortest drawn one."""
    found = list(violated)
    rows = [record for record in found if record.phase == "table"]
    if rows:
        return rows[0]
    drawn = [record for record in found if record.phase != "confirm"] or found
    # Of several as short the last: the shrinker only ever goes on from a smaller one.
    return min(reversed(drawn), key=lambda record: len(json.dumps(record.arguments)))


def violation_data(violation: ViolationError) -> dict[str, Any]:
    """Return a violation as JSON data for the report."""
    compared = violation.compared
    return {
        "held": violation.held,
        "sent": violation.sent,
        "received": violation.received,
        "expected": violation.expected,
        "difference": violation.difference,
        "signature": violation.signature,
        "norm": None if violation.norm is None else {"source": violation.norm.source, "quote": violation.norm.quote},
        "compared": None if compared is None else [_transcript(exchange) for exchange in compared],
    }


def _transcript(exchange: Exchange) -> dict[str, Any]:
    return {
        "request": [exchange.request.start, *(": ".join(h) for h in exchange.request.headers), exchange.request.body],
        "response": [
            exchange.response.start,
            *(": ".join(h) for h in exchange.response.headers),
            exchange.response.body,
        ],
    }


def _where(error: Exception) -> str:
    """Return an error of ours with the place it came from, without values: they could hold a token."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = ", ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} in {frame.name}" for frame in frames)
    return f"{type(error).__name__} at {places}"

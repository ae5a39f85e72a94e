"""Certificate totality: no answer carries observations without a certificate that accounts for every requested day.

The identities need no oracle: they relate the certificate to the window that was asked for and to the observations it
came with.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from quenchz_spec import norms
from quenchz_spec.outcomes import ControlError, NotDeclaredError, ViolationError, VoidError
from quenchz_spec.requirement import Level, Row, requirement
from quenchz_spec.shapes import at_pointer, items, members
from quenchz_spec.strategies.windows import Split, Window, splits, window, windows
from quenchz_spec.vocabulary import Ask, Exchange, Role

if TYPE_CHECKING:
    from quenchz_spec.subject import ObservationTool, Subject

COST = "An answer is longer than its observations alone, and a server must know its calendar to answer at all."
CONTROL = "a window over Easter 2026 is answered with observations"
KNOWN = window("2026-03-30", "2026-04-10")
COUNTS = ("requested_calendar_days", "expected_observations", "delivered_observations")


@dataclass(frozen=True)
class Answer:
    """A successful answer: its observations and its certificate, as the target says where they stand."""

    exchange: Exchange
    observations: list[Any]
    certificate: Any

    def count(self, member: str) -> int | None:
        """Return a counter of the certificate, or None when it is absent or no integer of 0 or more."""
        value = at_pointer(self.certificate, f"/{member}")
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None

    @property
    def absent(self) -> dict[str, int] | None:
        """The causes of absence with their counts, or None when they are not counts by name."""
        value = at_pointer(self.certificate, "/absent")
        if not isinstance(value, Mapping):
            return None
        counts = members(value)
        fit = all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in counts.values())
        return counts if fit else None


def observing(subject: Subject) -> ObservationTool:
    """Return the first tool that the target says returns observations."""
    if not subject.target.observations:
        raise NotDeclaredError("tools that return observations in its target file")
    return subject.target.observations[0]


def asked(subject: Subject, tool: ObservationTool, arguments: Mapping[str, Any], role: Role = Role.PROBE) -> Exchange:
    """Call the tool with its sample arguments and `arguments`."""
    params = {"name": tool.tool, "arguments": {**tool.arguments, **arguments}}
    return subject.ask(Ask(method="tools/call", params=params, token=subject.token(subject.target.narrow)), role)


def in_window(subject: Subject, tool: ObservationTool, of: Window, role: Role = Role.PROBE) -> Exchange:
    """Ask for a window."""
    return asked(subject, tool, {tool.since: of.since.isoformat(), tool.until: of.until.isoformat()}, role)


def read(exchange: Exchange, tool: ObservationTool) -> Answer | None:
    """Return the answer of a successful call, or None for an error; a server error is a failed control."""
    if exchange.status >= 500 or exchange.status in (0, 401, 403):
        raise ControlError("a window is answered", exchange.words)
    if exchange.result is None or exchange.result.get("isError") is True:
        return None
    content = exchange.result.get("structuredContent")
    observations = at_pointer(content, tool.observations)
    return Answer(exchange, items(observations), at_pointer(content, tool.certificate))


def the_control(subject: Subject, tool: ObservationTool) -> Answer:
    """Return the answer to the known window, which must hold observations."""
    exchange = in_window(subject, tool, KNOWN, Role.CONTROL)
    answer = read(exchange, tool)
    if answer is None or not answer.observations:
        raise ControlError(CONTROL, exchange.words)
    return answer


def certified(subject: Subject, row: Window) -> Answer:
    """Return the answer to a window, after the control; an error in place of an answer is a violation."""
    tool = observing(subject)
    the_control(subject, tool)
    exchange = in_window(subject, tool, row)
    answer = read(exchange, tool)
    if answer is None:
        raise _violation(row, exchange.words, "an answer: the window is well formed", "a window is not answered")
    return answer


def _violation(row: Window, received: str, expected: str, signature: str) -> ViolationError:
    return ViolationError(
        held="a tool that its target file says returns observations with a certificate.",
        sent=f"the window {row.words}.",
        received=f"{received}.",
        expected=f"{expected}.",
        signature=signature,
    )


@requirement(
    "QZ-CRT-1",
    level=Level.QUENCHZ,
    claim="The output schema of a tool that returns observations requires the certificate.",
    norm=norms.MCP_OUTPUT_SCHEMA,
    cost=COST,
    control="the tool is listed and a window over Easter 2026 is answered with observations",
    rows={
        f"tool {n + 1}": Row(f"the observation tool {n + 1} of the target file", n, "either", "required")
        for n in range(3)
    },
    drawn=st.integers(0, 2),
)
def test_the_output_schema_requires_the_certificate(subject: Subject, row: int) -> None:
    """Required at every level of its pointer, with no default and never null."""
    observing(subject)
    if row >= len(subject.target.observations):
        raise NotDeclaredError(f"an observation tool {row + 1}")
    tool = subject.target.observations[row]
    the_control(subject, tool)
    listing = subject.ask(Ask(method="tools/list", token=subject.token(subject.target.narrow)))
    page = map(members, items((listing.result or {}).get("tools")))
    named = [entry for entry in page if entry.get("name") == tool.tool]
    # A tool on a later page was read when the run began.
    entry = named[0] if named else subject.catalogue.entry(subject.target.narrow, "tools", tool.tool)
    if not entry:
        raise ControlError(f"{tool.tool!r} is listed", "a listing without it")
    schema: Any = entry.get("outputSchema")
    for name in tool.certificate.split("/")[1:]:
        problem = _optional(schema, name)
        if problem:
            raise ViolationError(
                held=f"the listing entry of {tool.tool!r}.",
                sent="tools/list.",
                received=f"an outputSchema in which {problem}.",
                expected=f"a schema that requires {tool.certificate!r}, without default or null.",
                signature="the certificate is optional",
            )
        schema = at_pointer(schema, f"/properties/{name}")


def _optional(schema: Any, name: str) -> str:
    """Return how `name` may be missing from what `schema` accepts, or an empty string."""
    if not isinstance(schema, Mapping):
        return "there is nothing"
    if not isinstance(at_pointer(schema, f"/properties/{name}"), Mapping):
        return f"{name!r} is no property"
    member = members(at_pointer(schema, f"/properties/{name}"))
    if name not in items(at_pointer(schema, "/required")):
        return f"{name!r} is not required"
    if "default" in member:
        return f"{name!r} has a default"
    branches = [member, *map(members, items(member.get("anyOf"))), *map(members, items(member.get("oneOf")))]
    if any(branch.get("type") == "null" or "null" in items(branch.get("type")) for branch in branches):
        return f"{name!r} may be null"
    return ""


def _row(words: str, since: str, until: str) -> Row:
    return Row(words, window(since, until), must="either", quenchz="accounted for")


WINDOWS = {
    "Easter": _row("a window over Easter 2026", "2026-03-30", "2026-04-10"),
    "one day": _row("one business day", "2026-04-01", "2026-04-01"),
    "Sunday": _row("one Sunday", "2024-01-07", "2024-01-07"),
    "weekend": _row("one weekend", "2024-11-02", "2024-11-03"),
    "leap day": _row("the leap day of 2024", "2024-02-28", "2024-03-01"),
    "leap day on a Saturday": _row("the leap day of 2020, a Saturday", "2020-02-28", "2020-03-02"),
    "summer time": _row("the week summer time began in 2026", "2026-03-26", "2026-04-01"),
    "winter time": _row("the week summer time ended in 2025", "2025-10-23", "2025-10-28"),
    "turn of the year": _row("the turn of 1999, when 31 December was closed", "1999-12-29", "2000-01-05"),
    "across the start": _row("across the start of the euro", "1998-12-30", "1999-01-06"),
    "before the euro": _row("the year 1990", "1990-01-01", "1990-12-31"),
    "future": _row("a week far in the future", "2057-12-10", "2057-12-16"),
    "into the future": _row("from the past into the future", "2026-08-20", "2027-01-31"),
    "decade": _row("the years 2010 to 2019", "2010-01-01", "2019-12-31"),
}


@requirement(
    "QZ-CRT-2",
    level=Level.QUENCHZ,
    claim="Every successful answer carries a certificate, also when it carries no observations.",
    norm=norms.ours("No answer carries observations without a certificate."),
    cost=COST,
    control=CONTROL,
    rows=WINDOWS,
    drawn=windows(),
)
def test_every_answer_carries_a_certificate(subject: Subject, row: Window) -> None:
    """Empty answers are where certificates go missing."""
    answer = certified(subject, row)
    if not members(answer.certificate):
        received = f"{len(answer.observations)} observations and the certificate {answer.certificate!r}"
        raise _violation(row, received, "a certificate", "no certificate")


@requirement(
    "QZ-CRT-3",
    level=Level.QUENCHZ,
    claim="Every requested day is accounted for exactly once: requested days = delivered + the sum of all causes.",
    norm=norms.ours("requested_calendar_days = delivered_observations + the sum of absent"),
    cost=COST,
    control=CONTROL,
    rows=WINDOWS,
    drawn=windows(),
)
def test_every_requested_day_is_accounted_for(subject: Subject, row: Window) -> None:
    """The days are those of the window that was asked for, not those of the answer."""
    answer = certified(subject, row)
    days, delivered, absent = answer.count(COUNTS[0]), answer.count(COUNTS[2]), answer.absent
    if days is None or delivered is None or absent is None:
        raise _violation(row, "a certificate without counts of days", "three counts", "no counts")
    total = sum(absent.values())
    if not days == row.days == delivered + total:
        received = f"{days} requested days, {delivered} delivered, {total} absent {absent!r}"
        raise _violation(row, received, f"{row.days} = delivered + absent", "days do not add up")
    bounds = at_pointer(answer.certificate, "/requested_from"), at_pointer(answer.certificate, "/requested_to")
    if bounds != (row.since.isoformat(), row.until.isoformat()):
        raise _violation(row, f"a certificate for {bounds[0]!r}..{bounds[1]!r}", "the window asked", "another window")


@requirement(
    "QZ-CRT-4",
    level=Level.QUENCHZ,
    claim="Expected observations = delivered ones + the genuine gaps.",
    norm=norms.ours("expected_observations = delivered_observations + no_such_observation"),
    cost=COST,
    control=CONTROL,
    rows=WINDOWS,
    drawn=windows(),
)
def test_expected_observations_are_delivered_or_gaps(subject: Subject, row: Window) -> None:
    """Closed days, days before the series and days not yet due are never expected."""
    tool = observing(subject)
    answer = certified(subject, row)
    expected, delivered, absent = answer.count(COUNTS[1]), answer.count(COUNTS[2]), answer.absent
    if expected is None or delivered is None or absent is None:
        raise _violation(row, "a certificate without counts of observations", "three counts", "no counts")
    gaps = sum(absent.get(cause, 0) for cause in tool.gap_causes)
    if expected != delivered + gaps:
        received = f"{expected} expected, {delivered} delivered, {gaps} gaps"
        raise _violation(row, received, "expected = delivered + gaps", "expectations do not add up")


@requirement(
    "QZ-CRT-5",
    level=Level.QUENCHZ,
    claim="The delivered count and bounds are those of the observations, which lie in the window in order.",
    norm=norms.ours("delivered_observations, delivered_from and delivered_to are counted from the observations."),
    cost=COST,
    control=CONTROL,
    rows=WINDOWS,
    drawn=windows(),
)
def test_the_delivered_bounds_are_those_of_the_observations(subject: Subject, row: Window) -> None:
    """Bounds are null when nothing was delivered."""
    answer = certified(subject, row)
    if empty := [observation for observation in answer.observations if items(observation)[1:] == [None]]:
        raise _violation(row, f"observations without a value: {empty[:3]!r}", "a value in each", "empty observations")
    days = [_day(observation) for observation in answer.observations]
    inside = [day for day in days if day is not None and row.since <= day <= row.until]
    if len(inside) != len(days) or sorted(set(inside)) != inside:
        received = f"observations on {[str(day) for day in days][:6]}"
        raise _violation(row, received, "days inside the window, each once, in order", "observations out of order")
    claimed = (
        answer.count(COUNTS[2]),
        at_pointer(answer.certificate, "/delivered_from"),
        at_pointer(answer.certificate, "/delivered_to"),
    )
    found = (len(days), inside[0].isoformat() if inside else None, inside[-1].isoformat() if inside else None)
    if claimed != found:
        raise _violation(row, f"a certificate of {claimed!r}", f"{found!r}, as observed", "delivered bounds differ")


def _day(observation: Any) -> dt.date | None:
    """Return the day of an observation: its first element, or its member "date"."""
    value = next(iter(items(observation)), members(observation).get("date"))
    try:
        return dt.date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


@requirement(
    "QZ-CRT-6",
    level=Level.QUENCHZ,
    claim="A window is still open exactly when observations of it are still due.",
    norm=norms.ours("window_still_open is true exactly when not_yet_published + overdue > 0"),
    cost=COST,
    control=CONTROL,
    rows=WINDOWS,
    drawn=windows(),
)
def test_a_window_is_open_exactly_while_observations_are_due(subject: Subject, row: Window) -> None:
    """A reader who sees a closed window never has to ask again."""
    tool = observing(subject)
    answer = certified(subject, row)
    absent = answer.absent
    still_open = at_pointer(answer.certificate, "/window_still_open")
    if absent is None or not isinstance(still_open, bool):
        raise _violation(row, f"window_still_open {still_open!r} and causes {absent!r}", "both", "no open window")
    due = sum(absent.get(cause, 0) for cause in tool.open_causes)
    if still_open != (due > 0):
        received = f"window_still_open {still_open} with {due} observations still due"
        raise _violation(row, received, "open exactly when some are due", "openness differs from what is due")


SPLITS = {
    "Easter": Row(
        "Easter 2026, split on Good Friday", Split(window("2026-03-30", "2026-04-10"), 4), "either", "adds up"
    ),
    "start": Row(
        "across the start of the euro, split at it", Split(window("1998-12-30", "1999-01-06"), 5), "either", "adds up"
    ),
    "future": Row("from the past into the future", Split(window("2026-08-20", "2026-09-10"), 6), "either", "adds up"),
    "decade": Row(
        "a decade, split in the middle", Split(window("2010-01-01", "2019-12-31"), 1826), "either", "adds up"
    ),
}


@requirement(
    "QZ-CRT-7",
    level=Level.QUENCHZ,
    claim="Splitting a window anywhere adds up in every counter.",
    norm=norms.ours(
        "Under one as_of, the certificates of two parts of a window add up to the certificate of the whole."
    ),
    cost=COST,
    control=CONTROL,
    rows=SPLITS,
    drawn=splits(),
)
def test_splitting_a_window_adds_up(subject: Subject, row: Split) -> None:
    """Needs no oracle: a calendar that depends on the window's ends shows here. `requested_*` is left aside."""
    tool = observing(subject)
    the_control(subject, tool)
    middle = row.window.since + dt.timedelta(row.after)
    parts = (row.window, Window(row.window.since, middle - dt.timedelta(1)), Window(middle, row.window.until))
    answers: list[Answer] = []
    for part in parts:
        exchange = in_window(subject, tool, part)
        answer = read(exchange, tool)
        if answer is None or answer.absent is None:
            raise _violation(part, exchange.words, "an answer with causes", "a window is not answered")
        answers.append(answer)
    whole, left, right = answers
    moments = {str(at_pointer(answer.certificate, "/body_completed_at")) for answer in answers}
    if len(moments) > 1 and any(len(a.observations) for a in answers):
        raise VoidError("the body was completed anew between the three calls")
    if left.observations + right.observations != whole.observations:
        received = f"{len(left.observations)} + {len(right.observations)} observations for {len(whole.observations)}"
        raise _violation(row.window, received, f"those of the parts split at {middle}", "observations do not add up")
    sides = _counters(left), _counters(right), _counters(whole)
    for name in dict.fromkeys([*sides[0], *sides[1], *sides[2]]):
        parts_sum, total = sides[0].get(name, 0) + sides[1].get(name, 0), sides[2].get(name, 0)
        if parts_sum != total:
            received = f"{name}: {total} for the whole, {parts_sum} for its parts split at {middle}"
            raise _violation(row.window, received, "the same number", f"{name} does not add up")


def _counters(answer: Answer) -> dict[str, int]:
    counters = {name: answer.count(name) or 0 for name in COUNTS}
    return counters | {f"absent.{cause}": count for cause, count in (answer.absent or {}).items()}


INTERNAL_ERROR = -32603
"""JSON-RPC 2.0 §5.1: the server failed, which says nothing about what it was given."""

INVALID: dict[str, Row] = {
    name: Row(words, (since, until), must="either", quenchz="an error")
    for name, words, since, until in (
        ("reversed", "a window that ends before it starts", "2024-02-10", "2024-02-01"),
        ("no date", "a start that is no date", "yesterday", "2024-02-01"),
        ("no such day", "29 February of a common year", "2023-02-29", "2023-03-01"),
        ("a number", "a start that is a number", 20240201, "2024-02-10"),
        ("null", "an end that is null", "2024-02-01", None),
        ("missing", "no start and no end", "(absent)", "(absent)"),
        ("with a time", "a start with a time of day", "2024-02-01T00:00:00Z", "2024-02-10"),
        ("empty", "an empty start", "", "2024-02-10"),
        ("year 0", "a start before year 1", "0000-01-01", "2024-02-10"),
        ("end no date", "an end that is no date", "2024-02-01", "tomorrow"),
        ("end no such day", "an end on 30 February", "2024-02-01", "2024-02-30"),
    )
}


@requirement(
    "QZ-CRT-8",
    level=Level.QUENCHZ,
    claim="Invalid input gets a clear error and no observations.",
    norm=norms.MCP_EXECUTION_ERRORS,
    cost="A caller that mistypes a date gets nothing, not the nearest thing.",
    control=CONTROL,
    rows=INVALID,
    drawn=windows(60).filter(lambda w: w.days > 1).map(lambda w: (w.until.isoformat(), w.since.isoformat()))
    | st.text("0123456789-/. ", max_size=10)
    .map(lambda text: (text, "2024-02-10"))
    .filter(lambda p: not _is_date(p[0])),
)
def test_invalid_input_gets_an_error_and_no_observations(subject: Subject, row: tuple[Any, Any]) -> None:
    """A reversed window that comes back empty reads as "nothing was published"."""
    tool = observing(subject)
    the_control(subject, tool)
    given_arguments = {name: v for name, v in zip((tool.since, tool.until), row, strict=True) if v != "(absent)"}
    exchange = asked(subject, tool, given_arguments)
    held = f"a tool whose window is {tool.since!r} to {tool.until!r}."
    if exchange.status >= 500 or exchange.error_code == INTERNAL_ERROR:
        raise ViolationError(
            held=held,
            sent=f"the arguments {given_arguments!r}.",
            received=f"{exchange.words}.",
            expected="a clear error.",
            signature="a server error for invalid input",
        )
    answer = read(exchange, tool)
    if answer is not None:
        raise ViolationError(
            held=held,
            sent=f"the arguments {given_arguments!r}.",
            received=f"a successful answer with {len(answer.observations)} observations.",
            expected="a JSON-RPC error or a result with isError, without observations.",
            signature="invalid input is answered",
        )


def _is_date(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True

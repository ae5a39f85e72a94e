"""Gate 4: no answer carries observations without a certificate that accounts for every requested day exactly once.

Each calendar day of a window gets one of ten classes, the first that applies (`DayClass`, in that order). For all
windows

    requested_calendar_days = delivered + sum of the absent causes
    expected_observations   = delivered + no_such_observation

Three times belong to a rate: the concertation at about 14:10, the 14:15 of the payload's title, and the publication at
about 16:00. Only the last decides whether a value can be there yet, and it is in no payload: `target_calendar.due_at`
has it, with its source. There are also two clocks: this gate knows only `as_of`, the instant for which an answer is
true.

`Certifier` is the gate. Each of its methods takes one decision and can be replaced by a subclass.
"""

import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from quenchz_reference import target_calendar
from quenchz_reference.series import Observation, Rows, SeriesBounds

__all__ = [
    "ANSWER_SCHEMA",
    "MAX_CALENDAR_DAYS",
    "SOURCE",
    "Answer",
    "Certificate",
    "Certifier",
    "DayClass",
    "Evidence",
    "Window",
    "WindowError",
]

SOURCE: Final = "ECB statistics."
"""The quotation the ESCB's reuse policy asks for; it stands in every answer."""

MAX_CALENDAR_DAYS: Final = 146_097
"""Longest window: 400 years, one full Gregorian cycle. Every day is walked, so the length is bounded."""


class DayClass(StrEnum):
    """What became of a requested calendar day; a day has the first class that applies, in this order."""

    DELIVERED = "delivered"
    """The reply has a value, whatever the calendar says."""
    BEFORE_THE_SERIES = "before_the_series"
    AFTER_THE_SERIES = "after_the_series"
    SUSPENDED = "suspended"
    """Publication paused and was later resumed (ISK, 2008 to 2018)."""
    UNKNOWN = "unknown"
    """Later than the date until which the TARGET calendar was checked."""
    TARGET_CLOSED = "target_closed"
    NOT_YET_PUBLISHED = "not_yet_published"
    """Due later than `as_of`."""
    NOT_IN_SNAPSHOT = "not_in_snapshot"
    """Due after the recorded reply was captured, and not later than `as_of`."""
    OVERDUE = "overdue"
    """Due, not there, and the next business day's rate is not due yet: the ECB allows that much delay."""
    NO_SUCH_OBSERVATION = "no_such_observation"
    """The genuine gap."""


_ALWAYS_PRESENT: Final = (
    DayClass.TARGET_CLOSED,
    DayClass.NOT_YET_PUBLISHED,
    DayClass.NO_SUCH_OBSERVATION,
    DayClass.BEFORE_THE_SERIES,
)
_WHEN_NOT_ZERO: Final = (
    DayClass.AFTER_THE_SERIES,
    DayClass.SUSPENDED,
    DayClass.UNKNOWN,
    DayClass.NOT_IN_SNAPSHOT,
    DayClass.OVERDUE,
)
_ONE_DAY: Final = timedelta(days=1)


class WindowError(ValueError):
    """A window cannot be certified: it ends before it begins, it is too long, or the clock has no time zone."""


@dataclass(frozen=True, slots=True)
class Window:
    """The calendar days from `first` to `last`, both inclusive.

    Raises:
        WindowError: `first` is later than `last`, or there are more than `MAX_CALENDAR_DAYS`.
    """

    first: date
    last: date

    def __post_init__(self) -> None:
        if self.first > self.last:
            raise WindowError(f"the window begins on {self.first}, after it ends on {self.last}")
        if self.calendar_days > MAX_CALENDAR_DAYS:
            raise WindowError(
                f"the window {self.first}..{self.last} has {self.calendar_days} days, more than {MAX_CALENDAR_DAYS}"
            )

    @property
    def calendar_days(self) -> int:
        """How many days it has."""
        return self.last.toordinal() - self.first.toordinal() + 1

    def days(self) -> Iterable[date]:
        """Its days, ascending."""
        return map(date.fromordinal, range(self.first.toordinal(), self.last.toordinal() + 1))


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a day is classified from.

    Attributes:
        delivered: the days for which the reply has a value.
        bounds: where the series begins, ends and pauses.
        as_of: the instant for which the answer is true; aware.
        captured_at: when the recorded reply was captured, or None for a live reply; aware.
    """

    delivered: Container[date]
    bounds: SeriesBounds
    as_of: datetime
    captured_at: datetime | None

    def __post_init__(self) -> None:
        for clock in (self.as_of, self.captured_at):
            if clock is not None and clock.tzinfo is None:
                raise WindowError(f"the clock reads {clock.isoformat()} without a time zone")


@dataclass(frozen=True, slots=True)
class Certificate:
    """What became of every requested day. No field has a default.

    Attributes:
        requested_from: first requested day.
        requested_to: last requested day.
        requested_calendar_days: how many days that is.
        expected_observations: values that exist as far as can be known: delivered plus genuine gaps.
        delivered_observations: values in this answer.
        delivered_from: day of the first of them, or None.
        delivered_to: day of the last of them, or None.
        absent: days without a value by cause, in the order in which they are written.
        delivered_on_closing_days: days with a value although TARGET was closed; none was ever seen.
        window_still_open: whether a later answer to the same question may hold more values.
        body_completed_at: the instant for which this is true; aware.
        source: the quotation of the source.
    """

    requested_from: date
    requested_to: date
    requested_calendar_days: int
    expected_observations: int
    delivered_observations: int
    delivered_from: date | None
    delivered_to: date | None
    absent: Mapping[str, int]
    delivered_on_closing_days: tuple[date, ...]
    window_still_open: bool
    body_completed_at: datetime
    source: str

    def to_json(self) -> dict[str, Any]:
        """The member `coverage` of an answer, members in their fixed order."""
        coverage: dict[str, Any] = {
            "requested_from": self.requested_from.isoformat(),
            "requested_to": self.requested_to.isoformat(),
            "requested_calendar_days": self.requested_calendar_days,
            "expected_observations": self.expected_observations,
            "delivered_observations": self.delivered_observations,
            "delivered_from": None if self.delivered_from is None else self.delivered_from.isoformat(),
            "delivered_to": None if self.delivered_to is None else self.delivered_to.isoformat(),
            "absent": dict(self.absent),
            "window_still_open": self.window_still_open,
            "body_completed_at": self.body_completed_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "source": self.source,
        }
        if self.delivered_on_closing_days:
            coverage["delivered_on_closing_days"] = [day.isoformat() for day in self.delivered_on_closing_days]
        return coverage


@dataclass(frozen=True, slots=True)
class Answer:
    """Observations with their certificate; there is no way to make one without the other.

    Attributes:
        observations: the values of the window, ascending.
        certificate: what became of every day of the window.
    """

    observations: tuple[Observation, ...]
    certificate: Certificate

    def to_json(self) -> dict[str, Any]:
        """The structured content of a tool's result, valid against `ANSWER_SCHEMA`; members in their fixed order."""
        return {
            "observations": [[day.isoformat(), value] for day, value in self.observations],
            "coverage": self.certificate.to_json(),
            "source": self.certificate.source,
        }

    def to_text(self) -> str:
        """The same for people: indented by two, each observation on one line, ending with a line feed."""
        indented = json.dumps(self.to_json(), indent=2)
        return re.sub(r'\[\s+("[0-9-]{10}"),\s+([0-9.]+)\s+\]', r"[\1, \2]", indented) + "\n"


class Certifier:
    """Gate 4. Stateless; every decision is a method of its own, so that a subclass can replace exactly one."""

    checked_until: date = target_calendar.CHECKED_UNTIL
    """The last day for which the TARGET calendar was checked."""

    def is_closed(self, day: date) -> bool:
        """Whether TARGET is closed on `day`."""
        return target_calendar.is_closed(day)

    def due_at(self, day: date) -> datetime:
        """When the rate of the business day `day` is due."""
        return target_calendar.due_at(day)

    def overdue_until(self, day: date) -> datetime:
        """Until when the missing rate of the business day `day` may still be late: the next one's due time."""
        return self.due_at(target_calendar.next_business_day(day))

    def classify(self, day: date, evidence: Evidence) -> DayClass:
        """The one class of a requested day: the first that applies, in the order of `DayClass`."""
        bounds = evidence.bounds
        if day in evidence.delivered:
            return DayClass.DELIVERED
        if day < bounds.first:
            return DayClass.BEFORE_THE_SERIES
        if bounds.last is not None and day > bounds.last:
            return DayClass.AFTER_THE_SERIES
        if bounds.suspended_on(day):
            return DayClass.SUSPENDED
        if day > self.checked_until:
            return DayClass.UNKNOWN
        if self.is_closed(day):
            return DayClass.TARGET_CLOSED
        due = self.due_at(day)
        if due > evidence.as_of:
            return DayClass.NOT_YET_PUBLISHED
        if evidence.captured_at is not None and due > evidence.captured_at:
            return DayClass.NOT_IN_SNAPSHOT
        if self.overdue_until(day) > evidence.as_of:
            return DayClass.OVERDUE
        return DayClass.NO_SUCH_OBSERVATION

    def build(
        self,
        window: Window,
        observations: tuple[Observation, ...],
        counts: Mapping[DayClass, int],
        as_of: datetime,
    ) -> Certificate:
        """The certificate for a window whose days were classified and counted."""
        absent = {cause.value: counts.get(cause, 0) for cause in _ALWAYS_PRESENT}
        absent |= {cause.value: counts[cause] for cause in _WHEN_NOT_ZERO if counts.get(cause)}
        delivered = counts.get(DayClass.DELIVERED, 0)
        return Certificate(
            requested_from=window.first,
            requested_to=window.last,
            requested_calendar_days=window.calendar_days,
            expected_observations=delivered + counts.get(DayClass.NO_SUCH_OBSERVATION, 0),
            delivered_observations=delivered,
            delivered_from=observations[0][0] if observations else None,
            delivered_to=observations[-1][0] if observations else None,
            absent=absent,
            delivered_on_closing_days=tuple(day for day, _ in observations if self.is_closed(day)),
            window_still_open=bool(counts.get(DayClass.NOT_YET_PUBLISHED) or counts.get(DayClass.OVERDUE)),
            body_completed_at=as_of,
            source=SOURCE,
        )

    def certify(
        self,
        window: Window,
        rows: Rows,
        bounds: SeriesBounds,
        as_of: datetime,
        captured_at: datetime | None,
    ) -> Certificate:
        """The certificate for `window`, given the rows of a reply.

        Args:
            window: the requested days.
            rows: the reply; rows outside the window do not count.
            bounds: those of the series, from `series.bounds_of`.
            as_of: the instant for which the certificate is true; aware.
            captured_at: when the reply was captured if it was recorded, None if it is live; aware.

        Raises:
            WindowError: a clock has no time zone.
        """
        return self.answer(window, rows, bounds, as_of, captured_at).certificate

    def answer(
        self,
        window: Window,
        rows: Rows,
        bounds: SeriesBounds,
        as_of: datetime,
        captured_at: datetime | None,
    ) -> Answer:
        """The window's observations and their certificate; arguments and errors as for `certify`."""
        observations = rows.cut(window.first, window.last).observations
        return self._answer(window, observations, bounds, as_of, captured_at)

    def latest(self, rows: Rows, bounds: SeriesBounds, as_of: datetime, captured_at: datetime | None) -> Answer:
        """The last observation not later than the date of `as_of` in Frankfurt, certified from its day to that date.

        Where there is none the window is that date alone, without an observation. Arguments and errors: see `certify`.
        """
        if as_of.tzinfo is None:
            raise WindowError(f"the clock reads {as_of.isoformat()} without a time zone")
        today = as_of.astimezone(target_calendar.BERLIN).date()
        observations = rows.cut(date.min, today).observations[-1:]
        window = Window(observations[0][0] if observations else today, today)
        return self._answer(window, observations, bounds, as_of, captured_at)

    def _answer(
        self,
        window: Window,
        observations: tuple[Observation, ...],
        bounds: SeriesBounds,
        as_of: datetime,
        captured_at: datetime | None,
    ) -> Answer:
        evidence = Evidence(dict(observations), bounds, as_of, captured_at)
        counts = Counter(self.classify(day, evidence) for day in window.days())
        return Answer(observations, self.build(window, observations, counts, as_of))


def _count(meaning: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 0, "description": meaning}


_DAY: Final = {"type": "string", "format": "date"}
_DAY_OR_NULL: Final = {"type": ["string", "null"], "format": "date"}

ANSWER_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "observations": {
            "type": "array",
            "description": "Days and rates, ascending: units of the currency for one euro.",
            "items": {"type": "array", "prefixItems": [_DAY, {"type": "number"}], "minItems": 2, "maxItems": 2},
        },
        "coverage": {
            "type": "object",
            "description": "What became of every requested calendar day. This block is ours, not the ECB's.",
            "properties": {
                "requested_from": _DAY,
                "requested_to": _DAY,
                "requested_calendar_days": _count("Delivered observations plus all absent days."),
                "expected_observations": _count("Delivered observations plus no_such_observation."),
                "delivered_observations": _count("Observations in this answer."),
                "delivered_from": _DAY_OR_NULL,
                "delivered_to": _DAY_OR_NULL,
                "absent": {
                    "type": "object",
                    "description": "Requested days without an observation, each under exactly one cause.",
                    "properties": {
                        "target_closed": _count("TARGET was or will be closed."),
                        "not_yet_published": _count("Due after body_completed_at."),
                        "no_such_observation": _count("Genuine gap: due, and not there."),
                        "before_the_series": _count("Earlier than the first value of the series."),
                        "after_the_series": _count("Later than the last value of a series that ended."),
                        "suspended": _count("Publication of the series was suspended."),
                        "unknown": _count("Beyond the date until which the TARGET calendar was checked."),
                        "not_in_snapshot": _count("Due after the recorded reply was captured."),
                        "overdue": _count("Due and late, within the delay that the ECB allows."),
                    },
                    "required": [cause.value for cause in _ALWAYS_PRESENT],
                    "additionalProperties": False,
                },
                "window_still_open": {
                    "type": "boolean",
                    "description": "Whether a later answer may hold more: not_yet_published + overdue > 0.",
                },
                "body_completed_at": {
                    "type": "string",
                    "format": "date-time",
                    "description": "The instant for which this answer is true, UTC.",
                },
                "source": {"type": "string"},
                "delivered_on_closing_days": {
                    "type": "array",
                    "items": _DAY,
                    "description": "Days with a value although TARGET was closed; absent when there are none.",
                },
            },
            "required": [
                "requested_from",
                "requested_to",
                "requested_calendar_days",
                "expected_observations",
                "delivered_observations",
                "delivered_from",
                "delivered_to",
                "absent",
                "window_still_open",
                "body_completed_at",
                "source",
            ],
            "additionalProperties": False,
        },
        "source": {"type": "string"},
    },
    "required": ["observations", "coverage", "source"],
    "additionalProperties": False,
}
"""JSON Schema (2020-12) of `Answer.to_json`, for an outputSchema; `coverage` and all it always has are required."""

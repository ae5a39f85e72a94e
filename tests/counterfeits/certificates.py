"""Counterfeits of the invariant certificates."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from counterfeits import counterfeit
from quenchz_reference.certificates import ANSWER_SCHEMA, Answer, Certificate, Certifier, DayClass, Window
from quenchz_reference.parts import recast
from quenchz_reference.series import Row, Rows
from quenchz_reference.service import CannotAnswerError, RatesService
from quenchz_reference.target_calendar import BERLIN, closing_days

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from quenchz_reference.parts import Parts
    from quenchz_reference.series import Observation, SeriesBounds

Json = dict[str, Any]
EVERY_COUNT = ("QZ-CRT-2", "QZ-CRT-3", "QZ-CRT-4", "QZ-CRT-5", "QZ-CRT-6")


def with_tool(
    parts: Parts,
    *,
    read: Callable[[Json], Json] = lambda arguments: arguments,
    write: Callable[[Json], Json] = lambda answer: answer,
    schema: Json = ANSWER_SCHEMA,
) -> Parts:
    """Change what the tool exchange_rates reads, what it writes, or the schema that it promises."""
    entry = parts.catalogue.tools["exchange_rates"]

    async def perform(service: RatesService, arguments: Mapping[str, Any]) -> Json:
        return write(await entry.perform(service, read(dict(arguments))))

    definition = entry.definition.model_copy(update={"output_schema": schema})
    tools = {**parts.catalogue.tools, "exchange_rates": replace(entry, definition=definition, perform=perform)}
    return replace(parts, catalogue=replace(parts.catalogue, tools=tools))


def with_certifier(parts: Parts, certifier: type[Certifier]) -> Parts:
    """Certify answers with another gate 4."""
    return replace(parts, service=replace(parts.service, certifier=certifier()))


def with_certificate(parts: Parts, change: Callable[[Certificate], Certificate]) -> Parts:
    """Change each certificate after it was built."""

    class Changed(Certifier):
        def build(self, *about: Any) -> Certificate:
            return change(super().build(*about))

    return with_certifier(parts, Changed)


def with_counts(parts: Parts, change: Callable[[Window, Counter[DayClass], datetime], Counter[DayClass]]) -> Parts:
    """Change the counts of days by class, from which each certificate is built."""

    class Recounted(Certifier):
        def build(
            self,
            window: Window,
            observations: tuple[Observation, ...],
            counts: Mapping[DayClass, int],
            as_of: datetime,
        ) -> Certificate:
            return super().build(window, observations, change(window, Counter(counts), as_of), as_of)

    return with_certifier(parts, Recounted)


# --- where the certificate is missing -------------------------------------------------------------------------------


@counterfeit("QZ-CRT-1", row="tool 1")
def the_certificate_is_optional(parts: Parts) -> Parts:
    """The schema of the answer has the certificate among its properties, not among what it requires."""
    return with_tool(parts, schema={**ANSWER_SCHEMA, "required": ["observations", "source"]})


@counterfeit("QZ-CRT-1", *EVERY_COUNT, "QZ-CRT-7", row="tool 1")
def the_certificate_is_null_when_nothing_was_delivered(parts: Parts) -> Parts:
    """An empty answer has null where the certificate stands, as its schema allows."""
    properties = ANSWER_SCHEMA["properties"]
    nullable = {"anyOf": [properties["coverage"], {"type": "null"}]}

    def write(answer: Json) -> Json:
        return answer if answer["observations"] else answer | {"coverage": None}

    return with_tool(parts, write=write, schema={**ANSWER_SCHEMA, "properties": properties | {"coverage": nullable}})


@counterfeit(*EVERY_COUNT, "QZ-CRT-7", row="Sunday")
def empty_answers_have_no_certificate(parts: Parts) -> Parts:
    """An answer without observations returns early, before the certificate is made."""

    def write(answer: Json) -> Json:
        return answer if answer["observations"] else {"observations": [], "source": answer["source"]}

    return with_tool(parts, write=write)


@counterfeit(*EVERY_COUNT, "QZ-CRT-7", row="before the euro")
def a_window_before_the_series_is_an_error(parts: Parts) -> Parts:
    """A window that ends before the first rate is refused instead of certified."""

    def write(answer: Json) -> Json:
        coverage = answer["coverage"]
        if coverage["absent"]["before_the_series"] == coverage["requested_calendar_days"]:
            raise CannotAnswerError("there are no rates for this window")
        return answer

    return with_tool(parts, write=write)


@counterfeit(*EVERY_COUNT, row="future")
def a_window_in_the_future_is_an_error(parts: Parts) -> Parts:
    """A window that begins after today is refused instead of certified."""

    def write(answer: Json) -> Json:
        coverage = answer["coverage"]
        if coverage["requested_from"] > coverage["body_completed_at"][:10]:
            raise CannotAnswerError("this window lies in the future")
        return answer

    return with_tool(parts, write=write)


# --- which days were requested --------------------------------------------------------------------------------------


@counterfeit("QZ-CRT-3", "QZ-CRT-7", row="Easter")
def the_last_day_is_not_counted(parts: Parts) -> Parts:
    """The requested days are the difference of the two dates, one less than there are."""
    return with_certificate(parts, lambda made: replace(made, requested_calendar_days=made.requested_calendar_days - 1))


@counterfeit("QZ-CRT-3", row="summer time")
def days_are_24_hours_long(parts: Parts) -> Parts:
    """The requested days are counted in hours of Frankfurt, where one day in March has 23."""

    def change(made: Certificate) -> Certificate:
        begin, end = (datetime.combine(day, time(), BERLIN) for day in (made.requested_from, made.requested_to))
        return replace(made, requested_calendar_days=int((end.timestamp() - begin.timestamp()) // 86_400) + 1)

    return with_certificate(parts, change)


@counterfeit("QZ-CRT-3", row="across the start")
def the_requested_window_is_read_off_the_answer(parts: Parts) -> Parts:
    """The certificate states the first and last delivered day as the window that was asked for."""

    def change(made: Certificate) -> Certificate:
        first, last = made.delivered_from, made.delivered_to
        return made if first is None or last is None else replace(made, requested_from=first, requested_to=last)

    return with_certificate(parts, change)


@counterfeit("QZ-CRT-3", row="turn of the year")
def a_holiday_on_a_weekend_is_counted_twice(parts: Parts) -> Parts:
    """Closed days are the weekends plus the holidays, also where those fall together."""

    def change(window: Window, counts: Counter[DayClass], _: datetime) -> Counter[DayClass]:
        both = sum(day.weekday() >= 5 and day in closing_days(day.year) for day in window.days())
        return counts + Counter({DayClass.TARGET_CLOSED: both})

    return with_counts(parts, change)


@counterfeit("QZ-CRT-3", row="future")
def days_beyond_the_calendar_have_no_cause(parts: Parts) -> Parts:
    """Days for which no calendar is known are left out of the causes."""

    def change(_: Window, counts: Counter[DayClass], __: datetime) -> Counter[DayClass]:
        return Counter({kind: count for kind, count in counts.items() if kind is not DayClass.UNKNOWN})

    return with_counts(parts, change)


# --- what is expected -----------------------------------------------------------------------------------------------


def also_expected(parts: Parts, more: Callable[[Certificate], int]) -> Parts:
    """Expect more observations than are delivered or genuine gaps."""
    return with_certificate(
        parts, lambda made: replace(made, expected_observations=made.expected_observations + more(made))
    )


@counterfeit("QZ-CRT-4", row="Easter")
def a_rate_is_expected_on_every_weekday(parts: Parts) -> Parts:
    """The calendar of expected observations knows weekends, not the holidays of TARGET."""

    def holidays(made: Certificate) -> int:
        days = Window(made.requested_from, made.requested_to).days()
        return sum(day.weekday() < 5 and day in closing_days(day.year) for day in days)

    return also_expected(parts, holidays)


@counterfeit("QZ-CRT-4", row="across the start")
def rates_are_expected_before_the_series(parts: Parts) -> Parts:
    """Days before the first rate are expected and missing."""
    return also_expected(parts, lambda made: made.absent["before_the_series"])


@counterfeit("QZ-CRT-4", row="into the future")
def rates_are_expected_before_they_are_due(parts: Parts) -> Parts:
    """Days whose rate is not due yet are expected and missing."""
    return also_expected(parts, lambda made: made.absent["not_yet_published"])


# --- what was delivered ---------------------------------------------------------------------------------------------


@counterfeit("QZ-CRT-5", row="Sunday")
def delivered_bounds_are_those_of_the_request(parts: Parts) -> Parts:
    """The delivered bounds are copied from the request, as if every requested day had been delivered."""

    def change(made: Certificate) -> Certificate:
        if made.delivered_observations:
            return made
        return replace(made, delivered_from=made.requested_from, delivered_to=made.requested_to)

    return with_certificate(parts, change)


@counterfeit("QZ-CRT-5", "QZ-CRT-7", row="Easter")
def the_newest_observation_comes_first(parts: Parts) -> Parts:
    """Observations are listed from the newest to the oldest."""
    return with_tool(parts, write=lambda answer: answer | {"observations": answer["observations"][::-1]})


@counterfeit("QZ-CRT-5", "QZ-CRT-7", row="decade")
def observations_are_cut_at_a_thousand(parts: Parts) -> Parts:
    """A long answer is cut at a thousand observations, and its certificate speaks of all of them."""
    return with_tool(parts, write=lambda answer: answer | {"observations": answer["observations"][:1000]})


# --- whether the window is still open -------------------------------------------------------------------------------


@counterfeit("QZ-CRT-6", row="into the future")
def every_window_is_called_complete(parts: Parts) -> Parts:
    """An answer always says that nothing more will come."""
    return with_certificate(parts, lambda made: replace(made, window_still_open=False))


@counterfeit("QZ-CRT-6", row="future")
def a_window_is_open_until_its_last_day_has_passed(parts: Parts) -> Parts:
    """Openness is read off the calendar date, whether or not a rate is due."""
    return with_certificate(
        parts, lambda made: replace(made, window_still_open=made.requested_to > made.body_completed_at.date())
    )


@counterfeit("QZ-CRT-6", row="Sunday")
def an_empty_window_stays_open(parts: Parts) -> Parts:
    """Where nothing was delivered something is thought to come."""
    return with_certificate(
        parts,
        lambda made: replace(made, window_still_open=made.window_still_open or not made.delivered_observations),
    )


# --- whether parts add up -------------------------------------------------------------------------------------------


@counterfeit("QZ-CRT-7", row="Easter")
def closed_days_are_filled_with_the_rate_before(parts: Parts) -> Parts:
    """Between two rates of a window, days without one repeat the rate of the day before."""

    class Filling(Certifier):
        def answer(
            self, window: Window, rows: Rows, bounds: SeriesBounds, as_of: datetime, captured_at: datetime | None
        ) -> Answer:
            filled: list[Row] = []
            for day, value in rows.cut(window.first, window.last).observations:
                while filled and (missing := filled[-1].day + timedelta(1)) < day:
                    filled.append(Row(missing, filled[-1].value))
                filled.append(Row(day, value))
            return super().answer(window, Rows(rows.currency, tuple(filled)), bounds, as_of, captured_at)

    return with_certifier(parts, Filling)


@counterfeit("QZ-CRT-7", row="start")
def a_window_without_observations_is_called_closed(parts: Parts) -> Parts:
    """Where nothing was delivered all days are called closed, without looking at the calendar."""

    def change(window: Window, counts: Counter[DayClass], _: datetime) -> Counter[DayClass]:
        return counts if counts[DayClass.DELIVERED] else Counter({DayClass.TARGET_CLOSED: window.calendar_days})

    return with_counts(parts, change)


@counterfeit("QZ-CRT-7", row="future")
def a_window_that_begins_today_is_all_pending(parts: Parts) -> Parts:
    """In a window that begins today or later every day is called pending, weekends too."""

    def change(window: Window, counts: Counter[DayClass], as_of: datetime) -> Counter[DayClass]:
        later = window.first >= as_of.date()
        return Counter({DayClass.NOT_YET_PUBLISHED: window.calendar_days}) if later else counts

    return with_counts(parts, change)


# --- what is accepted as a date -------------------------------------------------------------------------------------

FIRST, TODAY = "1999-01-04", "2026-08-26"


def reading(parts: Parts, change: Callable[[Any], Any], *, name: str = "from") -> Parts:
    """Change one argument of exchange_rates before it is read, if it was given."""
    return with_tool(parts, read=lambda given: given | {name: change(given[name])} if name in given else given)


def is_date(text: object) -> bool:
    """Whether the server reads `text` as a date."""
    try:
        return isinstance(text, str) and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


@counterfeit("QZ-CRT-8", row="reversed")
def a_reversed_window_is_turned_round(parts: Parts) -> Parts:
    """A window that ends before it begins is answered as if its ends stood in order."""

    class Turned(RatesService):
        async def exchange_rates(self, currency: str, first: date, last: date) -> Answer:
            return await super().exchange_rates(currency, min(first, last), max(first, last))

    return replace(parts, service=recast(Turned, parts.service))


@counterfeit("QZ-CRT-8", row="no date")
def an_unreadable_start_is_the_start_of_the_series(parts: Parts) -> Parts:
    """A start that cannot be read counts as no bound."""
    return reading(parts, lambda value: value if is_date(value) else FIRST)


@counterfeit("QZ-CRT-8", row="no such day")
def days_beyond_the_end_of_a_month_roll_over(parts: Parts) -> Parts:
    """29 February of a common year is read as 1 March."""

    def rolled(value: Any) -> Any:
        found = re.fullmatch(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", value) if isinstance(value, str) else None
        if found is None or is_date(value) or not is_date(f"{found[1]}-{found[2]}-01"):
            return value
        return (date(int(found[1]), int(found[2]), 1) + timedelta(int(found[3]) - 1)).isoformat()

    return reading(parts, rolled)


@counterfeit("QZ-CRT-8", row="a number")
def a_number_is_read_as_a_date(parts: Parts) -> Parts:
    """The number 20240201 is read as the date it looks like."""

    def dashed(value: Any) -> Any:
        return re.sub(r"^(....)(..)(..)$", r"\1-\2-\3", str(value)) if isinstance(value, int) else value

    return reading(parts, dashed)


@counterfeit("QZ-CRT-8", row="null")
def a_null_end_is_today(parts: Parts) -> Parts:
    """An end that is null counts as today."""
    return reading(parts, lambda value: TODAY if value is None else value, name="to")


@counterfeit("QZ-CRT-8", row="missing")
def missing_dates_have_defaults(parts: Parts) -> Parts:
    """Without dates the answer is the last week."""
    return with_tool(parts, read=lambda given: {"from": "2026-08-20", "to": TODAY} | given)


@counterfeit("QZ-CRT-8", row="with a time")
def a_time_of_day_is_cut_off(parts: Parts) -> Parts:
    """A date with a time of day is read as the date alone."""
    return reading(parts, lambda value: value.partition("T")[0] if isinstance(value, str) else value)


@counterfeit("QZ-CRT-8", row="empty")
def an_empty_start_is_the_start_of_the_series(parts: Parts) -> Parts:
    """An empty start counts as no bound."""
    return reading(parts, lambda value: FIRST if value == "" else value)


@counterfeit("QZ-CRT-8", row="year 0")
def the_zero_date_is_the_start_of_the_series(parts: Parts) -> Parts:
    """A start in the year 0, which databases write for no date, counts as no bound."""
    return reading(parts, lambda value: FIRST if str(value).startswith("0000-") else value)


@counterfeit("QZ-CRT-8", row="end no date")
def an_unreadable_end_is_today(parts: Parts) -> Parts:
    """An end that is a word counts as today."""
    return reading(parts, lambda value: TODAY if isinstance(value, str) and value.isalpha() else value, name="to")


@counterfeit("QZ-CRT-7", row="decade")
def rows_are_cut_before_they_are_certified(parts: Parts) -> Parts:
    """The vendor's answer is cut at a thousand rows, so a long window ends in gaps that its parts do not have."""

    def write(answer: Json) -> Json:
        kept, lost = answer["observations"][:1000], len(answer["observations"][1000:])
        made = answer["coverage"]
        if not lost:
            return answer
        absent = made["absent"] | {"no_such_observation": made["absent"]["no_such_observation"] + lost}
        coverage = made | {"delivered_observations": 1000, "delivered_to": kept[-1][0], "absent": absent}
        return answer | {"observations": kept, "coverage": coverage}

    return with_tool(parts, write=write)

"""Variants that replace a part of the server."""

from __future__ import annotations

import copy
import json
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from mcp import MCPError
from mcp_types import INVALID_PARAMS, Prompt, Resource, ResourceTemplate, Tool

from quenchz_reference.certificates import Answer, Certificate, Certifier, DayClass, Evidence
from quenchz_reference.handlers import Handlers
from quenchz_reference.reserves import ADMITTED, Budgets, Decision, ReserveLedger, Ring
from quenchz_reference.scopes import Access, Catalogue, Entry, Perform
from quenchz_reference.service import CannotAnswerError, RatesService
from variants import variant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from quenchz_reference.caller import Caller
    from quenchz_reference.parts import Parts

D = TypeVar("D", Tool, Prompt, Resource, ResourceTemplate)


# --- framing and catalogue ------------------------------------------------------------------------------------------


@variant
def event_streams(parts: Parts) -> Parts:
    """Answers are server-sent events."""
    return replace(parts, options=replace(parts.options, framing="sse"))


@variant
def more_things(parts: Parts) -> Parts:
    """There are more tools and prompts, granted and hidden, than anybody declared."""
    tools, prompts = dict(parts.catalogue.tools), dict(parts.catalogue.prompts)
    for of, name in (("latest_rate", "rate_of_today"), ("full_history", "annual_averages")):
        tools[name] = _called(tools[of], name)
    for of, name in (("explain_rate", "compare_rates"), ("audit_history", "summarise_history")):
        prompts[name] = _called(prompts[of], name)
    return replace(parts, catalogue=replace(parts.catalogue, tools=tools, prompts=prompts))


def _called(entry: Entry[D], name: str) -> Entry[D]:
    return replace(entry, definition=entry.definition.model_copy(update={"name": name}))


# --- denials --------------------------------------------------------------------------------------------------------


@variant
def other_wording(parts: Parts) -> Parts:
    """A denial has other words and carries data."""
    return replace(parts, access=_Wordy())


class _Wordy(Access):
    def deny(self, caller: Caller, name: str, reason: str) -> NoReturn:
        raise MCPError(INVALID_PARAMS, "Sorry: nothing of that name is here for you.", {"help": "tools/list"})


@variant
def name_echoed(parts: Parts) -> Parts:
    """A denial repeats the name that was asked for."""
    return replace(parts, access=_Echoing(), handlers=_EchoingHandlers)


class _Echoing(Access):
    def deny(self, caller: Caller, name: str, reason: str) -> NoReturn:
        raise MCPError(INVALID_PARAMS, f"Unknown name: {name}")


class _EchoingHandlers(Handlers):
    def _readable(self, uri: str) -> tuple[Perform, dict[str, str]]:
        try:
            return super()._readable(uri)
        except MCPError:
            # What was asked for is the URI; the name of the template that it matches would tell that there is one.
            raise MCPError(INVALID_PARAMS, f"Unknown name: {uri}") from None


@variant
def denials_as_tool_errors(parts: Parts) -> Parts:
    """An unknown tool is answered with a result that is an error, not with an error of the protocol."""
    return replace(parts, access=_Softly(parts.catalogue))


class _Softly(Access):
    def __init__(self, catalogue: Catalogue) -> None:
        self._tools: Mapping[str, Any] = catalogue.tools

    def granted(self, caller: Caller, table: Mapping[str, Entry[D]], name: str) -> Entry[D]:
        entry = table.get(name)
        if table is not self._tools or (entry is not None and self.may(caller, entry)):
            return super().granted(caller, table, name)
        return replace(next(iter(table.values())), perform=_no_such_tool)


async def _no_such_tool(_: RatesService, __: Mapping[str, Any]) -> Any:
    raise CannotAnswerError("There is no such tool.")


# --- budgets --------------------------------------------------------------------------------------------------------


def _with_ledgers(parts: Parts, cls: type[ReserveLedger]) -> Parts:
    opened = parts.budgets._open_ledger

    def open_ledger() -> ReserveLedger:
        ledger = opened()
        assert isinstance(ledger, ReserveLedger)
        ledger.__class__ = cls
        return ledger

    return replace(parts, budgets=Budgets(open_ledger))


@variant
def pool_before_reserve(parts: Parts) -> Parts:
    """A caller draws on the pool first, and on its own reserve when the pool is empty."""
    return _with_ledgers(parts, _PoolFirst)


class _PoolFirst(ReserveLedger):
    def charge(self, caller: str) -> Decision:
        now = self._clock.monotonic_ns()
        at = now if self._latest is None else max(now, self._latest)
        own = self._ring_of(caller, at) or Ring(0)
        for ring in (self._pool, own):
            if ring.free(at, self._window):
                ring.take(at)
                self._latest = at
                return ADMITTED
        return Decision(admitted=False, retry_after=self._retry_after(own, now))


@variant
def whole_window_to_wait(parts: Parts) -> Parts:
    """Retry-After is always a whole window, rounded up."""
    return _with_ledgers(parts, _Patient)


class _Patient(ReserveLedger):
    def _retry_after(self, own: Ring | None, now: int) -> int | None:
        return -(-self._window // 1_000_000_000)


@variant
def pool_as_excess(parts: Parts) -> Parts:
    """The pool is what all callers have beyond their reserves, so a slot changes hands when a reserve frees one."""
    return _with_ledgers(parts, _Excess)


class _Excess(ReserveLedger):
    """Admits while n_i < r_i, or the sum of max(0, n_j - r_j) is less than P; n counts admissions in the window."""

    def charge(self, caller: str) -> Decision:
        now = self._clock.monotonic_ns()
        if not hasattr(self, "_times"):
            self._times: dict[str, list[int]] = {name: [] for name in self._reserves}
        for name, times in self._times.items():
            self._times[name] = [at for at in times if now - at < self._window]
        mine = self._times.setdefault(caller, [])
        over = sum(max(0, len(times) - self._reserves.get(name, 0)) for name, times in self._times.items())
        if len(mine) < self._reserves.get(caller, 0) or over < self._pool.slots:
            mine.append(now)
            self._latest = now
            return ADMITTED
        # With r or fewer left in the window one is admitted again, whatever the others do.
        reserve = self._reserves.get(caller, 0)
        left = mine[len(mine) - reserve] + self._window - now if reserve else self._window
        return Decision(admitted=False, retry_after=-(-left // 1_000_000_000))


# --- certificates ---------------------------------------------------------------------------------------------------


@variant
def another_certificate(parts: Parts) -> Parts:
    """A certificate has its members in another order, members more, and closing days under two causes."""
    tools = {
        name: replace(entry, definition=entry.definition.model_copy(update={"output_schema": _open(entry)}))
        for name, entry in parts.catalogue.tools.items()
    }
    service = RatesService(parts.service.vendor, _Certifier(), parts.service.as_of)
    return replace(parts, service=service, catalogue=replace(parts.catalogue, tools=tools))


def _open(entry: Entry[Tool]) -> Any:
    return json.loads(json.dumps(entry.definition.output_schema), object_hook=_without_the_limit)


def _without_the_limit(member: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in member.items() if key != "additionalProperties"}


class _Certificate(Certificate):
    def to_json(self) -> dict[str, Any]:
        written = {**super().to_json(), "calendar": {"name": "TARGET", "time_zone": "Europe/Berlin"}}
        return dict(reversed(list(written.items())))


class _Certifier(Certifier):
    def _answer(self, window: Any, observations: Any, bounds: Any, as_of: Any, captured_at: Any) -> Answer:
        answer = super()._answer(window, observations, bounds, as_of, captured_at)
        evidence = Evidence(dict(observations), bounds, as_of, captured_at)
        closed = [day for day in window.days() if self.classify(day, evidence) is DayClass.TARGET_CLOSED]
        weekend = sum(day.weekday() >= 5 for day in closed)
        absent = {**answer.certificate.absent, "target_closed": len(closed) - weekend, "weekend": weekend}
        members = {field.name: getattr(answer.certificate, field.name) for field in fields(Certificate)}
        return replace(answer, certificate=_Certificate(**{**members, "absent": absent}))


@variant
def other_names_in_the_schema(parts: Parts) -> Parts:
    """Input schemas describe their members at greater length."""

    def wordier(schema: dict[str, Any]) -> dict[str, Any]:
        longer = copy.deepcopy(schema)
        for member in longer["properties"].values():
            member["title"] = str(member.get("description", "")).upper()
        return longer

    return replace(parts, catalogue=_with_input_schemas(parts.catalogue, wordier))


def _with_input_schemas(catalogue: Catalogue, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Catalogue:
    tools = {
        name: replace(
            entry,
            definition=entry.definition.model_copy(update={"input_schema": change(entry.definition.input_schema)}),
        )
        for name, entry in catalogue.tools.items()
    }
    return replace(catalogue, tools=tools)

"""Judges a recorded run with today's law and no network."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from quenchz.driver import recipes_of, transport_failure
from quenchz.engine import judged, violation_data
from quenchz.history import ExampleRecord, History
from quenchz_spec.codec import decode, encode
from quenchz_spec.discovery import discover, mask_of
from quenchz_spec.outcomes import UntestableError, VoidError
from quenchz_spec.requirement import Invariant, law
from quenchz_spec.shapes import members
from quenchz_spec.vocabulary import Ask, Exchange, Role, TokenRecipe, parse_json

if TYPE_CHECKING:
    from collections.abc import Hashable

    from quenchz_spec.masks import Mask
    from quenchz_spec.subject import Catalogue, Target

_LACKS = "the history lacks an exchange that this law asks for"
_RECORD = "record a new history with `quenchz check --history`"


class ReplaySubject:
    """Feeds recorded exchanges to a property in the order it asks (implements `quenchz_spec.subject.Subject`)."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._queue: list[Exchange] = []
        self._voids_refusals = True
        self._masks: dict[str, Mask | Exception] = {}
        self.select("setup", 1, voids_refusals=False)
        self._catalogue = discover(self.ask, self.target)

    def select(self, channel: str, example: int, *, voids_refusals: bool) -> None:
        """Turn to the exchanges of one example."""
        self._queue = list(self._history.exchanges.get((channel, example), []))
        self._voids_refusals = voids_refusals

    @property
    def counts(self) -> dict[str, int]:
        """How many exchanges of each role are left of the selected example."""
        found: dict[str, int] = {}
        for exchange in self._queue:
            found[exchange.role.name.lower()] = found.get(exchange.role.name.lower(), 0) + 1
        return found

    @property
    def recipes(self) -> frozenset[Hashable]:
        """The recipes of the tokens that the probes left of the selected example hold."""
        probes = [exchange.ask for exchange in self._queue if exchange.role is Role.PROBE]
        return frozenset(recipe for ask in probes for recipe in recipes_of(ask))

    @property
    def target(self) -> Target:
        """The recorded description."""
        return self._history.target

    @property
    def catalogue(self) -> Catalogue:
        """What the recorded listings say."""
        return self._catalogue

    def mask(self, kind: str) -> Mask:
        """Learn the mask of a kind from its recorded pairs."""
        return self.learn(f"mask:{kind}", kind)

    def learn(self, channel: str, kind: str) -> Mask:
        """Learn a mask from one recorded channel."""
        if channel not in self._masks:
            # The recorded pairs count, whatever names were invented for them: another client invents others.
            recorded = self._history.exchanges.get((channel, 0), [])
            pairs = [
                (one, other, (_name(one), _name(other)))
                for one, other in zip(recorded[::2], recorded[1::2], strict=False)
            ]
            try:
                self._masks[channel] = mask_of(pairs, self.target, kind)
            except UntestableError as error:
                self._masks[channel] = error
        found = self._masks[channel]
        if isinstance(found, Exception):
            raise found
        return found

    def token(self, caller: str) -> TokenRecipe:
        """Return the recipe of the good token of a caller."""
        return TokenRecipe(caller=caller)

    def ask(self, ask: Ask, role: Role = Role.PROBE) -> Exchange:
        """Return the next recorded exchange, if it is the one asked for."""
        self.target.require_declared(ask)
        if not self._queue or self._queue[0].role is not role or encode(self._queue[0].ask) != encode(ask):
            raise UntestableError(_LACKS, _RECORD)
        exchange = self._queue.pop(0)
        if exchange.response.start == "":
            raise transport_failure(exchange)
        budget = self.target.budget
        if self._voids_refusals and exchange.status == (429 if budget is None else budget.refusal_status):
            raise VoidError("a budget refusal")
        return exchange

    def issuer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return what the issuer said when it was given this order."""
        exchange = self.ask(Ask(method="", params={"issuer": order}), Role.SETUP)
        return members(parse_json(exchange.response.body.encode("latin-1")))

    def fetch(self, url: str, role: Role = Role.CONTROL, headers: tuple[tuple[str, str], ...] = ()) -> Exchange:
        """Return the next recorded exchange, if it fetched a document."""
        recorded = self._queue[0].ask if self._queue else Ask(method="")
        path = str(recorded.params.get("url", ""))
        if not path or not url.endswith(path):
            raise UntestableError(_LACKS, _RECORD)
        return self.ask(Ask(method="", verb="GET", params={"url": path}, headers=headers), role)

    def fresh_budget(self) -> None:
        """Nothing to do: what followed was recorded."""

    def wait(self, seconds: float) -> None:
        """Nothing to do: the recorded moments tell how long it was."""


def _name(exchange: Exchange) -> str:
    params = exchange.ask.params
    return str(params.get("name", params.get("uri", "")))


def replay(history: History) -> tuple[ReplaySubject, list[ExampleRecord]]:
    """Judge every recorded example again and return the records in order."""
    subject = ReplaySubject(history)
    known = {requirement.id: requirement for requirement in law()}
    records: list[ExampleRecord] = []
    for old in history.examples:
        requirement = known.get(old.requirement)
        if requirement is None:
            continue
        subject.select(requirement.id, old.number, voids_refusals=requirement.invariant is not Invariant.RESERVES)
        counts, recipes = subject.counts, subject.recipes
        violation = None
        if old.outcome == "harness-error":
            outcome, detail = old.outcome, old.detail
        else:
            row = decode(old.arguments)
            outcome, detail, violation = judged(partial(requirement.check, subject, row), requirement)
            if outcome == "void" and old.outcome == "untestable":
                outcome, detail = old.outcome, old.detail
            if outcome == "held" and not (counts.get("control") and counts.get("probe")):
                outcome, detail = "untestable", f"{_LACKS}; {_RECORD}"
        records.append(
            ExampleRecord(
                requirement=old.requirement,
                number=old.number,
                phase=old.phase,
                row=old.row,
                arguments=old.arguments,
                outcome=outcome,
                detail=detail,
                controls=counts.get("control", 0),
                probes=counts.get("probe", 0),
                requests=sum(counts.values()),
                violation=None if violation is None else violation_data(violation),
                recipes=recipes,
            )
        )
    return subject, records

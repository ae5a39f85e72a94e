"""One place per requirement: its id, level, norm, claim, cost and control, and the property that judges it."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import given

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


class Level(enum.Enum):
    """How binding a requirement is, and so what a violation means."""

    MUST = "must"
    QUENCHZ = "quenchz"
    SHOULD = "should"
    OBSERVE = "observe"


class Invariant(enum.Enum):
    """The four invariants, in the order a reader meets them; the value is the middle of the ids."""

    AUDIENCE = "AUD"
    DENIALS = "DEN"
    RESERVES = "RSV"
    CERTIFICATES = "CRT"

    @property
    def word(self) -> str:
        """The word that selects the invariant on a command line."""
        return self.name.lower()

    @property
    def title(self) -> str:
        """The invariant as a heading."""
        return {
            Invariant.AUDIENCE: "audience equality",
            Invariant.DENIALS: "byte-identical denials",
            Invariant.RESERVES: "reserve guarantees",
            Invariant.CERTIFICATES: "certificate totality",
        }[self]


@dataclass(frozen=True)
class Norm:
    """A sentence of a standard, quoted, and where it stands."""

    source: str
    quote: str


@dataclass(frozen=True)
class Row:
    """One line of an attack table: the phrase a report shows, the plain data the property gets, the verdicts.

    `must` is what the norms alone demand of this row; "either" where they permit both outcomes. `quenchz` is what the
    requirement demands at its own level.
    """

    words: str
    value: Any
    must: str = "refused"
    quenchz: str = "refused"


Property = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """What one property of the law demands, and everything a reader needs to judge the demand itself.

    `check` is the property itself, a function of the subject and of a row: plain data from the written table `rows`,
    or an example of `drawn`. `slow` says that an example waits for seconds, so that few are drawn.
    """

    id: str
    level: Level
    claim: str
    norm: Norm
    cost: str
    control: str
    check: Property
    drawn: SearchStrategy[Any]
    contrary: Norm | None = None
    rows: Mapping[str, Row] = field(default_factory=dict[str, Row])
    slow: bool = False

    @property
    def invariant(self) -> Invariant:
        """The invariant this requirement belongs to."""
        return Invariant(self.id.split("-")[1])

    @property
    def number(self) -> int:
        """The number within the invariant; never reused."""
        return int(self.id.rsplit("-", 1)[1])

    @property
    def name(self) -> str:
        """The name of the property, which states the claim as a fact."""
        return self.check.__name__


_REGISTRY: dict[str, Requirement] = {}


class LawError(ValueError):
    """The law itself is ill-formed: an id twice, a level that a row contradicts, a property without a control."""


def requirement(
    id: str,  # noqa: A002 - the word of the law for it
    *,
    level: Level,
    claim: str,
    norm: Norm,
    cost: str,
    control: str,
    rows: Mapping[str, Row],
    drawn: SearchStrategy[Any],
    contrary: Norm | None = None,
    slow: bool = False,
) -> Callable[[Property], Property]:
    """Make a function of `(subject, row)` the property of one requirement: a Hypothesis test over `drawn`.

    Whoever runs the property gives it the value of each row of `rows` before anything is drawn.

    Raises:
        LawError: the id is taken, a text is empty, or a MUST has a row on which the norms permit both outcomes.
    """
    texts = {"claim": claim, "norm": norm.quote, "cost": cost, "control": control}
    if empty := [name for name, text in texts.items() if not text.strip()]:
        raise LawError(f"{id} states no {', '.join(empty)}")
    either = [name for name, row in rows.items() if row.must == "either"]
    if level is Level.MUST and either:
        raise LawError(f"{id} is a MUST, yet the norms permit both outcomes on {either}")

    def mark(check: Property) -> Property:
        if id in _REGISTRY and _REGISTRY[id].name != check.__name__:
            raise LawError(f"{id} is the id of both {_REGISTRY[id].name} and {check.__name__}")
        _REGISTRY[id] = Requirement(
            id=id,
            level=level,
            claim=claim,
            norm=norm,
            cost=cost,
            control=control,
            check=check,
            contrary=contrary,
            drawn=drawn,
            rows=rows,
            slow=slow,
        )
        test: Any = given(row=drawn)(check)
        test.quenchz_id = id
        return test  # type: ignore[no-any-return]

    return mark


PAGES = (
    *("audience", "forgeries", "lifetimes", "placement", "refusals", "issuers", "profiles"),
    *("denials", "reserves", "certificates"),
)
"""The pages of the law, each a module `test_…`; those of the first line are about the first invariant."""


def law() -> list[Requirement]:
    """Return every requirement of this release, by invariant and number."""
    # Imported by name here: the properties import this module.
    for page in PAGES:
        importlib.import_module(f"quenchz_spec.test_{page}")
    order = list(Invariant)
    return sorted(_REGISTRY.values(), key=lambda r: (order.index(r.invariant), r.number))

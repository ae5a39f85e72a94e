"""What the server is made of, each part replaceable: a counterfeit is the same app with one part changed."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

from quenchz_reference.audience import Audience, AudienceGate
from quenchz_reference.clock import Clock
from quenchz_reference.handlers import Handlers
from quenchz_reference.options import Options
from quenchz_reference.reserves import Budgets, Charges, ReservesGate
from quenchz_reference.scopes import Access, Catalogue
from quenchz_reference.service import RatesService
from quenchz_reference.trust import Trust

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass
class Parts:
    """The parts of one server. Use `dataclasses.replace` to change some.

    Attributes:
        options: as they were given: the declared numbers, whatever the other parts do.
        address: scheme, host and port under which clients reach the server; the Host header of a request is not asked.
        clock: of gates 1 and 2; replacing it here alone changes nothing that was already built with another.
        trust: where gate 1 finds keys.
        audience: the decisions of gate 1.
        budgets: the ledgers of gate 2, one per issuer.
        charges: what a request costs at gate 2.
        catalogue: what exists, for gate 3.
        access: the decisions of gate 3.
        service: the rates, with the certifier of gate 4.
        audience_gate: what gate 1 does with its decisions; made when the app is built, as are the next two.
        reserves_gate: what gate 2 does with its decisions.
        handlers: what the SDK's server calls.
    """

    options: Options
    address: str
    clock: Clock
    trust: Trust
    audience: Audience
    budgets: Budgets
    charges: Charges
    catalogue: Catalogue
    access: Access
    service: RatesService
    audience_gate: type[AudienceGate] = AudienceGate
    reserves_gate: type[ReservesGate] = ReservesGate
    handlers: type[Handlers] = Handlers


P = TypeVar("P", bound="DataclassInstance")


def recast(cls: type[P], part: "DataclassInstance") -> P:
    """A `cls` with the fields of `part`, of which it is a subclass: the same part with some methods replaced."""
    return cls(**{field.name: getattr(part, field.name) for field in fields(part) if field.init})

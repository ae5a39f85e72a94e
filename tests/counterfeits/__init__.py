"""Counterfeits: the reference server with one named fault each.

A counterfeit declares, before it is run, which ids it must fail and the attack row that shows it first. No two share
both. `python -m counterfeits NAME OPTIONS` starts one with the options of the reference server (tests/ on the path).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from quenchz_reference.parts import Parts

App = Any
"""An ASGI application."""


@dataclass(frozen=True)
class Counterfeit:
    """One fault: what a developer forgot, the ids that must fail, and the first row of the first id that shows it.

    `alter` replaces parts of the server, `wrap` wraps its ASGI application. `wire` names the one protocol revision on
    which the fault shows, if it does not show on both. `declares` holds the keys of a target file without which the law
    would not ask.
    """

    name: str
    fault: str
    ids: frozenset[str]
    row: str
    alter: Callable[[Parts], Parts]
    wrap: Callable[[App], App]
    wire: str = ""
    declares: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def invariant(self) -> str:
        """The word of the invariant that judges it: that of its first id."""
        middle = min(self.ids).split("-")[1]
        return {"AUD": "audience", "DEN": "denials", "RSV": "reserves", "CRT": "certificates"}[middle]


_COUNTERFEITS: dict[str, Counterfeit] = {}
F = TypeVar("F", bound="Callable[[Any], Any]")


def counterfeit(
    *ids: str, row: str, wraps: bool = False, wire: str = "", declares: Mapping[str, Any] | None = None
) -> Callable[[F], F]:
    """Register a function as a counterfeit named after it; its docstring states the fault.

    It gets the `Parts` of the server and returns changed ones, or with `wraps` the ASGI application.
    """

    def register(function: F) -> F:
        name = function.__name__
        if name in _COUNTERFEITS:
            raise ValueError(f"two counterfeits are called {name}")
        _COUNTERFEITS[name] = Counterfeit(
            name=name,
            fault=" ".join((function.__doc__ or "").split()),
            ids=frozenset(ids),
            row=row,
            alter=(lambda parts: parts) if wraps else function,
            wrap=function if wraps else (lambda app: app),
            wire=wire,
            declares=declares or {},
        )
        return function

    return register


def counterfeits() -> dict[str, Counterfeit]:
    """Return every counterfeit by name."""
    from counterfeits import (  # noqa: F401
        audience,
        audience_issuers,
        audience_profiles,
        audience_requests,
        audience_tokens,
        certificates,
        denials,
        reserves,
    )

    return dict(_COUNTERFEITS)

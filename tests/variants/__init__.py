"""Honest variants: correct servers that differ from the reference in taste, and must fail nothing.

Some differ in what a target file declares, and are judged by that.

Each is the reference server with one matter of taste changed. `python -m variants NAME OPTIONS` starts one with the
options of the reference server (tests/ on the path).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from quenchz_reference.parts import Parts

App = Any
"""An ASGI application."""


@dataclass(frozen=True)
class Variant:
    """One matter of taste: `alter` replaces parts of the server, `wrap` wraps its ASGI application.

    `declares` holds the keys of a target file that say so, where the law needs to be told.
    """

    name: str
    taste: str
    alter: Callable[[Parts], Parts]
    wrap: Callable[[App], App]
    declares: Mapping[str, Any] = field(default_factory=dict[str, Any])


_VARIANTS: dict[str, Variant] = {}
F = TypeVar("F", bound=Callable[[Any], Any])


def variant(function: F) -> F:
    """Register a function from `Parts` to changed ones as a variant named after it; its docstring states the taste."""
    return _register(function, alter=function)


def declared(**declares: Any) -> Callable[[F], F]:
    """Register a function as `variant` does, as one that declares these keys and values of a target file."""
    return lambda function: _register(function, alter=function, declares=declares)


def wrapping(function: F) -> F:
    """Register a function from an ASGI application to another as a variant named after it."""
    return _register(function, wrap=function)


def _register(
    function: F,
    alter: Callable[[Any], Any] = lambda parts: parts,
    wrap: Callable[[Any], Any] = lambda app: app,
    declares: Mapping[str, Any] | None = None,
) -> F:
    name = function.__name__
    if name in _VARIANTS:
        raise ValueError(f"two variants are called {name}")
    _VARIANTS[name] = Variant(name, " ".join((function.__doc__ or "").split()), alter, wrap, declares or {})
    return function


def variants() -> dict[str, Variant]:
    """Return every variant by name."""
    from variants import parts, tokens, wraps  # noqa: F401 - they register themselves

    return dict(_VARIANTS)

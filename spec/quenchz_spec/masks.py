"""What may differ between two denials, and the comparison under it.

The mask hides the JSON-RPC id, the session id of the request, `Date`, what the target file names, and the server's own
noise as two *invented* names show it. It never hides the status, a member's name or a whole body.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quenchz_spec.codec import plain
from quenchz_spec.vocabulary import Exchange

if TYPE_CHECKING:
    from collections.abc import Iterable

ALWAYS_MASKED = ("date",)


@plain
@dataclass(frozen=True)
class Mask:
    """Header fields whose values, and header fields whose presence, are not compared (lower-case names)."""

    values: tuple[str, ...] = ALWAYS_MASKED
    presence: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The mask in words, for a report."""
        shown = "JSON-RPC id, own session id, values of " + ", ".join(self.values)
        return shown + (f"; presence of {', '.join(self.presence)}" if self.presence else "")


@dataclass(frozen=True)
class Difference:
    """The first thing in which two answers differ."""

    part: str
    position: int
    left: str
    right: str

    @property
    def words(self) -> str:
        """The difference in one sentence."""
        where = f"byte {self.position} of the body" if self.part == "body" else self.part
        return f"The first difference is at {where}: {self.left} against {self.right}."


Pair = tuple[Exchange, Exchange, tuple[str, str]]
"""Two answers to two invented names of equal length, and the names."""


def learn(pairs: Iterable[Pair], declared: Iterable[str] = ()) -> tuple[Mask, Difference | None]:
    """Return the mask that pairs of invented names show, and the first difference that no mask may hide, if any.

    A header whose value differs within a pair joins `values`; a header that only one of a pair has joins `presence`.
    """
    values, presence = set(ALWAYS_MASKED) | {name.lower() for name in declared}, set[str]()
    kept = list(pairs)
    for left, right, _ in kept:
        ours, theirs = _headers(left), _headers(right)
        presence |= ours.keys() ^ theirs.keys()
        values |= {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]}
    # The length follows the body; were it noise, the body would differ too, and that no mask hides.
    mask = Mask(tuple(sorted(values - presence - {"content-length"})), tuple(sorted(presence)))
    for left, right, names in kept:
        if (found := difference(left, right, mask, names)) is not None:
            return mask, found
    return mask, None


def difference(left: Exchange, right: Exchange, mask: Mask, names: tuple[str, str] | None = None) -> Difference | None:
    """Return the first difference between two answers under `mask`, or None when they are the same bytes.

    With `names`, each answer's own name (of equal length) is first replaced by the same filler, which is the grade
    *identical apart from the caller's own name echoed*.
    """
    if left.response.start != right.response.start:
        return Difference("the status line", 0, repr(left.response.start), repr(right.response.start))
    ours, theirs = _visible(left, mask), _visible(right, mask)
    for position, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return Difference(f"header {position + 1}", position, repr(": ".join(one)), repr(": ".join(other)))
    if len(ours) != len(theirs):
        more = (ours if len(ours) > len(theirs) else theirs)[min(len(ours), len(theirs))]
        sides = (repr(": ".join(more)), "nothing") if len(ours) > len(theirs) else ("nothing", repr(": ".join(more)))
        return Difference(f"header {min(len(ours), len(theirs)) + 1}", min(len(ours), len(theirs)), *sides)
    bodies = [_body(exchange) for exchange in (left, right)]
    if bodies[0] == bodies[1]:
        return None  # before names are replaced: a constant text may hold one of them
    if names is not None and all(names):
        bodies = [
            body.replace(_escaped(name), "\N{FULL BLOCK}" * len(_escaped(name)))
            for body, name in zip(bodies, names, strict=True)
        ]
    if bodies[0] == bodies[1]:
        return None
    at = next(
        (i for i, (one, other) in enumerate(zip(*bodies, strict=False)) if one != other),
        min(len(bodies[0]), len(bodies[1])),
    )
    return Difference("body", at, *(repr(body[max(0, at - 12) : at + 28]) for body in bodies))


def _escaped(name: str) -> str:
    return name.encode("utf-8", "surrogatepass").decode("latin-1")


def _headers(exchange: Exchange) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, value in exchange.response.headers:
        found[name.lower()] = (*found.get(name.lower(), ()), value)
    return found


def _visible(exchange: Exchange, mask: Mask) -> list[tuple[str, str]]:
    session = exchange.request.header("mcp-session-id")
    return [
        # The id of the session that the request itself named tells its sender nothing.
        (name, "" if name.lower() in mask.values or value == session else value)
        for name, value in exchange.response.headers
        if name.lower() not in mask.presence
    ]


def _body(exchange: Exchange) -> str:
    """The body with the request's own JSON-RPC id replaced by as many zeros; everything else stays."""
    body = exchange.response.body
    if exchange.rpc_id is None:
        return body
    digits = str(exchange.rpc_id)
    return re.sub(rf'("id"\s*:\s*){digits}(?!\d)', lambda m: m.group(1) + "0" * len(digits), body)

"""Admissions whose moments are known only as intervals, against a window.

The server decided somewhere between the sending of a request and the first byte of its answer. What is claimed here
holds for every placement of every decision within its interval. The trailing window at t is (t - W, t]: an admission
at s counts at t if and only if s <= t and t - s < W.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from quenchz_spec.vocabulary import Moments


def surely_together(admitted: Iterable[Moments], window: float) -> list[Moments]:
    """Return a largest set of admissions that surely lie in one half-open window of `window` seconds.

    A set lies in one surely when its latest first byte comes less than `window` after its earliest sending.
    """
    moments = sorted(admitted, key=lambda m: m.sent)
    best: list[Moments] = []
    for start in moments:
        together = [m for m in moments if m.sent >= start.sent and m.first - start.sent < window]
        if len(together) > len(best):
            best = together
    return best


def could_count(admitted: Iterable[Moments], decision: Moments, window: float) -> list[Moments]:
    """Return the admissions that lie in the trailing window of `decision` for at least one placement."""
    return [m for m in admitted if m.sent <= decision.first and decision.sent - m.first < window]


def fits(moments: Sequence[Moments], window: float) -> bool:
    """Whether all of `moments` surely lie in one window."""
    return len(surely_together(moments, window)) == len(moments)

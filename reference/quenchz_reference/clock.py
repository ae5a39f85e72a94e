"""The clocks of gates 1 and 2, as an argument: no gate reads the machine's time by itself."""

import time
from typing import Protocol

NANOSECONDS = 1_000_000_000


class Clock(Protocol):
    """What the gates need to know about time."""

    def now(self) -> float:
        """Seconds since 1970-01-01T00:00:00Z, for the dates inside a token (RFC 7519 NumericDate)."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary origin, for windows of a budget; steps of the wall clock do not show."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> float:
        """Seconds since 1970-01-01T00:00:00Z."""
        return time.time()

    def monotonic_ns(self) -> int:
        """Nanoseconds of the machine's monotonic clock."""
        return time.monotonic_ns()


class ManualClock:
    """A clock that moves only when told to, for tests in which a real window would cost minutes.

    Args:
        start: seconds since 1970-01-01T00:00:00Z.
    """

    def __init__(self, start: float = 1_788_000_000.0) -> None:
        self._start = start
        self._elapsed_ns = 0

    def now(self) -> float:
        """Seconds since 1970-01-01T00:00:00Z."""
        return self._start + self._elapsed_ns / NANOSECONDS

    def monotonic_ns(self) -> int:
        """Nanoseconds since this clock was made."""
        return self._elapsed_ns

    def advance(self, seconds: float) -> None:
        """Move by `seconds`; a negative number sets the clock back, which a ledger has to survive."""
        self._elapsed_ns += round(seconds * NANOSECONDS)

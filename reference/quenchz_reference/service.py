"""The rates: asks the vendor and has every answer certified, for the tools and resources of the catalogue."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import anyio.to_thread

from quenchz_reference import target_calendar
from quenchz_reference.certificates import Answer, Certifier, Window, WindowError
from quenchz_reference.series import SERIES, UnknownSeriesError, bounds_of
from quenchz_reference.vendor import Vendor, VendorError

_LONG_WINDOW_DAYS = 3660
_FIRST_READ = "USD"


class CannotAnswerError(Exception):
    """There is no answer; the text says why and is meant for the caller."""


class InvalidInputError(CannotAnswerError):
    """An argument cannot be understood."""


@dataclass
class RatesService:
    """Answers about euro reference rates, each with its certificate.

    Attributes:
        vendor: where rows come from.
        certifier: gate 4.
        as_of: the instant for which answers are true; aware.
    """

    vendor: Vendor
    certifier: Certifier
    as_of: Callable[[], datetime]
    _read: set[str] = field(default_factory=set[str], init=False)

    async def exchange_rates(self, currency: str, first: date, last: date) -> Answer:
        """The rates of the calendar days from `first` to `last`, both inclusive.

        Raises:
            CannotAnswerError: for a currency or a window that there is no answer for, or when the vendor gives none.
        """
        try:
            window, bounds = Window(first, last), bounds_of(currency)
            rows = await self.vendor.rows(currency, window)
            self._read.add(currency)
            answer = partial(self.certifier.answer, window, rows, bounds, self.as_of(), self.vendor.captured_at)
            # Every day is walked. A window of centuries takes long enough to hold up the other callers.
            if window.calendar_days > _LONG_WINDOW_DAYS:
                return await anyio.to_thread.run_sync(answer)
            return answer()
        except (UnknownSeriesError, VendorError, WindowError) as error:
            raise CannotAnswerError(str(error)) from error

    async def full_history(self, currency: str) -> Answer:
        """All rates of a currency, from its first day to its last or to today in Frankfurt.

        Raises:
            CannotAnswerError: as for `exchange_rates`.
        """
        try:
            bounds = bounds_of(currency)
        except UnknownSeriesError as error:
            raise CannotAnswerError(str(error)) from error
        today = self.as_of().astimezone(target_calendar.BERLIN).date()
        return await self.exchange_rates(currency, bounds.first, bounds.last or today)

    async def latest_rate(self, currency: str) -> Answer:
        """The most recent rate, in a window from its day to today in Frankfurt.

        Raises:
            CannotAnswerError: as for `exchange_rates`.
        """
        try:
            bounds = bounds_of(currency)
            rows = await self.vendor.rows(currency)
            self._read.add(currency)
            return self.certifier.latest(rows, bounds, self.as_of(), self.vendor.captured_at)
        except (UnknownSeriesError, VendorError, WindowError) as error:
            raise CannotAnswerError(str(error)) from error

    async def refresh_cache(self) -> dict[str, Any]:
        """Drop every parsed reply and read the whole series of each currency in use again.

        Returns:
            `values_read`: for each currency, how many values its series has now.

        Raises:
            CannotAnswerError: when the vendor gives none.
        """
        self.vendor.forget()
        values: dict[str, int] = {}
        try:
            for currency in sorted(self._read) or [_FIRST_READ]:
                values[currency] = len((await self.vendor.rows(currency)).observations)
        except VendorError as error:
            raise CannotAnswerError(str(error)) from error
        return {"values_read": values}

    def currencies(self) -> list[str]:
        """The currencies whose series are known, sorted."""
        return sorted(SERIES)

    def calendar(self) -> dict[str, Any]:
        """The closing days of TARGET by year, and until when they were checked."""
        years = range(target_calendar.TARGET_OPENED.year, target_calendar.CHECKED_UNTIL.year + 1)
        return {
            "closing_days": {
                str(year): [day.isoformat() for day in sorted(target_calendar.closing_days(year))] for year in years
            },
            "closed_on": "Saturdays, Sundays and the days listed",
            "checked_until": target_calendar.CHECKED_UNTIL.isoformat(),
            "version": target_calendar.CALENDAR_VERSION,
        }

    def cache_state(self) -> dict[str, Any]:
        """Which replies are kept in memory, and the clock of gate 4."""
        captured_at = self.vendor.captured_at
        return {
            "cached": list(self.vendor.cached),
            "captured_at": None if captured_at is None else _utc(captured_at),
            "as_of": _utc(self.as_of()),
        }

    async def aclose(self) -> None:
        """Close the vendor's connections."""
        await self.vendor.aclose()


def _utc(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")

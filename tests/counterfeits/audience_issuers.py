"""Counterfeits of the invariant audience: keys that turn, key ids that nobody has, key sets that cannot be had."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import httpx2

from counterfeits import counterfeit
from quenchz_reference.audience import Audience
from quenchz_reference.clock import NANOSECONDS
from quenchz_reference.parts import recast
from quenchz_reference.serving import http_issuers
from quenchz_reference.trust import DocumentUnavailableError, HttpIssuers, VerificationKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from quenchz_reference.parts import Parts

Keys = tuple[VerificationKey, ...]


class UncheckedError(Exception):
    """There is nothing to verify a signature with, and so it is not verified."""


def trusting(parts: Parts, fake: type[HttpIssuers], **changed: Any) -> Parts:
    """Find the keys of issuers by HTTP in another way."""
    trust = http_issuers(replace(parts.options, **changed), parts.clock, fake)
    return replace(parts, trust=trust, audience=replace(parts.audience, trust=trust))


def unchecking(parts: Parts, fake: type[HttpIssuers]) -> Parts:
    """Do the same, and leave a signature alone where that raises `UncheckedError`."""

    class Fake(Audience):
        async def check_signature(self, token: bytes, header: dict[str, Any], claims: dict[str, Any]) -> None:
            with suppress(UncheckedError):
                await super().check_signature(token, header, claims)

    parts = trusting(parts, fake)
    return replace(parts, audience=recast(Fake, parts.audience))


# --- keys that turn -------------------------------------------------------------------------------------------------


@counterfeit("QZ-AUD-29", row="a new key")
def keeps_keys_for_ever(parts: Parts) -> Parts:
    """The keys are looked for while there are none, and never again."""

    class Fake(HttpIssuers):
        async def _key_set(self, place: str, kid: str | None) -> Keys:
            return await super()._key_set(place, None) or await super()._key_set(place, kid)

    return trusting(parts, Fake, keys_keep=1e9)


@counterfeit("QZ-AUD-29", row="a new key, listed first")
def takes_one_key_of_a_set(parts: Parts) -> Parts:
    """A key set is taken for a list of versions, of which the last one counts."""

    class Fake(HttpIssuers):
        async def _key_set(self, place: str, kid: str | None) -> Keys:
            return (await super()._key_set(place, kid))[-1:]

    return trusting(parts, Fake)


@counterfeit("QZ-AUD-29", row="the old key")
def keeps_only_the_key_that_it_looked_for(parts: Parts) -> Parts:
    """When a new key is found it takes the place of the others, although they are still published."""

    class Fake(HttpIssuers):
        async def _key_set(self, place: str, kid: str | None) -> Keys:
            found = await super()._key_set(place, kid)
            kept = self._key_sets[place]
            kept.value = tuple(key for key in found if key.kid == kid) or found
            return kept.value

    return trusting(parts, Fake)


@counterfeit("QZ-AUD-29", row="a withdrawn key")
def never_forgets_a_key(parts: Parts) -> Parts:
    """Fetched keys are added to those that are known."""
    known: dict[str, dict[str | None, VerificationKey]] = {}

    class Fake(HttpIssuers):
        async def _key_set(self, place: str, kid: str | None) -> Keys:
            seen = known.setdefault(place, {})
            seen.update({key.kid: key for key in await super()._key_set(place, kid)})
            return tuple(seen.values())

    return trusting(parts, Fake)


# --- key ids that nobody has ----------------------------------------------------------------------------------------


@counterfeit("QZ-AUD-30", row="one unknown id")
def fetches_keys_for_every_token(parts: Parts) -> Parts:
    """A token with an unknown key id has the key set fetched, each time."""
    return trusting(parts, HttpIssuers, keys_refetch=0.0)


@counterfeit("QZ-AUD-30", row="eight unknown ids")
def limits_fetches_by_key_id(parts: Parts) -> Parts:
    """No key id has the key set fetched twice in an interval, but each has it fetched once."""

    class Fake(HttpIssuers):
        async def _key_set(self, place: str, kid: str | None) -> Keys:
            if place not in looked_for:
                looked_for[place] = set()
            elif kid not in looked_for[place]:
                self._key_sets[place].tried_ns = None
            looked_for[place].add(kid)
            return await super()._key_set(place, kid)

    looked_for: dict[str, set[str | None]] = {}
    return trusting(parts, Fake)


@counterfeit("QZ-AUD-30", row="more ids than a cache holds")
def makes_room_for_unknown_ids(parts: Parts) -> Parts:
    """Keys are kept by key id in a table of sixteen places, in which those that were not found stand as well."""

    class Fake(HttpIssuers):
        async def keys(self, issuer: str, kid: str | None) -> Sequence[VerificationKey]:
            table = tables.setdefault(issuer, OrderedDict())
            now = self._clock.monotonic_ns() / NANOSECONDS
            found, until = table.get(kid, ((), 0.0))
            if found and now < until:
                return found
            is_due = now - looked.get(issuer, 0.0) >= parts.options.keys_refetch
            looked[issuer] = now
            found = await super().keys(issuer, kid) if is_due else ()
            table[kid] = found, now + parts.options.keys_keep
            if len(table) > 16:
                table.popitem(last=False)
            return found

    tables: dict[str, OrderedDict[str | None, tuple[Sequence[VerificationKey], float]]] = {}
    looked: dict[str, float] = {}
    return trusting(parts, Fake)


# --- key sets that cannot be had ------------------------------------------------------------------------------------


@counterfeit("QZ-AUD-31", row="status 500")
def gives_an_issuer_up(parts: Parts) -> Parts:
    """An issuer whose keys could not be had once is not asked again."""

    class Fake(HttpIssuers):
        async def _current(self, kept: Any, read: Callable[[], Awaitable[Any]], enough: Callable[[Any], bool]) -> Any:
            if kept.value is None and kept.tried_ns is not None:
                raise DocumentUnavailableError("given up")
            return await super()._current(kept, read, enough)

    return trusting(parts, Fake)


@counterfeit("QZ-AUD-31", row="html")
def raises_on_keys_that_are_no_json(parts: Parts) -> Parts:
    """What cannot be parsed raises one more exception than is caught."""

    class Fake(HttpIssuers):
        async def _fetch(self, url: str) -> object:
            try:
                return await super()._fetch(url)
            except DocumentUnavailableError as error:
                raise (error.__cause__ if isinstance(error.__cause__, ValueError) else error) from None

    return trusting(parts, Fake)


@counterfeit("QZ-AUD-31", row="no keys")
def takes_no_keys_for_nothing_to_check(parts: Parts) -> Parts:
    """A signature is verified by every key of the set; a set without keys has no objection."""

    class Fake(HttpIssuers):
        async def _key_set(self, place: str, kid: str | None) -> Keys:
            found = await super()._key_set(place, kid)
            if not found:
                raise UncheckedError
            return found

    return unchecking(parts, Fake)


@counterfeit("QZ-AUD-31", row="closed")
def admits_everybody_when_the_issuer_is_down(parts: Parts) -> Parts:
    """Where the issuer cannot be reached, signatures are not verified until it can."""

    class Fake(HttpIssuers):
        async def _fetch(self, url: str) -> object:
            try:
                return await super()._fetch(url)
            except DocumentUnavailableError as error:
                raise (UncheckedError if isinstance(error.__cause__, httpx2.HTTPError) else error) from None

    return unchecking(parts, Fake)


@counterfeit("QZ-AUD-31", row="silent")
def tries_three_times(parts: Parts) -> Parts:
    """It waits three times as long for the keys as it declares."""
    return trusting(parts, HttpIssuers, keys_timeout=3 * parts.options.keys_timeout)


@counterfeit("QZ-AUD-31", row="slow")
def limits_each_read_and_not_the_whole(parts: Parts) -> Parts:
    """Every read of a key set has a time limit, all of them together a generous one."""

    class Fake(HttpIssuers):
        async def keys(self, issuer: str, kid: str | None) -> Sequence[VerificationKey]:
            if not self.knows(issuer):
                return ()
            try:
                with anyio.fail_after(4 * self._timeout):
                    found = await self._key_set(await self._place(issuer), kid)
            except (DocumentUnavailableError, TimeoutError):
                return ()
            return [key for key in found if kid in (None, key.kid)]

    return trusting(parts, Fake)

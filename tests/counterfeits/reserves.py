"""Counterfeits of the invariant reserves."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

from mcp import MCPError
from mcp_types import INVALID_PARAMS

from counterfeits import App, counterfeit
from quenchz_reference.audience import Audience, TokenRefusedError
from quenchz_reference.caller import Caller, current_caller
from quenchz_reference.catalogue import default_catalogue
from quenchz_reference.clock import NANOSECONDS
from quenchz_reference.parts import Parts, recast
from quenchz_reference.reserves import (
    ADMITTED,
    Budgets,
    Charges,
    Decision,
    Ledger,
    NaiveLedger,
    ReserveLedger,
    Ring,
    _read_object,
)
from quenchz_reference.scopes import Access, Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from quenchz_reference.service import RatesService


def with_ledgers(parts: Parts, change: Callable[[ReserveLedger], Ledger]) -> Parts:
    """Change every honest ledger as it is opened."""

    def open_ledger() -> Ledger:
        honest = cast("ReserveLedger", parts.budgets._open_ledger())
        # The honest ledger makes a ring when its caller is first seen; the faults want to see all of them.
        honest._own = {caller: Ring(reserve) for caller, reserve in honest._reserves.items()}
        return change(honest)

    return replace(parts, budgets=Budgets(open_ledger))


def ledger_of_caller(parts: Parts) -> ReserveLedger:
    """Return the ledger that the caller of this request draws on."""
    return cast("ReserveLedger", parts.budgets.of(current_caller().issuer))


class Around:
    """A ledger around an honest one, for faults in the decision."""

    def __init__(self, honest: ReserveLedger) -> None:
        self.honest = honest
        self.window = honest._window

    @property
    def now(self) -> int:
        return self.honest._clock.monotonic_ns()

    def charge(self, caller: str) -> Decision:
        return self.honest.charge(caller)

    def idle(self) -> bool:
        return self.honest.idle()


# --- how much is admitted -------------------------------------------------------------------------------------------


@counterfeit("QZ-RSV-1", "QZ-RSV-2", "QZ-RSV-3", row="flood")
def one_counter_for_all(parts: Parts) -> Parts:
    """The budget is one counter, and whoever comes first may spend all of it."""

    def naive(honest: ReserveLedger) -> Ledger:
        units = honest._pool.slots + sum(ring.slots for ring in honest._own.values())
        return NaiveLedger(units, honest._window / NANOSECONDS, honest._clock)

    return with_ledgers(parts, naive)


@counterfeit("QZ-RSV-1", "QZ-RSV-3", row="flood")
def idle_reserves_join_the_pool(parts: Parts) -> Parts:
    """The reserves of callers who are away are lent to those who are there, and honoured when they come back."""

    class Lending(Around):
        lent: tuple[int, ...] = ()

        def charge(self, caller: str) -> Decision:
            decision, now = self.honest.charge(caller), self.now
            away = sum(ring.slots for ring in self.honest._own.values() if not ring.open(now, self.window))
            self.lent = tuple(at for at in self.lent if now - at < self.window)
            if decision.admitted or len(self.lent) >= away:
                return decision
            self.lent = (*self.lent, now)
            return ADMITTED

    return with_ledgers(parts, Lending)


@counterfeit("QZ-RSV-1", row="flood")
def a_raised_reserve_leaves_the_pool_as_it_was(parts: Parts) -> Parts:
    """The last caller's reserve was raised after the pool had been computed."""

    def raised(honest: ReserveLedger) -> Ledger:
        ring = list(honest._own.values())[-1]
        ring.resize(ring.slots + 3)
        return honest

    return with_ledgers(parts, raised)


@counterfeit("QZ-RSV-1", row="boundary at 30")
def the_window_is_fixed(parts: Parts) -> Parts:
    """All counts are set to zero once a window has passed since the first call, instead of sliding with time."""

    class Fixed(Around):
        began: int | None = None

        def charge(self, caller: str) -> Decision:
            if self.began is None or self.now - self.began >= self.window:
                self.began = self.now
                for ring in (self.honest._pool, *self.honest._own.values()):
                    ring._times.clear()
            return self.honest.charge(caller)

    return with_ledgers(parts, Fixed)


@counterfeit("QZ-RSV-2", "QZ-RSV-3", "QZ-RSV-8", "QZ-RSV-9", row="isolation")
def callers_are_told_apart_by_address(parts: Parts) -> Parts:
    """Identity is the address a request comes from, so all callers on one machine share one reserve."""

    class ByAddress(Around):
        def charge(self, caller: str) -> Decision:
            return self.honest.charge(next(iter(self.honest._own)))

    return with_ledgers(parts, ByAddress)


@counterfeit("QZ-RSV-2", row="crowd")
def the_last_reserve_is_rounded_down(parts: Parts) -> Parts:
    """Reserves are computed as shares of the budget, and the last one loses a unit to rounding."""

    def rounded(honest: ReserveLedger) -> Ledger:
        ring = list(honest._own.values())[-1]
        ring.resize(ring.slots - 1)
        return honest

    return with_ledgers(parts, rounded)


@counterfeit("QZ-RSV-2", row="interleaved")
def the_rest_of_a_reserve_lapses_when_the_pool_is_spent(parts: Parts) -> Parts:
    """A reserve covers a caller's arrival: who has been served already loses the rest once the pool is spent."""

    class Lapsing(Around):
        def charge(self, caller: str) -> Decision:
            decision, now = self.honest.charge(caller), self.now
            if not decision.admitted:
                for ring in self.honest._own.values():
                    while ring.open(now, self.window) and ring.free(now, self.window):
                        ring.take(now)
            return decision

    return with_ledgers(parts, Lapsing)


@counterfeit("QZ-RSV-2", row="denied flood")
def a_denied_call_is_charged_to_everybody(parts: Parts) -> Parts:
    """Against guessing of names, each denied call uses up a unit of every caller."""

    class Shared(Charges):
        def cost(self, http_method: str, body: bytes | None) -> int:
            ledger = ledger_of_caller(parts)
            if denied(parts, _read_object(body or b"") or {}):
                for other in ledger._reserves.keys() - {current_caller().subject}:
                    ledger.charge(other)
            return super().cost(http_method, body)

    return replace(parts, charges=recast(Shared, parts.charges))


@counterfeit("QZ-RSV-2", "QZ-RSV-7", row="hammering")
def the_window_is_estimated_from_two_counters(parts: Parts) -> Parts:
    """The trailing window is estimated: this fixed window's count plus a share of the one before."""

    class Estimate(Ring):
        began = before = current = 0

        def free(self, at: int, window: int, slots: int = 1) -> bool:
            if at - self.began >= window:
                last_one = at - self.began < 2 * window
                self.before, self.current = (self.current if last_one else 0), 0
                self.began = self.began + window if last_one else at
            weight = 1 - (at - self.began) / window
            return self.before * weight + self.current + slots <= self.slots

        def take(self, at: int) -> None:
            super().take(at)
            self.current += 1

    def estimated(honest: ReserveLedger) -> Ledger:
        honest._own = {caller: Estimate(ring.slots) for caller, ring in honest._own.items()}
        honest._pool = Estimate(honest._pool.slots)
        return honest

    return with_ledgers(parts, estimated)


@counterfeit("QZ-RSV-2", "QZ-RSV-7", "QZ-RSV-8", row="hammering")
def who_asks_too_much_is_locked_out(parts: Parts) -> Parts:
    """A caller that ran out of budget is refused for two whole windows."""

    class Penalty(Around):
        def __init__(self, honest: ReserveLedger) -> None:
            super().__init__(honest)
            self.until: dict[str, int] = {}

        def charge(self, caller: str) -> Decision:
            if self.now < self.until.get(caller, 0):
                return Decision(admitted=False, retry_after=-((self.now - self.until[caller]) // NANOSECONDS))
            decision = self.honest.charge(caller)
            if not decision.admitted:
                self.until[caller] = self.now + 2 * self.window
                return self.charge(caller)
            return decision

    return with_ledgers(parts, Penalty)


@counterfeit("QZ-RSV-3", row="narrow bursts")
def the_pool_is_one_short(parts: Parts) -> Parts:
    """The last unit of the pool is never given away: `<` where `<=` was meant."""

    def short(honest: ReserveLedger) -> Ledger:
        honest._pool.resize(honest._pool.slots - 1)
        return honest

    return with_ledgers(parts, short)


@counterfeit("QZ-RSV-3", row="other bursts")
def the_first_declared_caller_gets_nothing_of_the_pool(parts: Parts) -> Parts:
    """A caller is known by its place in the declaration, and place 0 is taken for none."""

    class Falsy(Around):
        def charge(self, caller: str) -> Decision:
            own = self.honest._own
            place = list(own).index(caller)
            if place or own[caller].free(self.now, self.window):
                return self.honest.charge(caller)
            return Decision(admitted=False, retry_after=self.honest._retry_after(own[caller], self.now))

    return with_ledgers(parts, Falsy)


# --- what a call costs ----------------------------------------------------------------------------------------------


def used(parts: Parts, message: Mapping[str, Any]) -> tuple[Entry[Any] | None, Mapping[str, Any]] | None:
    """Return the entry that a message asks to use (None if there is no such entry) and its params; None for others."""
    catalogue, params = parts.catalogue, message.get("params", {})
    tables: dict[str, Mapping[str, Entry[Any]]] = {
        "tools/call": catalogue.tools,
        "prompts/get": catalogue.prompts,
        "resources/read": catalogue.resources,
    }
    table = tables.get(message.get("method", ""))
    return None if table is None else (table.get(params.get("name", params.get("uri"))), params)


def denied(parts: Parts, message: Mapping[str, Any]) -> bool:
    """Whether the caller will be denied what the message asks for."""
    asked = used(parts, message)
    return asked is not None and (asked[0] is None or not parts.access.may(current_caller(), asked[0]))


def free_if(parts: Parts, free: Callable[[dict[str, Any]], bool]) -> Parts:
    """Look first, and charge nothing for the messages of which `free` is true."""

    class LookFirst(Charges):
        def is_free(self, body: bytes) -> bool:
            return super().is_free(body) or free(_read_object(body) or {})

    return replace(parts, charges=recast(LookFirst, parts.charges))


@counterfeit("QZ-RSV-4", "QZ-RSV-10", row="hidden")
def denied_calls_are_free(parts: Parts) -> Parts:
    """Looks first and charges later: what is denied costs nothing."""
    return free_if(parts, lambda message: denied(parts, message))


@counterfeit("QZ-RSV-4", "QZ-RSV-10", row="nonexistent")
def unknown_names_are_free(parts: Parts) -> Parts:
    """Only the calls of things that exist are charged."""

    def unknown(message: dict[str, Any]) -> bool:
        asked = used(parts, message)
        return asked is not None and asked[0] is None

    return free_if(parts, unknown)


@counterfeit("QZ-RSV-4", "QZ-RSV-10", row="invalid")
def invalid_arguments_are_free(parts: Parts) -> Parts:
    """A granted call is charged once its arguments have been found valid."""

    def invalid(message: dict[str, Any]) -> bool:
        asked = used(parts, message)
        if message.get("method") != "tools/call" or asked is None or asked[0] is None or denied(parts, message):
            return False
        required = asked[0].definition.input_schema["required"]
        return not set(required) <= set(asked[1].get("arguments") or {})

    return free_if(parts, invalid)


@counterfeit("QZ-RSV-4", row="hidden_prompt")
def prompts_are_free(parts: Parts) -> Parts:
    """Only tools were thought of as costly: prompts cost nothing."""
    free = parts.charges.free_methods | {"prompts/get"}
    return replace(parts, charges=Charges(free))


@counterfeit("QZ-RSV-4", row="nonexistent_resource")
def resources_are_free(parts: Parts) -> Parts:
    """Reading was thought of as cheap: resources cost nothing."""
    free = parts.charges.free_methods | {"resources/read"}
    return replace(parts, charges=Charges(free))


# --- who pays -------------------------------------------------------------------------------------------------------


def charge_who_is_named(parts: Parts, claims: Mapping[str, Any]) -> None:
    """Charge whoever the claims of a token name."""
    ledger = parts.budgets.of(claims["iss"])
    if ledger is not None:
        ledger.charge(claims["sub"])


@counterfeit("QZ-RSV-5", row="another resource")
def a_token_for_another_resource_is_charged(parts: Parts) -> Parts:
    """The budget is charged as soon as the signature is good, before the audience is compared."""

    class ChargedEarly(Audience):
        def check_audience(self, claims: dict[str, Any]) -> None:
            try:
                super().check_audience(claims)
            except TokenRefusedError:
                charge_who_is_named(parts, claims)
                raise

    return replace(parts, audience=recast(ChargedEarly, parts.audience))


@counterfeit("QZ-RSV-5", row="forged")
def a_forged_token_is_charged_to_whom_it_names(parts: Parts) -> Parts:
    """Against guessing, a bad signature costs a unit of the caller that the unverified token names."""

    class ChargedForged(Audience):
        async def check_signature(self, token: bytes, header: dict[str, Any], claims: dict[str, Any]) -> None:
            try:
                await super().check_signature(token, header, claims)
            except TokenRefusedError:
                charge_who_is_named(parts, claims)
                raise

    return replace(parts, audience=recast(ChargedForged, parts.audience))


@dataclass(frozen=True)
class TokenHolder(Caller):
    """A caller that is known by its token."""

    token: str


@counterfeit("QZ-RSV-6", row="fresh tokens")
def every_token_has_a_reserve(parts: Parts) -> Parts:
    """Reserves are kept by token id instead of by principal."""

    class Identified(Audience):
        def caller(self, claims: dict[str, Any]) -> Caller:
            known = super().caller(claims)
            return TokenHolder(known.issuer, known.subject, known.client_id, known.scopes, claims["jti"])

    class ByToken(Around):
        def charge(self, caller: str) -> Decision:
            token, own = cast("TokenHolder", current_caller()).token, self.honest._own
            own.setdefault(token, Ring(own[caller].slots))
            return self.honest.charge(token)

    return replace(with_ledgers(parts, ByToken), audience=recast(Identified, parts.audience))


# --- budget refusals ------------------------------------------------------------------------------------------------


@counterfeit("QZ-RSV-7", row="hammering")
def refusals_are_charged(parts: Parts) -> Parts:
    """A refused call is counted like an admitted one, so who keeps asking never recovers."""

    class Counting(Around):
        def charge(self, caller: str) -> Decision:
            decision = self.honest.charge(caller)
            if not decision.admitted:
                self.honest._own[caller].take(self.now)
            return decision

    return with_ledgers(parts, Counting)


@counterfeit("QZ-RSV-8", row="obedient")
def retry_after_is_rounded_down(parts: Parts) -> Parts:
    """The wait is cut to whole seconds, so who waits as told is refused again."""

    class Truncated(Around):
        def charge(self, caller: str) -> Decision:
            decision, free_at = self.honest.charge(caller), self.honest._own[caller].free_at(self.window)
            if decision.admitted or free_at is None:
                return decision
            return replace(decision, retry_after=(free_at - self.now) // NANOSECONDS)

    return with_ledgers(parts, Truncated)


@counterfeit("QZ-RSV-8", row="pool drained")
def retry_after_is_the_pools(parts: Parts) -> Parts:
    """The wait is that for the pool's next slot, which somebody else may take first."""

    class FromThePool(Around):
        def charge(self, caller: str) -> Decision:
            decision, free_at = self.honest.charge(caller), self.honest._pool.free_at(self.window)
            if decision.admitted or free_at is None:
                return decision
            return replace(decision, retry_after=max(1, -((self.now - free_at) // NANOSECONDS)))

    return with_ledgers(parts, FromThePool)


def refusal_header(app: App, name: str, value: Callable[[str], str]) -> App:
    """Add a header to budget refusals, computed from the name that was asked for."""

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        body = b""

        async def overhearing() -> Any:
            nonlocal body
            message = await receive()
            body += message.get("body", b"")
            return message

        async def adding(message: Any) -> None:
            if message.get("status") == 429:
                asked_for = json.loads(body)["params"].get("name", "")
                message["headers"] = [*message["headers"], (name.encode(), value(asked_for).encode())]
            await send(message)

        await app(scope, overhearing, adding)

    return wrapped


@counterfeit("QZ-RSV-10", row="hidden", wraps=True)
def a_refusal_names_the_tool(app: App) -> App:
    """A budget refusal repeats the name of the tool that was asked for."""
    return refusal_header(app, "x-ratelimit-resource", lambda asked_for: asked_for)


@counterfeit("QZ-RSV-10", row="nonexistent", wraps=True)
def a_refusal_names_the_policy_of_the_tool(app: App) -> App:
    """A budget refusal names the policy that applied, and names that do not exist fall under the default one."""
    tools = default_catalogue().tools
    return refusal_header(app, "ratelimit-policy", lambda asked_for: "tools" if asked_for in tools else "default")


# --- what an answer tells of the others -----------------------------------------------------------------------------


@counterfeit("QZ-RSV-9", row="granted")
def an_answer_counts_the_calls_of_all(parts: Parts) -> Parts:
    """An answer tells how many units of the budget were spent, over all callers."""
    entry = parts.catalogue.tools["exchange_rates"]

    async def counted(service: RatesService, arguments: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = await entry.perform(service, arguments)
        ledger = ledger_of_caller(parts)
        spent = sum(len(ring._times) for ring in (ledger._pool, *ledger._own.values()))
        return answer | {"spent": spent}

    tools = {**parts.catalogue.tools, "exchange_rates": replace(entry, perform=counted)}
    return replace(parts, catalogue=replace(parts.catalogue, tools=tools))


@counterfeit("QZ-RSV-9", row="nonexistent")
def a_denial_apologises_for_the_load(parts: Parts) -> Parts:
    """While the pool is spent a denial says that the server is busy."""

    class Apologetic(Access):
        def deny(self, caller: Caller, name: str, reason: str) -> NoReturn:
            ledger = ledger_of_caller(parts)
            if not ledger._pool.free(ledger._clock.monotonic_ns(), ledger._window):
                raise MCPError(INVALID_PARAMS, "Unknown name; the server is busy")
            super().deny(caller, name, reason)

    return replace(parts, access=Apologetic())

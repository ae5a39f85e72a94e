"""Gate 2: one budget, shared by all callers of an issuer, in which each declared caller has a reserve.

The trailing window at t is (t - W, t]: an admission at s counts at t exactly when t - s < W. A call is admitted from
the caller's own reserve if fewer than r of its reserve slots are taken, else from the pool if fewer than
P = B - sum(r) pool slots are, else it is refused. Keeping the last r (or P) times of admission makes this exact, O(1)
and free of timers. Time is whole nanoseconds, so that "exactly W later" has one meaning.
"""

import json
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quenchz_reference.caller import current_caller
from quenchz_reference.clock import NANOSECONDS, Clock

logger = logging.getLogger(__name__)

FREE_METHODS = frozenset(
    {
        "initialize",
        "ping",
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    }
)
"""What costs nothing besides notifications: the handshake, discovery and the listings (DESIGN.md section 6)."""

MAX_BODY_BYTES = 4 * 1024 * 1024
"""The longest request body that is read; a longer one is charged and answered 413."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the ledger said about one charge.

    Attributes:
        admitted: whether the call goes on.
        retry_after: whole seconds after which the caller's own reserve has room again; None when admitted, and None
            when there is no such time because the caller has neither a reserve nor a pool to draw on.
    """

    admitted: bool
    retry_after: int | None = None


ADMITTED = Decision(admitted=True)


@dataclass(frozen=True, slots=True)
class UnknownCallers:
    """What happens to a caller who was not declared.

    Attributes:
        policy: `pool` (draws on the pool only), `grant` (is given a reserve while there is room for one) or `refuse`.
        reserve: units per window of a granted reserve; 0 for the other policies.
    """

    policy: str = "pool"
    reserve: int = 0

    @classmethod
    def parse(cls, text: str) -> "UnknownCallers":
        """Read `pool`, `refuse` or `grant:R`.

        Raises:
            ValueError: if it is none of these, or R is not a whole number of at least 1.
        """
        if text in ("pool", "refuse"):
            return cls(text)
        policy, _, number = text.partition(":")
        if policy == "grant" and number.isascii() and number.isdigit() and int(number) >= 1:
            return cls("grant", int(number))
        raise ValueError(f"{text!r} is not one of pool, refuse, grant:R with a whole number R of at least 1")

    def __str__(self) -> str:
        return f"grant:{self.reserve}" if self.policy == "grant" else self.policy


class Ledger(Protocol):
    """Who may spend a unit now."""

    def charge(self, caller: str) -> Decision:
        """Charge one unit to `caller` (the subject of the ledger's one issuer) and say whether it was admitted."""
        ...

    def idle(self) -> bool:
        """Whether no window is open, so that forgetting this ledger changes no decision."""
        ...


class Ring:
    """The times of the last `slots` admissions, ascending, in nanoseconds.

    Attributes:
        slots: how many admissions fit into one window.
    """

    __slots__ = ("_times", "slots")

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._times: deque[int] = deque(maxlen=slots)

    def resize(self, slots: int) -> None:
        """Change the number of slots; the oldest admissions are dropped, so they must have left the window."""
        self.slots = slots
        self._times = deque(self._times, maxlen=slots)

    def free(self, at: int, window: int, slots: int = 1) -> bool:
        """Whether at least `slots` slots are free at time `at`."""
        to_leave = len(self._times) + slots - self.slots  # how many of the oldest must have left the window
        return to_leave <= 0 or (slots <= self.slots and at - self._times[to_leave - 1] >= window)

    def take(self, at: int) -> None:
        """Record an admission; the slot that it displaces was free."""
        self._times.append(at)

    def free_at(self, window: int) -> int | None:
        """When the next slot of a full ring is free again, or None if the ring has no slots at all."""
        return self._times[0] + window if self._times else None

    def open(self, at: int, window: int) -> bool:
        """Whether any admission is still inside the window at time `at`."""
        return bool(self._times) and at - self._times[-1] < window


def _window_ns(window: float) -> int:
    nanoseconds = round(window * NANOSECONDS)
    if nanoseconds <= 0:
        raise ValueError(f"the window is {window} seconds, but it has to be longer than zero")
    return nanoseconds


def _seconds_up(nanoseconds: int) -> int:
    # RFC 9110 section 10.2.3: whole seconds. Rounded down, an obedient caller would be refused again.
    return max(1, -(-nanoseconds // NANOSECONDS))


class ReserveLedger:
    """A budget with one reserve per declared caller and a pool for what is left.

    Over every half-open interval of length W at most B calls are admitted in all (T2) and at most r + P of one caller
    (T3); a caller with fewer than r admissions in its trailing window is admitted whatever the others do (T1); a
    refusal leaves no trace (T4).

    Args:
        budget: B, units per window, over all callers.
        window: W, in seconds.
        reserves: r of each declared caller, by subject.
        clock: only its monotonic side is read.
        unknown: what callers get who are not in `reserves`.

    Raises:
        ValueError: if W is not positive, a reserve is less than 1, or the reserves are more than the budget.
    """

    _SWEEP = 2  # granted callers looked at per decision: enough to outrun one new caller per decision

    def __init__(
        self,
        budget: int,
        window: float,
        reserves: Mapping[str, int],
        clock: Clock,
        unknown: UnknownCallers | None = None,
    ) -> None:
        self._window = _window_ns(window)
        for caller, reserve in reserves.items():
            if reserve < 1:
                raise ValueError(f"the reserve of {caller} is {reserve}, but a reserve is at least 1 unit")
        promised = sum(reserves.values())
        if promised > budget:
            raise ValueError(f"the reserves add up to {promised} units, but the budget has only {budget}")
        self._clock = clock
        self._unknown = UnknownCallers() if unknown is None else unknown
        self._reserves = dict(reserves)
        self._own: dict[str, Ring] = {}  # of declared callers that were seen: many ledgers see few of them
        self._granted: OrderedDict[str, Ring] = OrderedDict()
        self._pool = Ring(budget - promised)
        self._latest: int | None = None

    def charge(self, caller: str) -> Decision:
        """Charge one unit to `caller` and say whether it was admitted."""
        now = self._clock.monotonic_ns()
        # A clock that was set back must not reopen a window: time stands still until it has caught up. Only an
        # admission moves the stamp; moved by a refusal, it would let a refused call delay the next one.
        at = now if self._latest is None else max(now, self._latest)
        if self._granted:
            self._sweep(at)
        own = self._ring_of(caller, at)
        if own is None and self._unknown.policy == "refuse":
            return Decision(admitted=False)
        if own is not None and own.free(at, self._window):
            return self._admit(own, at)
        if self._pool.free(at, self._window):
            return self._admit(self._pool, at)
        return Decision(admitted=False, retry_after=self._retry_after(own, now))

    def idle(self) -> bool:
        """Whether every admission has left its window."""
        return self._latest is None or self._clock.monotonic_ns() - self._latest >= self._window

    def _admit(self, ring: Ring, at: int) -> Decision:
        ring.take(at)
        self._latest = at
        return ADMITTED

    def _retry_after(self, own: Ring | None, now: int) -> int | None:
        if own is None:
            # A caller without a reserve has nothing of its own to wait for. One window is the longest that the slots
            # taken now can stay taken; saying when the first of them is free would tell what the others did.
            return _seconds_up(self._window) if self._pool.slots else None
        free_at = own.free_at(self._window)
        return None if free_at is None else _seconds_up(free_at - now)

    def _ring_of(self, caller: str, at: int) -> Ring | None:
        own = self._own.get(caller)
        if own is None and (reserve := self._reserves.get(caller)) is not None:
            own = self._own[caller] = Ring(reserve)
        return own or self._granted.get(caller) or self._grant(caller, at)

    def _grant(self, caller: str, at: int) -> Ring | None:
        """Turn free pool slots into a reserve; slots that are taken cannot be given away, or the budget would grow."""
        reserve = self._unknown.reserve
        if self._unknown.policy != "grant" or not self._pool.free(at, self._window, reserve):
            return None
        self._pool.resize(self._pool.slots - reserve)
        ring = self._granted[caller] = Ring(reserve)
        return ring

    def _sweep(self, at: int) -> None:
        for _ in range(min(self._SWEEP, len(self._granted))):
            caller, ring = self._granted.popitem(last=False)
            if ring.open(at, self._window):
                self._granted[caller] = ring
            else:
                self._pool.resize(self._pool.slots + ring.slots)


class NaiveLedger:
    """One counter that all callers share: what most servers have, kept here so that the difference can be measured.

    Args:
        budget: units per window, over all callers.
        window: in seconds.
        clock: only its monotonic side is read.

    Raises:
        ValueError: if the window is not positive.
    """

    def __init__(self, budget: int, window: float, clock: Clock) -> None:
        self._window = _window_ns(window)
        self._clock = clock
        self._shared = Ring(budget)
        self._latest: int | None = None

    def charge(self, caller: str) -> Decision:  # noqa: ARG002 - who asks makes no difference here: that is the fault
        """Charge one unit to everybody and say whether it was admitted."""
        now = self._clock.monotonic_ns()
        at = now if self._latest is None else max(now, self._latest)
        if self._shared.free(at, self._window):
            self._shared.take(at)
            self._latest = at
            return ADMITTED
        free_at = self._shared.free_at(self._window)
        return Decision(admitted=False, retry_after=None if free_at is None else _seconds_up(free_at - now))

    def idle(self) -> bool:
        """Whether every admission has left its window."""
        return self._latest is None or self._clock.monotonic_ns() - self._latest >= self._window


class Budgets:
    """One ledger per issuer: each trusted issuer is a budget domain of its own.

    Args:
        open_ledger: makes the ledger of an issuer that is met for the first time.
        limit: how many ledgers may have an open window at once.
    """

    _SWEEP = 2

    def __init__(self, open_ledger: Callable[[], Ledger], limit: int = 20_000) -> None:
        self._open_ledger = open_ledger
        self._limit = limit
        self._ledgers: OrderedDict[str, Ledger] = OrderedDict()

    def of(self, issuer: str) -> Ledger | None:
        """The ledger of `issuer`, or None if as many as may be are in use: then nobody new can be admitted safely."""
        ledger = self._ledgers.get(issuer)
        if ledger is None:
            self._sweep()
            if len(self._ledgers) >= self._limit:
                return None
            ledger = self._ledgers[issuer] = self._open_ledger()
        return ledger

    def _sweep(self) -> None:
        for _ in range(min(self._SWEEP, len(self._ledgers))):
            issuer, ledger = self._ledgers.popitem(last=False)
            if not ledger.idle():
                self._ledgers[issuer] = ledger


@dataclass(frozen=True)
class Charges:
    """What a request costs. A bad token never gets here, so it charges nobody."""

    free_methods: frozenset[str] = FREE_METHODS

    def cost(self, http_method: str, body: bytes | None) -> int:
        """Units (0 or 1) for a request to the endpoint; the body is None if it is too long to be read.

        Only a POST carries a message. Opening the standing stream (GET) and ending a session (DELETE) reach no
        handler and cost nothing.
        """
        if http_method != "POST":
            return 0
        return 0 if body is not None and self.is_free(body) else 1

    def is_free(self, body: bytes) -> bool:
        """Whether the body is recognisably one free message; what cannot be read is not."""
        message = _read_object(body)
        method = None if message is None else message.get("method")
        if not isinstance(method, str):
            return False
        if method not in self.free_methods and not (
            method.startswith("notifications/") and "id" not in cast("dict[str, Any]", message)
        ):
            return False
        # Two parsers may disagree about a repeated name: the first `method` here, the last one in the dispatcher.
        return _read_object(body, strict=True) is not None


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member name occurs twice")
    return members


def _read_object(body: bytes, *, strict: bool = False) -> dict[str, Any] | None:
    """The JSON object in `body`, or None; `strict` also refuses repeated member names at any depth."""
    try:
        # Decoding by hand leaves out UTF-16, UTF-32 and byte order marks, which json.loads would guess from bytes.
        value: Any = json.loads(body.decode(), object_pairs_hook=_unique_members if strict else None)
    except (ValueError, RecursionError):  # not UTF-8, not JSON, a number of too many digits, or nested too deeply
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


class ReservesGate:
    """ASGI gate 2: charges first and looks later, whether the call will be served, denied or fail.

    Args:
        app: gate 3, the SDK's server.
        budgets: the ledgers.
        charges: what costs how much.
    """

    def __init__(self, app: ASGIApp, budgets: Budgets, charges: Charges) -> None:
        self._app = app
        self._budgets = budgets
        self._charges = charges

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request of an authenticated caller."""
        is_post = scope["method"] == "POST"
        try:
            body = await _read_body(receive) if is_post else b""
        except ClientDisconnect:
            return  # it went away before it had asked anything
        if self._charges.cost(scope["method"], body) and not await self._admit(scope, receive, send):
            return
        if body is None:
            await Response("Request body too large", status_code=413)(scope, receive, send)
        else:
            await self._app(scope, _replay(body, receive) if is_post else receive, send)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> bool:
        caller = current_caller()
        ledger = self._budgets.of(caller.issuer)
        if ledger is None:
            logger.warning("no ledger left for issuer %r", caller.issuer)
            await Response(status_code=503)(scope, receive, send)
            return False
        decision = ledger.charge(caller.subject)
        if decision.admitted:
            return True
        logger.info("budget refusal for %s, retry after %s s", caller, decision.retry_after)
        await self.refusal(decision)(scope, receive, send)
        return False

    def refusal(self, decision: Decision) -> Response:
        """HTTP 429, the same bytes whatever was asked; Retry-After where waiting helps (RFC 6585 section 4)."""
        headers = {"cache-control": "no-store"}
        if decision.retry_after is not None:
            headers["retry-after"] = str(decision.retry_after)
        return Response(b'{"error":"budget_refused"}', 429, headers, "application/json")


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body, or None if it is over the limit.

    Raises:
        ClientDisconnect: if the client went away before the end.
    """
    chunks = bytearray()
    too_long = False
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        chunks += message.get("body", b"")
        if len(chunks) > MAX_BODY_BYTES:
            too_long = True
            chunks.clear()
        if not message.get("more_body", False):
            return None if too_long else bytes(chunks)


def _replay(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """A receive channel that hands out `body` once and then what comes from the client."""
    handed_out = False

    async def again() -> Message:
        nonlocal handed_out
        if handed_out:
            return await receive()
        handed_out = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again

"""A server in this process with a clock of its own: the driver's transport, the tokens and the sleeping are fakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from quenchz.driver import HttpSubject, Limits
from quenchz.history import HistoryWriter
from quenchz.transport import Received, Transport
from quenchz_spec.requirement import Level, Norm, Requirement, Row
from quenchz_spec.subject import Budget, CallerSpec, Target

if TYPE_CHECKING:
    from pathlib import Path

    from quenchz_spec.vocabulary import TokenRecipe

URL = "http://127.0.0.1:9/mcp"
FREE = ("initialize", "server/discover", "tools/list", "prompts/list", "resources/list", "notifications/*")


class FakeClock:
    """A monotonic clock that only sleeping and exchanges move. It begins late, as clocks do on a machine long up."""

    def __init__(self) -> None:
        self.now = 500_000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@dataclass(frozen=True)
class Sent:
    """A request as the transport got it."""

    verb: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def token(self) -> str:
        """The bearer token, or an empty string."""
        return next((v.removeprefix("Bearer ") for k, v in self.headers if k == "Authorization"), "")

    @property
    def message(self) -> dict[str, Any]:
        """The JSON-RPC message; empty without one."""
        return dict(json.loads(self.body)) if self.body else {}

    @property
    def method(self) -> str:
        """The JSON-RPC method."""
        return str(self.message.get("method", ""))


@dataclass(frozen=True)
class Reply:
    """What a fake server answers."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    start: str = ""


def result(sent: Sent, **members: Any) -> Reply:
    """Return a JSON-RPC result for a request."""
    body = json.dumps({"jsonrpc": "2.0", "id": sent.message.get("id"), "result": members})
    return Reply(200, (("content-type", "application/json"),), body)


def error(sent: Sent, code: int = -32602, message: str = "Unknown name") -> Reply:
    """Return a JSON-RPC error for a request."""
    body = json.dumps({"jsonrpc": "2.0", "id": sent.message.get("id"), "error": {"code": code, "message": message}})
    return Reply(400, (("content-type", "application/json"),), body)


Answering = Callable[[Sent], Reply]


class FakeTransport(Transport):
    """Answers in this process; what `answer` raises is raised to the driver."""

    def __init__(self, answer: Answering, clock: FakeClock) -> None:
        super().__init__("http", "127.0.0.1", 9, clock)
        self.answer = answer
        self.clock = clock
        self.sent: list[Sent] = []

    def exchange(
        self,
        method: str,
        target: str,
        headers: Any,
        body: bytes,
        *,
        timeout: float,
        size_cap: int,
        done: Callable[[bytes], bool] | None = None,
    ) -> Received:
        self.sent.append(Sent(method, target, tuple(headers), body))
        began = self.clock.now
        self.clock.now += 0.001
        reply = self.answer(self.sent[-1])
        start = reply.start or f"HTTP/1.1 {reply.status} Whatever"
        return Received(start, reply.headers, reply.body.encode(), began, self.clock.now, self.clock.now)


@dataclass
class FakeTokens:
    """A source that mints everything: the token of a recipe is its number."""

    recipes: dict[str, TokenRecipe] = field(default_factory=dict)
    domains: list[int] = field(default_factory=list)

    def token(self, recipe: TokenRecipe, domain: int) -> str:
        known = next((token for token, of in self.recipes.items() if of == recipe), None)
        number = f"{len(self.recipes):04}"
        token = known or f"eyJhbGciOiJFUzI1NiJ9.cGF5bG9hZC1udW1iZXI{number}.c2lnbmF0dXJlLW51bWJlcg{number}"
        self.recipes[token] = recipe
        self.domains.append(domain)
        return token


@dataclass
class FakeServer:
    """An honest server of two callers, apart from what `faults` change; `calls` counts charged calls."""

    tokens: FakeTokens
    calls: int = 0

    def __call__(self, sent: Sent) -> Reply:
        recipe = self.tokens.recipes.get(sent.token)
        if recipe is None or not recipe.plainly_valid:
            return Reply(401, (("www-authenticate", "Bearer"),))
        if sent.method == "server/discover":
            return result(sent, serverInfo={"name": "fake", "version": "1"})
        if sent.method == "tools/list":
            names = ("read", "write") if recipe.caller == "broad" else ("read",)
            return result(sent, tools=[{"name": name, "inputSchema": {"type": "object"}} for name in names])
        if sent.method == "tools/call":
            self.calls += 1
            if sent.message["params"]["name"] == "read":
                return result(sent, content=[])
        return error(sent, -32601 if sent.method.endswith("/list") else -32602)


@dataclass
class World:
    """A driver, and the fakes around it."""

    subject: HttpSubject
    transport: FakeTransport
    clock: FakeClock
    tokens: FakeTokens
    history: HistoryWriter


def target(budget: Budget | None = None, **members: Any) -> Target:
    """Return the description of a fake server."""
    callers = (
        CallerSpec(name="broad", scopes=("a", "b"), reserve=2),
        CallerSpec(name="narrow", scopes=("a",), reserve=2),
    )
    return Target(
        resource="https://fake.invalid/mcp", callers=callers, broad="broad", narrow="narrow", budget=budget, **members
    )


def budget(window: float = 60.0, **members: Any) -> Budget:
    """Return a declared budget of 6 units: two reserves of 2 and a pool of 2."""
    return Budget(limiter="reserve", budget=6, window=window, pool=2, free=FREE, **members)


def world(
    answer: Callable[[FakeTokens], Answering] | None = None,
    of: Target | None = None,
    limits: Limits | None = None,
    history: Path | None = None,
) -> World:
    """Return a driver of a fake server."""
    clock, tokens = FakeClock(), FakeTokens()
    transport = FakeTransport(FakeServer(tokens) if answer is None else answer(tokens), clock)
    writer = HistoryWriter(history)
    subject = HttpSubject(
        URL, of or target(), tokens, writer, transport=transport, limits=limits, sleep=clock.sleep, clock=clock
    )
    return World(subject, transport, clock, tokens, writer)


def a_requirement(
    check: Callable[..., None],
    drawn: st.SearchStrategy[Any] | None = None,
    name: str = "QZ-AUD-99",
    level: Level = Level.MUST,
    rows: dict[str, Any] | None = None,
    **more: Any,
) -> Requirement:
    """Return a requirement outside the law, over rows by name."""
    return Requirement(
        id=name,
        level=level,
        claim="A claim.",
        norm=Norm("a standard", "a sentence"),
        cost="None.",
        control="a control",
        check=check,
        drawn=st.integers(0, 100) if drawn is None else drawn,
        rows={key: Row(key, value) for key, value in {**(rows or {}), **more}.items()},
    )

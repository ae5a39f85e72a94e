"""Gate 1's cache has the bounds that the benchmark states; what it saves is measured there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from quenchz_reference import audience
from quenchz_reference.audience import Audience, AudienceGate, Verified
from quenchz_reference.clock import ManualClock
from quenchz_reference.issuer import ISSUER, InProcessIssuer
from quenchz_reference.options import DEFAULT_RESOURCE

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from starlette.types import Message, Receive, Scope, Send


class Counting(Audience):
    """The decisions of gate 1, and how often a token was really verified."""

    verified = 0

    async def verify(self, token: bytes) -> Verified:
        self.verified += 1
        return await super().verify(token)


class Asked:
    """Gate 1 with nothing behind, on a clock that a test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.issuer = InProcessIssuer()
        self.audience = Counting(DEFAULT_RESOURCE, self.issuer, self.clock)
        self.gate = AudienceGate(self.behind, self.audience, "http://127.0.0.1:1/metadata")

    async def behind(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    def token(self, serial: int, seconds: int = 3600) -> bytes:
        now = int(self.clock.now())
        claims = {"iss": ISSUER, "sub": "broad", "aud": DEFAULT_RESOURCE, "exp": now + seconds, "jti": str(serial)}
        return self.issuer.mint(claims).encode()

    def status(self, token: bytes) -> int:
        """Send one request and return the status of its answer."""
        statuses: list[int] = []

        async def send(message: Message) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [(b"authorization", b"Bearer " + token)]}
        anyio.run(self.gate, scope, receive, send)
        return statuses[0]


def test_a_full_cache_forgets_its_oldest_token_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audience, "_CACHE_ENTRIES", 3)
    asked = Asked()
    tokens = [asked.token(serial) for serial in range(4)]
    assert [asked.status(token) for token in [*tokens, *tokens[1:]]] == [200] * 7
    assert asked.audience.verified == 4
    assert asked.status(tokens[0]) == 200
    assert asked.audience.verified == 5


def test_a_remembered_token_ends_with_its_exp_and_a_refused_one_is_never_remembered() -> None:
    asked = Asked()
    token = asked.token(1, seconds=10)
    assert [asked.status(token), asked.status(token), asked.audience.verified] == [200, 200, 1]
    asked.clock.advance(9.999)
    assert [asked.status(token), asked.audience.verified] == [200, 1]
    asked.clock.advance(0.001)
    assert [asked.status(token), asked.status(token), asked.audience.verified] == [401, 401, 3]


def test_the_benchmark_states_the_bounds_that_gate_1_has(pytestconfig: pytest.Config) -> None:
    bench: Path = pytestconfig.rootpath / "bench"
    stated = (bench / "bearer.py").read_text(encoding="utf-8")
    assert f"{audience._CACHE_ENTRIES:,} tokens at most" in stated
    assert f"for {audience._CACHE_SECONDS:.0f} seconds at most" in stated
    assert f"of {audience._CACHE_ENTRIES:,} at most" in (bench / "run.py").read_text(encoding="utf-8")

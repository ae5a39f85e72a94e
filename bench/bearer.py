"""What a request's way through the bearer token costs: gate 1 of the reference server beside the SDK's own path.

`python bench/bearer.py --tokens N --rounds R` prints one JSON document: for each way its microseconds of CPU per
request, round by round, and what one entry of gate 1's cache takes. Everything is in this process and on one thread, on
both sides over ASGI with the same requests and nothing behind, so that the difference is the bearer path alone. The
order of the ways turns with the rounds.

The SDK's side is what `streamable_http_app` builds for a resource server: Starlette's authentication middleware with
`BearerAuthBackend`, `AuthContextMiddleware`, `RequireAuthMiddleware`. In the place that the SDK leaves to its user, the
token verifier, stands once the verifier of gate 1 itself, so that the difference is the way to it, and once the few
lines of PyJWT's documentation (key id, then `jwt.decode` with issuer, audience and required claims), which check less.
Gate 1 finds its key as in operation, in the key set that it fetched from the issuer; those few lines have theirs in a
dictionary.

A token that gate 1 has verified is remembered by its SHA-256: 20,000 tokens at most, the oldest forgotten first, never
beyond the token's own `exp`, and for 300 seconds at most, which is how long a withdrawn key can still count. The SDK's
path has no such cache; a verifier could have one.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import jwt
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken, TokenVerifier
from pydantic import AnyHttpUrl
from starlette.middleware.authentication import AuthenticationMiddleware

from quenchz.issuer import SuiteIssuer
from quenchz.mint import Mint, SigningKey
from quenchz_reference.audience import Audience, AudienceGate, TokenRefusedError
from quenchz_reference.clock import SystemClock
from quenchz_reference.trust import AnyOf, HttpIssuers
from quenchz_spec.vocabulary import TokenRecipe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

RESOURCE = "https://rates.quenchz.invalid/mcp"
METADATA = "https://rates.quenchz.invalid/.well-known/oauth-protected-resource/mcp"
UNSEEN, CACHED = "gate 1, token not seen before", "gate 1, token in its cache"
SDK_SAME, SDK_PLAIN = "SDK, gate 1's verifier", "SDK, jwt.decode"
HEADERS = [
    (b"host", b"127.0.0.1:8931"),
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
    (b"mcp-protocol-version", b"2026-07-28"),
    (b"mcp-method", b"tools/call"),
    (b"mcp-name", b"exchange_rates"),
    (b"content-length", b"312"),
]


class SameVerifier:
    """A token verifier (the SDK's protocol) that is gate 1's."""

    def __init__(self, audience: Audience) -> None:
        self._audience = audience

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what a token says, or None if it is not good here."""
        try:
            verified = await self._audience.verify(token.encode())
        except TokenRefusedError:
            return None
        caller = verified.caller
        return AccessToken(
            token=token,
            client_id=caller.client_id,
            scopes=sorted(caller.scopes),
            expires_at=int(verified.until),
            resource=self._audience.resource,
            subject=caller.subject,
            claims={"iss": caller.issuer},
        )


class PlainVerifier:
    """A token verifier (the SDK's protocol) of PyJWT's own decoding."""

    def __init__(self, issuer: str, keys: dict[str, EllipticCurvePublicKey]) -> None:
        self._issuer = issuer
        self._keys = keys

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what a token says, or None if it is not good here."""
        try:
            key = self._keys[jwt.get_unverified_header(token)["kid"]]
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=["ES256"],
                audience=RESOURCE,
                issuer=self._issuer,
                options={"require": ["exp", "iss", "aud", "sub"], "strict_aud": True},
            )
        except (jwt.PyJWTError, KeyError):
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims["scope"].split(),
            expires_at=claims["exp"],
            resource=claims["aud"],
            subject=claims["sub"],
            claims=claims,
        )


class Behind:
    """What stands behind the bearer path: it counts who came through."""

    def __init__(self) -> None:
        self.reached = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Count one request of an authenticated user."""
        self.reached += "user" in scope


def sdk_path(behind: Behind, verifier: TokenVerifier) -> ASGIApp:
    """Build the SDK's bearer path."""
    inner = RequireAuthMiddleware(behind, [], AnyHttpUrl(METADATA))
    return AuthenticationMiddleware(AuthContextMiddleware(inner), backend=BearerAuthBackend(verifier))


async def receive() -> Message:
    """Give no body: nobody reads one."""
    return {"type": "http.disconnect"}


async def send(message: Message) -> None:
    """Refuse an answer: only a refusal of the bearer path would send one.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(f"a good token was answered {message.get('status')}")


async def cost(app: ASGIApp, behind: Behind, tokens: Sequence[bytes]) -> float:
    """Send a request with each token and return the microseconds of CPU per request.

    Raises:
        RuntimeError: a token was refused, or did not come through.
    """
    scopes: list[Scope] = [
        {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "query_string": b"",
            "headers": [*HEADERS, (b"authorization", b"Bearer " + token)],
        }
        for token in tokens
    ]
    behind.reached = 0
    gc.collect()
    began = time.process_time()
    for scope in scopes:
        await app(scope, receive, send)
    spent = time.process_time() - began
    if behind.reached != len(tokens):
        raise RuntimeError(f"{behind.reached} of {len(tokens)} requests came through")
    return spent / len(tokens) * 1e6


async def measure(issuer: SuiteIssuer, count: int, rounds: int) -> dict[str, Any]:
    """Take every round and return the document that is printed."""
    stranger = SigningKey.generate("nobody")
    mint = Mint(issuer.base_url, issuer.key, stranger, "https://nobody.invalid", RESOURCE, time.time, lifetime=3600)
    tokens = [
        mint.mint(TokenRecipe(caller=name), subject=name, scopes=("rates:read",)).encode()
        for name in (f"caller-{number:05d}" for number in range(count))
    ]
    trust = AnyOf([HttpIssuers([issuer.base_url], [], SystemClock())])
    audience, behind = Audience(RESOURCE, trust, SystemClock()), Behind()
    plain = PlainVerifier(issuer.base_url, {issuer.key.kid: issuer.key.private.public_key()})
    asked = {SDK_SAME: sdk_path(behind, SameVerifier(audience)), SDK_PLAIN: sdk_path(behind, plain)}
    costs: dict[str, list[float]] = {name: [] for name in (UNSEEN, CACHED, *asked)}
    for number in range(-1, rounds):  # the first is not counted: the key set is fetched, code is warmed up
        gate = AudienceGate(behind, audience, METADATA)
        # A fresh gate has seen nothing; the second time it has seen every token.
        ways: list[tuple[str, ASGIApp]] = [(UNSEEN, gate), (CACHED, gate), *asked.items()]
        turn = 2 * (number % 2)
        for name, app in ways[turn:] + ways[:turn]:
            taken = await cost(app, behind, tokens)
            if number >= 0:
                costs[name].append(taken)
    entry = await bytes_kept(AudienceGate(behind, audience, METADATA), behind, tokens)
    await trust.aclose()
    return {"tokens": count, "cpu_us_per_request": costs, "bytes_per_cached_token": entry}


async def bytes_kept(gate: AudienceGate, behind: Behind, tokens: Sequence[bytes]) -> int:
    """Return how many bytes a gate keeps for each token that it has verified."""
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    await cost(gate, behind, tokens)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round((after - before) / len(tokens))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Gate 1 of the reference server beside the SDK's bearer path")
    parser.add_argument("--tokens", type=int, default=2000, metavar="N", help="tokens, each of a caller of its own")
    parser.add_argument("--rounds", type=int, default=7, metavar="R")
    options = parser.parse_args()
    with SuiteIssuer() as issuer:
        print(json.dumps(asyncio.run(measure(issuer, options.tokens, options.rounds))))


if __name__ == "__main__":
    main()

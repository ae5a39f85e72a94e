"""Keys by HTTP: metadata, key sets, rotation, tenants, and issuers that do not answer as they have to."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from reference_support import Json, claims_of, running

from quenchz_reference.audience import Audience, TokenRefusedError
from quenchz_reference.clock import ManualClock
from quenchz_reference.options import DEFAULT_RESOURCE
from quenchz_reference.trust import AnyOf, HttpIssuers, metadata_url

ALGORITHMS: dict[str, Any] = {
    "ES256": jwt.algorithms.ECAlgorithm,
    "RS256": jwt.algorithms.RSAAlgorithm,
    "EdDSA": jwt.algorithms.OKPAlgorithm,
}
PRIVATE: dict[str, Any] = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "RS256": rsa.generate_private_key(65537, 2048),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}


def jwk(algorithm: str, kid: str | None, **changes: Json) -> dict[str, Any]:
    public: dict[str, Any] = json.loads(ALGORITHMS[algorithm].to_jwk(PRIVATE[algorithm].public_key()))
    public.pop("key_ops", None)
    return public | ({} if kid is None else {"kid": kid}) | changes


class Documents:
    """An issuer's web server: path to status and JSON document, and the paths that were asked for."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        self.url = ""

    def publish(self, path: str, *keys: dict[str, Any], **changes: Json) -> str:
        issuer = f"{self.url}{path}"
        self.found[f"/.well-known/oauth-authorization-server{path}"] = (
            200,
            {"issuer": issuer, "jwks_uri": f"{self.url}/jwks{path}"} | changes,
        )
        self.found[f"/jwks{path}"] = (200, {"keys": list(keys)})
        return issuer


@contextmanager
def serving() -> Iterator[Documents]:
    documents = Documents()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            documents.asked.append(self.path)
            status, content = documents.found.get(self.path, (404, {}))
            if isinstance(content, threading.Event):
                while not content.wait(0.02):  # a head that does not end
                    self.wfile.write(b"HTTP/1.1 200 OK\r\n" if status else b"X: y\r\n")
                    self.wfile.flush()
                    status = 0
                return
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if status == 302:
                self.send_header("Location", f"{documents.url}/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    documents.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield documents
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def web() -> Iterator[Documents]:
    with serving() as documents:
        yield documents


def token(issuer: str, algorithm: str = "ES256", kid: str | None = "one", **changes: Json) -> bytes:
    claims = claims_of("broad", ManualClock().now(), iss=issuer, **changes)
    headers = {"typ": "at+jwt"} | ({} if kid is None else {"kid": kid})
    return jwt.encode(claims, PRIVATE[algorithm], algorithm, headers).encode()


def verdicts(trust: HttpIssuers, *tokens: bytes, clock: ManualClock | None = None, pause: float = 0) -> list[bool]:
    """Whether each token is admitted, one after the other, with a pause before each but the first."""
    clock = clock or ManualClock()
    audience = Audience(DEFAULT_RESOURCE, AnyOf([trust]), ManualClock())

    async def all_of_them() -> list[bool]:
        seen = []
        for number, one in enumerate(tokens):
            if number:
                clock.advance(pause)
            try:
                await audience.verify(one)
            except TokenRefusedError:
                seen.append(False)
            else:
                seen.append(True)
        await trust.aclose()
        return seen

    return anyio.run(all_of_them)


def trusting(
    *issuers: str, tenants: tuple[str, ...] = (), clock: ManualClock | None = None, **limits: Json
) -> HttpIssuers:
    return HttpIssuers(issuers, tenants, clock or ManualClock(), **limits)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kid", ["one", None])
def test_a_key_that_the_issuer_publishes_verifies(web: Documents, algorithm: str, kid: str | None) -> None:
    issuer = web.publish("", *(jwk(name, "one" if kid else None) for name in ALGORITHMS))
    assert verdicts(trusting(issuer), token(issuer, algorithm, kid)) == [True]
    assert web.asked == ["/.well-known/oauth-authorization-server", "/jwks"]


def test_documents_are_fetched_once_and_again_when_they_are_old(web: Documents) -> None:
    issuer, clock = web.publish("", jwk("ES256", "one")), ManualClock()
    trust = trusting(issuer, clock=clock, keep=300)
    assert verdicts(trust, *[token(issuer)] * 4, clock=clock, pause=149) == [True] * 4
    assert web.asked == ["/.well-known/oauth-authorization-server", "/jwks"] * 2


def test_made_up_key_ids_cause_one_fetch_per_pause(web: Documents) -> None:
    issuer, clock = web.publish("", jwk("ES256", "one")), ManualClock()
    trust = trusting(issuer, clock=clock, pause=5)
    tokens = [token(issuer), *[token(issuer, kid=f"x{n}") for n in range(20)]]
    assert verdicts(trust, *tokens, clock=clock, pause=0.5) == [True] + [False] * 20
    assert web.asked.count("/jwks") == 3


def test_a_rotated_key_is_found_and_the_withdrawn_one_is_gone(web: Documents) -> None:
    issuer, clock = web.publish("", jwk("ES256", "one")), ManualClock()
    trust = trusting(issuer, clock=clock)
    audience = Audience(DEFAULT_RESOURCE, trust, ManualClock())

    async def rotate() -> None:
        await audience.verify(token(issuer))
        web.publish("", jwk("RS256", "two"))
        clock.advance(6)
        await audience.verify(token(issuer, "RS256", "two"))
        with pytest.raises(TokenRefusedError):
            await audience.verify(token(issuer))
        await trust.aclose()

    anyio.run(rotate)


def test_tenants_are_one_path_segment_below_the_base(web: Documents) -> None:
    base = f"{web.url}/runs"
    for slug in ("run-1", "a.b_c", "..", "a/b", "ä", "x" * 65):
        web.publish(f"/runs/{slug}", jwk("ES256", "one"))
    trust = trusting(tenants=(base,))
    names = ["run-1", "a.b_c", "..", "a/b", "ä", "x" * 65, "", "nobody"]
    tokens = [token(f"{base}/{slug}") for slug in names]
    assert (
        verdicts(trust, *tokens, token(base), token("https://elsewhere.invalid/runs/run-1")) == [True] * 2 + [False] * 8
    )
    assert metadata_url(f"{base}/run-1") == f"{web.url}/.well-known/oauth-authorization-server/runs/run-1"


def test_a_key_of_one_tenant_does_not_sign_for_another(web: Documents) -> None:
    one = web.publish("/t/one", jwk("ES256", "one"))
    two = web.publish("/t/two", jwk("RS256", "one"))
    assert verdicts(trusting(tenants=(f"{web.url}/t",)), token(one), token(two), token(two, "RS256")) == [
        True,
        False,
        True,
    ]


BROKEN: dict[str, dict[str, tuple[int, Any]]] = {
    "metadata 404": {"/.well-known/oauth-authorization-server": (404, {})},
    "metadata 500": {"/.well-known/oauth-authorization-server": (500, {})},
    "metadata redirect": {"/.well-known/oauth-authorization-server": (302, {})},
    "metadata no JSON": {"/.well-known/oauth-authorization-server": (200, b"<html>")},
    "metadata not UTF-8": {"/.well-known/oauth-authorization-server": (200, b'"\xff"')},
    "metadata nested": {"/.well-known/oauth-authorization-server": (200, b"[" * 100_000)},
    "metadata a list": {"/.well-known/oauth-authorization-server": (200, [])},
    "metadata huge": {"/.well-known/oauth-authorization-server": (200, b" " * 300_000)},
    "keys 503": {"/jwks": (503, {})},
    "keys a list": {"/jwks": (200, [1])},
    "keys null": {"/jwks": (200, {"keys": None})},
    "keys of numbers": {"/jwks": (200, {"keys": [1, None, "x", []]})},
    "key without members": {"/jwks": (200, {"keys": [{"kty": "EC", "crv": "P-256", "kid": "one"}]})},
    "key with wrong members": {
        "/jwks": (200, {"keys": [{"kty": "EC", "crv": "P-256", "x": 1, "y": "!", "kid": "one"}]})
    },
    "key type a list": {"/jwks": (200, {"keys": [{"kty": ["EC"], "crv": {}, "kid": "one"}]})},
    "key for encryption": {"/jwks": (200, {"keys": [jwk("ES256", "one", use="enc")]})},
    "key for another algorithm": {"/jwks": (200, {"keys": [jwk("ES256", "one", alg="ES512")]})},
    "a shared secret": {"/jwks": (200, {"keys": [{"kty": "oct", "k": "AAAA", "kid": "one", "alg": "ES256"}]})},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_issuer_means_that_the_token_is_refused(web: Documents, broken: dict[str, Any]) -> None:
    issuer = web.publish("", jwk("ES256", "one"))
    web.found["/elsewhere"] = web.found["/.well-known/oauth-authorization-server"]
    web.found.update(broken)
    assert verdicts(trusting(issuer), token(issuer)) == [False]


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": "https://elsewhere.invalid"},
        {"issuer": None},
        {"jwks_uri": None},
        {"jwks_uri": "file:///x"},
        {"jwks_uri": "http://["},
    ],
)
def test_metadata_of_somebody_else_is_not_used(web: Documents, changes: dict[str, Any]) -> None:
    issuer = web.publish("", jwk("ES256", "one"), **changes)
    assert verdicts(trusting(issuer), token(issuer)) == [False]


def test_an_unreachable_issuer_is_tried_once_per_pause_and_recovers() -> None:
    with serving() as gone:
        issuer = gone.publish("", jwk("ES256", "one"))
    clock = ManualClock()
    assert verdicts(trusting(issuer, clock=clock), token(issuer), token(issuer), clock=clock, pause=1) == [False, False]


def test_a_failure_is_remembered_for_the_pause_only(web: Documents) -> None:
    issuer, clock = f"{web.url}", ManualClock()
    trust = trusting(issuer, clock=clock, pause=5)
    audience = Audience(DEFAULT_RESOURCE, trust, ManualClock())

    async def recover() -> None:
        for _ in range(3):
            with pytest.raises(TokenRefusedError):
                await audience.verify(token(issuer))
        assert len(web.asked) == 1
        web.publish("", jwk("ES256", "one"))
        clock.advance(5)
        await audience.verify(token(issuer))
        await trust.aclose()

    anyio.run(recover)


def test_an_issuer_that_is_slow_keeps_nobody_waiting_longer_than_the_timeout(web: Documents) -> None:
    issuer, clock, lifted = web.publish("", jwk("ES256", "one")), ManualClock(), threading.Event()
    web.found["/jwks"] = (200, lifted)
    trust = trusting(issuer, clock=clock, timeout=0.3)
    audience = Audience(DEFAULT_RESOURCE, trust, ManualClock())
    took: list[float] = []

    async def waiting(one: bytes) -> None:
        began = time.monotonic()
        with pytest.raises(TokenRefusedError):
            await audience.verify(one)
        took.append(time.monotonic() - began)

    async def all_at_once() -> None:
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(waiting, token(issuer, jti=str(number)))
        assert max(took) < 1.2  # six in turn would take 1.8 s
        assert web.asked.count("/jwks") == 1
        lifted.set()
        web.publish("", jwk("ES256", "one"))
        await waiting(token(issuer))
        clock.advance(5)
        await audience.verify(token(issuer))
        await trust.aclose()

    anyio.run(all_at_once)


def test_a_failure_is_remembered_from_its_end_on(web: Documents) -> None:
    issuer, clock = web.publish("", jwk("ES256", "one")), ManualClock()

    class Slow(HttpIssuers):
        async def _fetch(self, url: str) -> object:
            clock.advance(4)
            return await super()._fetch(url)

    web.found["/jwks"] = (500, {})
    trust = Slow((issuer,), (), clock, pause=5)
    assert verdicts(trust, *[token(issuer)] * 3, clock=clock, pause=2) == [False] * 3
    assert web.asked.count("/jwks") == 1


def test_keys_that_are_too_old_are_not_used_when_new_ones_cannot_be_had(web: Documents) -> None:
    issuer, clock = web.publish("", jwk("ES256", "one")), ManualClock()
    trust = trusting(issuer, clock=clock, keep=300)
    audience = Audience(DEFAULT_RESOURCE, trust, ManualClock())

    async def outage() -> None:
        await audience.verify(token(issuer))
        web.found["/jwks"] = (500, {})
        clock.advance(299)
        await audience.verify(token(issuer))
        with pytest.raises(TokenRefusedError):  # looked for, not found: what is known stays known
            await audience.verify(token(issuer, kid="new"))
        await audience.verify(token(issuer))
        clock.advance(1)  # the failed attempt did not make the old keys any younger
        with pytest.raises(TokenRefusedError):
            await audience.verify(token(issuer))
        await trust.aclose()

    anyio.run(outage)


def test_forgetting_old_documents_bounds_the_memory_and_changes_no_verdict(web: Documents) -> None:
    issuers = [web.publish(f"/t/{n}", jwk("ES256", "one")) for n in range(6)]
    trust = trusting(tenants=(f"{web.url}/t",), limit=2)
    assert verdicts(trust, *map(token, issuers), *map(token, issuers)) == [True] * 12
    assert len(trust._places) == len(trust._key_sets) == 2


def test_each_tenant_of_a_running_server_has_an_untouched_budget(web: Documents) -> None:
    base, now = f"{web.url}/runs", time.time()
    reserves = ["--budget", "3", "--reserve", "broad=1", "--reserve", "narrow=1"]
    with running("--trust-tenants", base, *reserves) as server:
        for run in range(3):
            issuer = web.publish(f"/runs/run-{run}", jwk("ES256", "one"))
            claims = {caller: claims_of(caller, now, iss=issuer) for caller in ("broad", "narrow")}
            tokens = {
                caller: jwt.encode(claims[caller], PRIVATE["ES256"], "ES256", {"typ": "at+jwt", "kid": "one"})
                for caller in claims
            }
            broad, narrow = server.wire_with(tokens["broad"]), server.wire_with(tokens["narrow"])
            assert [broad.call().status for _ in range(3)] == [200, 200, 429]
            assert [narrow.call().status for _ in range(2)] == [200, 429]


def test_an_issuer_that_cannot_be_reached_means_401_and_never_5xx() -> None:
    with serving() as gone:
        issuer = gone.url
    with running("--trust-issuer", issuer) as server:
        held = claims_of("broad", time.time(), iss=issuer)
        signed = jwt.encode(held, PRIVATE["ES256"], "ES256", {"typ": "at+jwt", "kid": "one"})
        answer = server.wire_with(signed).call()
        assert answer.status == 401
        assert answer == server.wire_with("x.y.z").call()

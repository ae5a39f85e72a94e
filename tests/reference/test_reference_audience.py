"""Gate 1 over a table of hostile tokens, in process over ASGI."""

import base64
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_support import Json, claims_of
from starlette.types import Message, Receive, Scope, Send

from quenchz_reference import audience
from quenchz_reference.audience import Audience, AudienceGate
from quenchz_reference.caller import current_caller
from quenchz_reference.clock import ManualClock
from quenchz_reference.issuer import InProcessIssuer
from quenchz_reference.options import DEFAULT_RESOURCE
from quenchz_reference.trust import VerificationKey

CLOCK = ManualClock()
ISSUER = InProcessIssuer()
METADATA_URL = "http://127.0.0.1:1/.well-known/oauth-protected-resource/mcp"
BAD = (401, f'Bearer error="invalid_token", resource_metadata="{METADATA_URL}"', b'{"error":"invalid_token"}')
NONE = (401, f'Bearer resource_metadata="{METADATA_URL}"', b"")


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(current_caller()).encode()})


def gate(clock: ManualClock = CLOCK) -> AudienceGate:
    return AudienceGate(inner, Audience(DEFAULT_RESOURCE, ISSUER, clock), METADATA_URL)


def ask(
    *authorization: bytes, at: AudienceGate | None = None, method: str = "POST", query: bytes = b""
) -> tuple[int, str, bytes]:
    """Status, challenge and body for a request with these Authorization headers."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    headers = [(b"authorization", value) for value in authorization]
    scope = {"type": "http", "method": method, "path": "/mcp", "query_string": query, "headers": headers}
    anyio.run(at or gate(), scope, receive, send)
    challenge = dict(sent[0]["headers"]).get(b"www-authenticate", b"").decode()
    return sent[0]["status"], challenge, sent[1]["body"]


def bearer(token: str | bytes) -> bytes:
    return b"Bearer " + (token.encode() if isinstance(token, str) else token)


def good(**changes: Json) -> str:
    return ISSUER.mint(claims_of("broad", CLOCK.now(), **changes))


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(header: bytes, payload: bytes, key: ec.EllipticCurvePrivateKey | None = None) -> str:
    """A token of exactly these bytes, with a true signature: JWT libraries refuse to make most of them."""
    first = f"{b64(header)}.{b64(payload)}"
    der = (key or ISSUER._private).sign(first.encode(), ec.ECDSA(hashes.SHA256()))
    r, s = utils.decode_dss_signature(der)
    return f"{first}.{b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


HEADER: dict[str, Json] = {"alg": "ES256", "typ": "at+jwt", "kid": ISSUER._kid}


def header(**changes: Json) -> bytes:
    return json.dumps({name: value for name, value in (HEADER | changes).items() if value is not ...}).encode()


def payload(without: str = "", extra: str = "", **changes: Json) -> bytes:
    text = json.dumps({k: v for k, v in (claims_of("broad", CLOCK.now()) | changes).items() if k != without})
    return (text[:-1] + extra + "}").encode("utf-8", "surrogatepass")


def test_a_token_for_this_resource_is_admitted() -> None:
    assert ask(bearer(good())) == (200, "", b"'broad' of 'https://issuer.quenchz.invalid'")
    assert ask(bearer(signed(header(), payload()))) == ask(bearer(good()))


@pytest.mark.parametrize("kind", ["at+jwt", "application/at+jwt", "AT+JWT", "JWT", ...])
def test_the_access_token_types_are_admitted(kind: Json) -> None:
    assert ask(bearer(signed(header(typ=kind), payload())))[0] == 200


@pytest.mark.parametrize("scheme", [b"bearer", b"BEARER", b"bEaReR", b"Bearer "])
def test_the_case_of_the_scheme_does_not_matter(scheme: bytes) -> None:
    assert ask(scheme + b" " + good().encode())[0] == 200


AUDIENCES: dict[str, Any] = {
    "a list of us": [DEFAULT_RESOURCE],
    "a list with us": [DEFAULT_RESOURCE, "https://elsewhere.invalid"],
    "a list of others": ["https://elsewhere.invalid"],
    "an empty list": [],
    "an empty string": "",
    "null": None,
    "zero": 0,
    "true": True,
    "an object": {DEFAULT_RESOURCE: 1},
    "a trailing slash": DEFAULT_RESOURCE + "/",
    "a longer path": DEFAULT_RESOURCE + "/admin",
    "our origin": "https://rates.quenchz.invalid",
    "upper case": DEFAULT_RESOURCE.upper(),
    "an upper-case host": "https://RATES.quenchz.invalid/mcp",
    "the default port": "https://rates.quenchz.invalid:443/mcp",
    "a blank before": " " + DEFAULT_RESOURCE,
    "a line feed after": DEFAULT_RESOURCE + "\n",
    "two in one string": DEFAULT_RESOURCE + " https://elsewhere.invalid",
    "a prefix": DEFAULT_RESOURCE[:-1],
    "a fragment": DEFAULT_RESOURCE + "#",
    "a percent-encoding": "https://rates.quenchz.invalid/%6Dcp",
}


@pytest.mark.parametrize("audience", AUDIENCES.values(), ids=AUDIENCES)
def test_every_other_audience_is_refused(audience: Json) -> None:
    assert ask(bearer(signed(header(), payload(aud=audience)))) == BAD


now = int(CLOCK.now())
HOSTILE: dict[str, Callable[[], str | bytes]] = {
    "no audience": lambda: signed(header(), payload(without="aud")),
    "audience twice, ours last": lambda: signed(
        header(), payload(without="aud", extra=f', "aud": "x", "aud": "{DEFAULT_RESOURCE}"')
    ),
    "audience twice, the same": lambda: signed(header(), payload(extra=f', "aud": "{DEFAULT_RESOURCE}"')),
    "a name twice in a nested object": lambda: signed(header(), payload(extra=', "x": {"a": 1, "a": 2}')),
    "expired": lambda: good(exp=now - 1),
    "expired this second": lambda: good(exp=now),
    "no expiry": lambda: signed(header(), payload(without="exp")),
    "expiry null": lambda: signed(header(), payload(exp=None)),
    "expiry true": lambda: signed(header(), payload(exp=True)),
    "expiry in quotes": lambda: signed(header(), payload(exp=str(now + 60))),
    "expiry fractional": lambda: signed(header(), payload(exp=now + 60.5)),
    "expiry 1e400": lambda: signed(header(), payload(without="exp", extra=', "exp": 1e400')),
    "expiry Infinity": lambda: signed(header(), payload(without="exp", extra=', "exp": Infinity')),
    "expiry NaN": lambda: signed(header(), payload(without="exp", extra=', "exp": NaN')),
    "expiry of 5,000 digits": lambda: signed(header(), payload(without="exp", extra=', "exp": ' + "9" * 5000)),
    "expiry of 4,000 digits": lambda: signed(header(), payload(without="exp", extra=', "exp": ' + "9" * 4000)),
    "expiry negative": lambda: signed(header(), payload(exp=-1)),
    "expiry a list": lambda: signed(header(), payload(exp=[now + 60])),
    "not valid yet": lambda: good(nbf=now + 1),
    "not-before in quotes": lambda: signed(header(), payload(nbf=str(now - 1))),
    "not-before null": lambda: signed(header(), payload(nbf=None)),
    "issued tomorrow": lambda: good(iat=now + 86400),
    "issued at NaN": lambda: signed(header(), payload(without="iat", extra=', "iat": NaN')),
    "scope a list": lambda: signed(header(), payload(scope=["rates:read"])),
    "scope null": lambda: signed(header(), payload(scope=None)),
    "no subject": lambda: signed(header(), payload(without="sub")),
    "subject empty": lambda: good(sub=""),
    "subject a number": lambda: signed(header(), payload(sub=1)),
    "subject with a line feed": lambda: signed(header(), payload(sub="broad\n")),
    "subject a lone surrogate": lambda: signed(header(), payload(sub="\ud800")),
    "subject of 2,000 letters": lambda: good(sub="a" * 2000),
    "client a list": lambda: signed(header(), payload(client_id=["a"])),
    "token id a number": lambda: signed(header(), payload(jti=1)),
    "no issuer": lambda: signed(header(), payload(without="iss")),
    "another issuer": lambda: good(iss="https://issuer.elsewhere.invalid"),
    "issuer with a slash": lambda: good(iss="https://issuer.quenchz.invalid/"),
    "issuer a list": lambda: signed(header(), payload(iss=["https://issuer.quenchz.invalid"])),
    "another key under our key id": lambda: signed(header(), payload(), ec.generate_private_key(ec.SECP256R1())),
    "another key id": lambda: signed(header(kid="other"), payload()),
    "key id a number": lambda: signed(header(kid=1), payload()),
    "no algorithm": lambda: signed(header(alg=...), payload()),
    "algorithm none": lambda: signed(header(alg="none"), payload()),
    "algorithm None, unsigned": lambda: signed(header(alg="None"), payload()).rpartition(".")[0] + ".",
    "algorithm HS256": lambda: signed(header(alg="HS256"), payload()),
    "algorithm RS256 on our key": lambda: signed(header(alg="RS256"), payload()),
    "algorithm a list": lambda: signed(header(alg=["ES256"]), payload()),
    "type of an ID token for logout": lambda: signed(header(typ="logout+jwt"), payload()),
    "type a number": lambda: signed(header(typ=1), payload()),
    "critical extension": lambda: signed(header(crit=["exp"]), payload()),
    "critical extension that PyJWT knows": lambda: signed(header(b64=True, crit=["b64"]), payload()),
    "unencoded payload": lambda: signed(header(b64=False, crit=["b64"]), payload()),
    "key id twice": lambda: signed(header()[:-1] + b', "kid": "x"}', payload()),
    "payload a list": lambda: signed(header(), b"[1]"),
    "payload null": lambda: signed(header(), b"null"),
    "payload empty": lambda: signed(header(), b""),
    "payload not UTF-8": lambda: signed(header(), payload()[:-1] + b', "x": "\xff"}'),
    "payload in UTF-16": lambda: signed(header(), payload().decode().encode("utf-16")),
    "payload with a byte order mark": lambda: signed(header(), b"\xef\xbb\xbf" + payload()),
    "payload nested deeply": lambda: signed(header(), b"[" * 5000 + b"]" * 5000),
    "payload nested within the size": lambda: signed(header(), b'{"x":' * 1000 + b"1" + b"}" * 1000),
    "header in UTF-16": lambda: signed(header().decode().encode("utf-16"), payload()),
    "header a string": lambda: signed(b'"ES256"', payload()),
    "a huge token": lambda: signed(header(), payload(extra=f', "x": "{"a" * 100_000}"')),
    "two parts": lambda: good().rpartition(".")[0],
    "four parts": lambda: good() + ".x",
    "an empty token": lambda: "",
    "only dots": lambda: "..",
    "base64 with padding": lambda: good() + "=",
    "base64 of the other alphabet": lambda: good().replace(".", "+."),
    "base64 of impossible length": lambda: good() + "A",
    "base64 with other trailing bits": lambda: _other_trailing_bits(good()),
    "signature cut short": lambda: good()[:-4],
    "signature in DER": lambda: _der_signature(),
    "signature all zero": lambda: good().rpartition(".")[0] + "." + b64(bytes(64)),
    "bytes beyond ASCII": lambda: b"\xff\xfe.\x80.\x80",
    "a null byte": lambda: good().encode() + b"\x00",
    "a blank inside": lambda: good().replace(".", " .", 1),
    "upper case": lambda: good().upper(),
    "a comma and another": lambda: good() + "," + good(),
}


def _other_trailing_bits(token: str) -> str:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return token[:-1] + alphabet[alphabet.index(token[-1]) ^ 1]


def _der_signature() -> str:
    first = f"{b64(header())}.{b64(payload())}"
    return f"{first}.{b64(ISSUER._private.sign(first.encode(), ec.ECDSA(hashes.SHA256())))}"


@pytest.mark.parametrize("token", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_token_gets_the_one_refusal(token: Callable[[], str | bytes]) -> None:
    assert ask(bearer(token())) == BAD


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(token: bytes) -> None:
    assert ask(b"Bearer " + token) == BAD


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text(), max_size=3)
some_claims = st.dictionaries(st.sampled_from(["iss", "sub", "aud", "exp", "nbf", "iat", "scope", "jti"]), values)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first text() of a process reads the Unicode tables
@given(some_claims)
def test_a_signed_token_of_any_claims_is_admitted_or_gets_the_one_refusal(claims: dict[str, Any]) -> None:
    answer = ask(bearer(signed(header(), payload(**claims))))
    assert answer == BAD or answer[0] == 200


def test_without_credentials_the_challenge_names_no_error() -> None:
    assert ask() == NONE
    assert ask(b"Basic dTpw") == NONE
    assert ask(query=b"access_token=" + good().encode()) == NONE
    assert ask(query=b"token=" + good().encode()) == NONE


def test_a_bad_header_does_not_fall_back_to_the_query() -> None:
    assert ask(b"Bearer x.y.z", query=b"access_token=" + good().encode()) == BAD


def test_two_authorization_headers_are_refused() -> None:
    assert ask(bearer(good()), bearer(good())) == BAD
    assert ask(b"Basic dTpw", bearer(good())) == BAD


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"])
def test_every_method_passes_the_gate(method: str) -> None:
    assert ask(method=method) == NONE
    assert ask(bearer(good(aud="https://elsewhere.invalid")), method=method) == BAD


def test_a_remembered_token_is_not_believed_longer_than_it_is_valid() -> None:
    clock = ManualClock()
    kept = gate(clock)
    token = bearer(ISSUER.mint(claims_of("broad", clock.now(), exp=int(clock.now()) + 10)))
    assert ask(token, at=kept)[0] == 200
    clock.advance(9.5)
    assert ask(token, at=kept)[0] == 200
    clock.advance(0.5)
    assert ask(token, at=kept) == BAD


def test_no_more_tokens_are_remembered_than_the_bound_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audience, "_CACHE_ENTRIES", 3)
    clock, verified = ManualClock(), 0

    class Counting(InProcessIssuer):
        async def keys(self, issuer: str, kid: str | None) -> Sequence[VerificationKey]:
            nonlocal verified
            verified += 1
            return await super().keys(issuer, kid)

    issuer = Counting()
    kept = AudienceGate(inner, Audience(DEFAULT_RESOURCE, issuer, clock), METADATA_URL)
    tokens = [bearer(issuer.mint(claims_of("broad", clock.now(), jti=str(number)))) for number in range(5)]
    for token in tokens:
        assert ask(token, at=kept)[0] == 200
        assert ask(b"Bearer x.y.z", at=kept) == BAD  # what is refused takes no place
        assert len(kept._cache) <= 3
    assert [ask(token, at=kept)[0] for token in tokens[2:]] == [200] * 3
    assert verified == 5
    assert ask(tokens[0], at=kept)[0] == 200
    assert (verified, len(kept._cache)) == (6, 3)


def test_a_remembered_token_is_verified_again_after_some_minutes() -> None:
    clock = ManualClock()
    withdrawn: list[bool] = []

    class Withdrawing(InProcessIssuer):
        async def keys(self, issuer: str, kid: str | None) -> Sequence[VerificationKey]:
            return () if withdrawn else await super().keys(issuer, kid)

    issuer = Withdrawing()
    kept = AudienceGate(inner, Audience(DEFAULT_RESOURCE, issuer, clock), METADATA_URL)
    token = bearer(issuer.mint(claims_of("broad", clock.now())))
    assert ask(token, at=kept)[0] == 200
    withdrawn.append(True)
    assert ask(token, at=kept)[0] == 200
    clock.advance(301)
    assert ask(token, at=kept) == BAD


@pytest.mark.parametrize(
    ("method", "headers", "ends"),
    [
        ("GET", [], True),
        ("POST", [(b"mcp-method", b"subscriptions/listen")], True),
        ("POST", [(b"mcp-method", b"tools/call")], False),
        ("POST", [], False),
    ],
)
def test_an_open_stream_ends_with_its_token_and_a_call_does_not(
    method: str, headers: list[tuple[bytes, bytes]], ends: bool
) -> None:
    clock = ManualClock()
    token = ISSUER.mint(claims_of("broad", clock.now(), exp=int(clock.now()) + 10))
    clock.advance(9.95)
    seen: list[str] = []

    async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b": ping", "more_body": True})
        with anyio.move_on_after(0.3):
            seen.append((await receive())["type"])

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def silent() -> Message:
        await anyio.sleep_forever()
        raise AssertionError("unreachable")

    at = AudienceGate(streaming, Audience(DEFAULT_RESOURCE, ISSUER, clock), METADATA_URL)
    scope = {"type": "http", "method": method, "path": "/mcp", "headers": [(b"authorization", bearer(token)), *headers]}
    anyio.run(at, scope, silent, send)
    assert seen == (["http.disconnect"] if ends else [])
    assert [message.get("more_body") for message in sent] == [None, True, *([False] if ends else [])]


def test_a_stream_that_ended_by_itself_is_not_ended_again() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "path": "/mcp", "headers": [(b"authorization", bearer(good()))]}
    anyio.run(gate(), scope, receive, send)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


def test_no_log_line_holds_a_byte_of_a_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = [good(aud="https://elsewhere.invalid" + "x" * 900), good(exp=1), good(scope=["x"]), good()[:-4]]
    for token in tokens:
        ask(bearer(token))
    assert len([record for record in caplog.records if "token refused" in record.message]) == len(tokens)
    for part in {part for token in tokens for part in token.split(".")}:
        assert part not in caplog.text

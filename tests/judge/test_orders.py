"""The suite's issuer can have a bad day: an order changes what one tenant publishes, and everything is counted."""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import jwt
import pytest
from cryptography import x509
from judge_support import FakeServer, FakeTokens, target, world

from quenchz.history import read_history
from quenchz.issuer import SuiteIssuer
from quenchz.mint import UnmintableError
from quenchz.orders import FAULTS, GENERATIONS, OrderError
from quenchz.reference import KEYS_REFETCH, running
from quenchz.replay import ReplaySubject
from quenchz.tokens import FileSource, IssuerSource, SuiteSource, TokenSource, header_of
from quenchz_spec.codec import encode
from quenchz_spec.outcomes import UntestableError
from quenchz_spec.subject import Target
from quenchz_spec.test_issuers import FAULTS as ROWS
from quenchz_spec.vocabulary import Claim, OurKey, TokenRecipe
from support.judging import judge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESOURCE = "https://r.invalid/mcp"


@pytest.fixture
def issuer() -> Iterator[SuiteIssuer]:
    with SuiteIssuer(grants=True) as found:
        yield found


def fetch(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=5) as answer:
        document: dict[str, Any] = json.load(answer)
    return document


def place(issuer: SuiteIssuer, slug: str) -> str:
    return str(fetch(f"{issuer.base_url}/.well-known/oauth-authorization-server/{slug}")["jwks_uri"])


def ids(url: str) -> list[str]:
    return [key["kid"] for key in fetch(url)["keys"]]


# --- keys -----------------------------------------------------------------------------------------------------------


def test_only_a_tenant_that_was_ordered_has_a_key_set_of_its_own(issuer: SuiteIssuer) -> None:
    assert issuer.order("run-1", {}) == {"fetches": 0, "canary": 0}
    assert place(issuer, "run-1") == issuer.jwks_url
    issuer.order("run-1", {"generations": [0]})
    assert place(issuer, "run-1") == f"{issuer.base_url}/run-1/jwks.json"
    assert place(issuer, "run-2") == issuer.jwks_url
    assert ids(issuer.jwks_url) == ids(f"{issuer.base_url}/run-1/jwks.json") == [issuer.key.kid]
    assert (issuer.jwks_fetches, issuer.order("run-1", {})["fetches"], issuer.order("run-2", {})["fetches"]) == (
        1,
        1,
        0,
    )


def test_a_key_set_holds_the_ordered_keys_in_order_and_they_verify_their_tokens(issuer: SuiteIssuer) -> None:
    issuer.order("run-1", {"generations": [2, 0]})
    url = place(issuer, "run-1")
    assert ids(url) == [f"{issuer.key.kid}.2", issuer.key.kid]
    client = jwt.PyJWKClient(url)
    mint = issuer.mint(RESOURCE)
    for generation in (0, 2):
        token = mint.mint(TokenRecipe(caller="broad", generation=generation), subject="broad", scopes=[])
        key = client.get_signing_key_from_jwt(token).key
        assert jwt.decode(token, key, algorithms=["ES256"], audience=RESOURCE)["sub"] == "broad"
    withdrawn = mint.mint(TokenRecipe(caller="broad", generation=1), subject="broad", scopes=[])
    with pytest.raises(jwt.PyJWKClientError):
        client.get_signing_key_from_jwt(withdrawn)
    with pytest.raises(UnmintableError, match=f"no key of generation {GENERATIONS}; use 0 to"):
        mint.mint(TokenRecipe(caller="broad", generation=GENERATIONS), subject="broad", scopes=[])


def test_an_order_leaves_what_it_does_not_name_as_it_was(issuer: SuiteIssuer) -> None:
    issuer.order("run-1", {"generations": [1], "fault": "html"})
    issuer.order("run-1", {"fault": ""})
    assert ids(place(issuer, "run-1")) == [f"{issuer.key.kid}.1"]


WRONG = [
    ({"keys": [0]}, "'keys' is no member"),
    ({"generations": 1}, "generations is 1; expected a list"),
    ({"generations": [True]}, r"generations is \[True\]"),
    ({"generations": [-1]}, "from 0 to"),
    ({"fault": "tired"}, "fault is 'tired'; expected .* oversized"),
    ({"fault": None}, "fault is None"),
    ({"fault": ["html"]}, "fault is "),
]


@pytest.mark.parametrize(("order", "text"), WRONG)
def test_what_is_no_order_is_refused_by_name_and_changes_nothing(
    issuer: SuiteIssuer, order: dict[str, Any], text: str
) -> None:
    with pytest.raises(OrderError, match=text):
        issuer.order("run-1", order)
    assert place(issuer, "run-1") == issuer.jwks_url


@pytest.mark.parametrize("tenant", ["", "a/b", "ä", "x" * 65])
def test_only_a_tenant_can_be_ordered(issuer: SuiteIssuer, tenant: str) -> None:
    with pytest.raises(OrderError, match="tenant"):
        issuer.order(tenant, {"fault": "html"})
    assert ids(issuer.jwks_url) == [issuer.key.kid]


# --- faults ---------------------------------------------------------------------------------------------------------


def answered(url: str, seconds: float) -> tuple[int, bytes, bool]:
    """Return the status, the body and whether the connection was closed after so many seconds."""
    parts = urlsplit(url)
    with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=5) as sock:
        sock.sendall(f"GET {parts.path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        received, ends = b"", time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            sock.settimeout(left)
            try:
                data = sock.recv(1 << 20)
            except TimeoutError:
                break
            if not data:
                return *split(received), True
            received += data
        return *split(received), False


def split(received: bytes) -> tuple[int, bytes]:
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]) if head else 0, body


def test_every_fault_has_a_row_in_the_law() -> None:
    assert {row.value for row in ROWS.values()} == set(FAULTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_no_key_set_and_ends_when_it_is_lifted(issuer: SuiteIssuer, fault: str) -> None:
    issuer.order("run-1", {"fault": fault})
    url = place(issuer, "run-1")
    status, body, is_closed = answered(url, 0.5)
    assert status == {"status 500": 500, "closed": 0, "silent": 0}.get(fault, 200)
    assert is_closed == (fault not in ("silent", "slow", "oversized"))
    if fault == "oversized":
        assert 300_000 < len(body) < 64 * 1024 * 1024
    if fault == "slow":
        assert 2 <= len(body) < 10
    if fault == "no keys":
        assert json.loads(body) == {"keys": []}
    elif status == 200:
        with pytest.raises(ValueError, match=r"."):
            json.loads(body)
    assert issuer.order("run-1", {"fault": ""})["fetches"] == 1
    assert ids(url) == ids(issuer.jwks_url) == [issuer.key.kid]
    assert issuer.order("run-1", {})["fetches"] == 2


def test_lifting_a_fault_lets_those_go_who_wait(issuer: SuiteIssuer) -> None:
    issuer.order("run-1", {"fault": "silent"})
    parts = urlsplit(place(issuer, "run-1"))
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=5)
    connection.request("GET", parts.path)
    while issuer.order("run-1", {})["fetches"] == 0:
        time.sleep(0.01)
    issuer.order("run-1", {"fault": "status 500"})
    with pytest.raises(http.client.RemoteDisconnected):
        connection.getresponse()
    connection.close()


def test_the_end_of_the_issuer_lifts_every_fault() -> None:
    with SuiteIssuer() as ending:
        ending.order("run-1", {"fault": "silent"})
        parts = urlsplit(place(ending, "run-1"))
        hanging = socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=5)
        hanging.sendall(f"GET {parts.path} HTTP/1.1\r\n\r\n".encode())
        while ending.order("run-1", {})["fetches"] == 0:
            time.sleep(0.01)
    with hanging:
        assert hanging.recv(100) == b""


# --- the canary -----------------------------------------------------------------------------------------------------


def test_every_request_to_the_canary_counts_and_its_key_is_the_strangers(issuer: SuiteIssuer) -> None:
    keys = fetch(f"{issuer.base_url}/canary/jwks.json")["keys"]
    stranger = issuer.stranger_key.jwk()
    assert [key["kid"] for key in keys] == [stranger["kid"], issuer.key.kid]
    assert {key["x"] for key in keys} == {stranger["x"]}
    with urllib.request.urlopen(f"{issuer.base_url}/canary/cert.pem?x=y", timeout=5) as answer:
        certificate = x509.load_pem_x509_certificate(answer.read())
    assert certificate.public_key() == issuer.stranger_key.private.public_key()
    for method, path in (("GET", "elsewhere"), ("POST", "jwks.json"), ("HEAD", "jwks.json"), ("BREW", "")):
        requested(method, f"{issuer.base_url}/canary/{path}")
    assert issuer.order("", {}) == {"fetches": 0, "canary": 6}
    fetch(issuer.jwks_url)
    assert issuer.order("run-1", {}) == {"fetches": 0, "canary": 6}


def requested(method: str, url: str) -> None:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=5)
    connection.request(method, parts.path)
    connection.getresponse().read()
    connection.close()


def test_a_token_can_name_the_canary(issuer: SuiteIssuer) -> None:
    recipe = TokenRecipe(caller="broad", header=(Claim("jku", OurKey.JKU), Claim("x5u", OurKey.X5U)))
    header = header_of(issuer.mint(RESOURCE).mint(recipe, subject="broad", scopes=[]))
    assert (header["jku"], header["x5u"]) == (
        f"{issuer.base_url}/canary/jwks.json",
        f"{issuer.base_url}/canary/cert.pem",
    )


# --- who can order, and how it is recorded --------------------------------------------------------------------------


def of(**members: Any) -> Target:
    return Target(resource=RESOURCE, callers=target().callers, broad="broad", **members)


def sources(issuer: SuiteIssuer, target: Target) -> list[TokenSource]:
    mint = issuer.mint(RESOURCE)
    return [SuiteSource(issuer, mint, target, first=40), IssuerSource(issuer.base_url, target, first=40)]


def test_both_forms_of_the_suites_issuer_take_orders_about_the_tenant_of_a_domain(issuer: SuiteIssuer) -> None:
    for domain, source in enumerate(sources(issuer, of(fresh_budgets=True)), start=2):
        assert source.order({"generations": [1]}, domain) == {"fetches": 0, "canary": 0}
        url = place(issuer, f"run-4{domain}")
        assert ids(url) == [f"{issuer.key.kid}.1"]
        assert source.order({}, domain)["fetches"] == 1
        token = source.token(TokenRecipe(caller="broad", generation=1), domain)
        assert jwt.PyJWKClient(url).get_signing_key_from_jwt(token).key_id == f"{issuer.key.kid}.1"


def test_an_issuer_without_tenants_can_only_be_asked(issuer: SuiteIssuer) -> None:
    for source in sources(issuer, of()):
        assert source.order({}, 2) == {"fetches": 0, "canary": 0}
        with pytest.raises(UntestableError, match=r"not the judge's alone.*tokens\.tenants"):
            source.order({"fault": "html"}, 2)


def test_other_sources_take_no_orders_and_say_which_do(issuer: SuiteIssuer) -> None:
    with pytest.raises(UntestableError, match=r"takes no orders; let the target trust tenants"):
        FileSource({"callers": {}}, RESOURCE).order({}, 0)
    with SuiteIssuer() as other, pytest.raises(UntestableError, match=r"takes no order: HTTP 404"):
        IssuerSource(other.base_url, of()).order({}, 0)
    refusing = IssuerSource(issuer.base_url, of(fresh_budgets=True))
    with pytest.raises(UntestableError, match=r"takes no order: HTTP 400 fault is 'x'"):
        refusing.order({"fault": "x"}, 0)
    with pytest.raises(UntestableError, match="start `quenchz issuer`"):
        IssuerSource("http://127.0.0.1:1", of()).order({}, 0)


@pytest.mark.parametrize("body", [b"", b"[", b"[]", b"{}", b'"x"', b"[" * 50_000, b'{"tenant":1}', b"\xff"])
def test_a_body_that_is_no_order_is_refused(issuer: SuiteIssuer, body: bytes) -> None:
    request = urllib.request.Request(f"{issuer.base_url}/order", body, method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused, urllib.request.urlopen(request, timeout=5):
        pass
    with refused.value:
        assert (refused.value.code, json.load(refused.value)["error"]) == (400, "invalid_request")


class Ordered(FakeTokens):
    """A source that is told what it is told, and counts."""

    def order(self, order: dict[str, Any], domain: int) -> dict[str, Any]:
        self.domains.append(domain)
        return {"fetches": len(self.domains), "said": order, "domain": domain}


def test_an_order_is_recorded_and_judged_again_without_an_issuer(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    here = world(FakeServer, of=target(fresh_budgets=True), history=path)
    here.subject._tokens._source = source = Ordered(recipes=here.tokens.recipes)
    here.subject.connect("auto")
    here.history.header(
        url="u", wire="w", seed=1, profile="p", level="must", ids=[], allowed=[], target=encode(target())
    )
    before = len(here.transport.sent)
    source.domains.clear()
    with here.subject.channel("QZ-AUD-29", 1) as counts:
        here.subject.fresh_budget()
        first = here.subject.issuer({"generations": [0, 1]})
        second = here.subject.issuer({})
    here.history.close()
    assert (first["domain"], second["fetches"], counts.requests) == (1, 2, 2)
    assert len(here.transport.sent) == before  # nothing of it goes to the target
    again = ReplaySubject(read_history(path))
    again.select("QZ-AUD-29", 1, voids_refusals=True)
    assert (again.issuer({"generations": [0, 1]}), again.issuer({})) == (first, second)
    with pytest.raises(UntestableError, match="the history lacks"):
        again.issuer({})
    again.select("QZ-AUD-29", 1, voids_refusals=True)
    with pytest.raises(UntestableError, match="the history lacks"):
        again.issuer({"fault": "html"})


TOML = """
url = "{url}"
resource = "https://rates.quenchz.invalid/mcp"
refetch_seconds = {refetch}

[tokens]
source = "suite-issuer"
issuer = "{issuer}"
tenants = {tenants}

[callers.broad]
scopes = ["rates:read", "rates:history", "rates:admin"]
[callers.narrow]
scopes = ["rates:read"]
"""


@pytest.mark.parametrize(("tenants", "verdict"), [("true", "pass"), ("false", "untestable")])
def test_a_running_issuer_with_tenants_is_ordered_over_http(
    issuer: SuiteIssuer, tenants: str, verdict: str, tmp_path: Path
) -> None:
    with running(None, issuer.base_url, ["--trust-issuer", issuer.base_url]) as url:
        text = TOML.format(url=url, issuer=issuer.base_url, refetch=KEYS_REFETCH, tenants=tenants)
        (tmp_path / "quenchz.toml").write_text(text, encoding="utf-8")
        chosen = [word for number in (29, 30, 31) for word in ("--id", f"QZ-AUD-{number}")]
        judged = judge(tmp_path, "--target", str(tmp_path / "quenchz.toml"), "--profile", "smoke", *chosen)
    assert judged.verdicts() == {"QZ-AUD-29": verdict, "QZ-AUD-30": verdict, "QZ-AUD-31": "not-applicable"}
    if verdict == "untestable":
        assert "tokens.tenants" in judged.finding("QZ-AUD-29")["reason"]
    else:
        # Nobody said how long a withdrawn key counts.
        assert judged.finding("QZ-AUD-29")["outcomes"] == {"held": 3, "not-declared": 1}

"""The suite's issuer can be discovered, and what it publishes verifies what the mint signs."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import jwt
import pytest

from quenchz.issuer import SuiteIssuer
from quenchz.mint import Mint, SigningKey
from quenchz_spec.vocabulary import TokenRecipe

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def issuer() -> Iterator[SuiteIssuer]:
    with SuiteIssuer() as running:
        yield running


def fetch(url: str, data: bytes | None = None) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(url, data, timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


@pytest.mark.parametrize("name", ["oauth-authorization-server", "openid-configuration"])
def test_metadata_of_the_issuer_and_its_tenants_names_the_issuer_asked_for(issuer: SuiteIssuer, name: str) -> None:
    base = issuer.base_url
    places = {f"{base}/.well-known/{name}": base, f"{base}/.well-known/{name}/run-3": issuer.tenant(3)}
    places[f"{base}/run-3/.well-known/openid-configuration"] = issuer.tenant(3)
    for place, named in places.items():
        status, document = fetch(place)
        assert (status, document["issuer"], document["jwks_uri"]) == (200, named, issuer.jwks_url)
    assert issuer.tenant(3) == f"{base}/run-3"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/run-1",
        "/run-1/jwks.json",
        "/.well-known/",
        "/.well-known/oauth-authorization-server/",
        "/.well-known/oauth-authorization-server/a/b",
        "/.well-known/oauth-authorization-server/" + "a" * 65,
        "/.well-known/oauth-authorization-server/a%20b",
        "/run-1/.well-known/oauth-authorization-server",
    ],
)
def test_nothing_else_is_there(issuer: SuiteIssuer, path: str) -> None:
    assert fetch(issuer.base_url + path) == (404, {"error": "not_found"})


def test_no_grant_is_offered_over_http(issuer: SuiteIssuer) -> None:
    _, document = fetch(f"{issuer.base_url}/.well-known/oauth-authorization-server")
    assert document["grant_types_supported"] == []
    body = b"grant_type=client_credentials&client_id=broad"
    assert fetch(document["token_endpoint"], body) == (400, {"error": "unsupported_grant_type"})
    assert fetch(document["authorization_endpoint"]) == (400, {"error": "unsupported_response_type"})


def test_the_published_key_verifies_the_tokens_of_every_tenant(issuer: SuiteIssuer) -> None:
    mint = Mint(
        issuer.base_url, issuer.key, SigningKey.generate("s"), "https://s.invalid", "https://r.invalid", time.time
    )
    client = jwt.PyJWKClient(issuer.jwks_url)
    for name in (None, issuer.tenant(1), issuer.tenant(2)):
        token = mint.mint(TokenRecipe(caller="broad"), subject="broad", scopes=["rates:read"], issuer=name)
        key = client.get_signing_key_from_jwt(token).key
        claims = jwt.decode(token, key, algorithms=["ES256"], audience="https://r.invalid")
        assert claims["iss"] == (name or issuer.base_url)


def test_only_the_public_part_of_the_key_is_published(issuer: SuiteIssuer) -> None:
    _, document = fetch(issuer.jwks_url)
    assert [set(key) for key in document["keys"]] == [{"kty", "crv", "x", "y", "kid", "use", "alg"}]


def test_fetches_of_the_key_set_are_counted_and_nothing_else_is() -> None:
    with SuiteIssuer() as issuer:
        fetch(f"{issuer.base_url}/.well-known/oauth-authorization-server")
        assert issuer.jwks_fetches == 0
        threads = [threading.Thread(target=fetch, args=(issuer.jwks_url,)) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert issuer.jwks_fetches == 12


def test_two_issuers_share_nothing() -> None:
    with SuiteIssuer() as one, SuiteIssuer() as other:
        assert one.base_url != other.base_url
        assert fetch(one.jwks_url)[1]["keys"][0]["x"] != fetch(other.jwks_url)[1]["keys"][0]["x"]


def test_the_port_is_closed_after_the_block_even_if_a_client_hangs_on() -> None:
    before = set(threading.enumerate())
    with SuiteIssuer() as issuer:
        port = int(issuer.base_url.rpartition(":")[2])
        hanging = socket.create_connection(("127.0.0.1", port))
        fetch(issuer.jwks_url)
    with hanging, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()
    assert not [left for left in set(threading.enumerate()) - before if left.name == "suite issuer"]
    assert issuer.jwks_fetches == 1


def test_it_says_nothing_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with SuiteIssuer() as issuer:
        port = int(issuer.base_url.rpartition(":")[2])
        fetch(f"{issuer.base_url}/nowhere")
        for rude in (b"garbage\r\n\r\n", b"GET /jwks.json HTTP/1.1\r\n", b"\x16\x03\x01", b"DELETE / HTTP/1.1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as sock, contextlib.suppress(OSError):
                sock.sendall(rude)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(4096):
                    continue
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("error", "is_shown"), [(ConnectionResetError(), False), (ZeroDivisionError(), True)])
def test_a_peer_that_goes_away_is_no_error_of_ours(
    issuer: SuiteIssuer, error: Exception, is_shown: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        raise error
    except type(error):
        issuer._running.handle_error(None, None)
    assert (type(error).__name__ in capfd.readouterr().err) is is_shown


def test_it_has_no_address_before_its_block() -> None:
    with pytest.raises(RuntimeError, match="no address"):
        _ = SuiteIssuer().base_url

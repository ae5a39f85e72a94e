"""`quenchz issuer` grants any token to anybody on this machine and survives every request; `quenchz mint` asks it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quenchz.cli import main
from quenchz.issuer import SuiteIssuer
from quenchz.reference import RESOURCE, SCOPES
from quenchz.tokens import TOKEN_LIFETIME, header_of, payload_of
from quenchz_spec.codec import encode
from quenchz_spec.vocabulary import Audience, AudienceForm, Claim, RawJson, Signature, TokenRecipe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORM = "application/x-www-form-urlencoded"
GRANT = [("grant_type", "client_credentials"), ("client_id", "broad")]


@pytest.fixture(scope="module")
def issuer() -> Iterator[SuiteIssuer]:
    with SuiteIssuer(grants=True) as running:
        yield running


def post(url: str, body: bytes, media_type: str = FORM, **headers: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    request = urllib.request.Request(url, body, {"Content-Type": media_type, **headers})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, json.load(answer), dict(answer.headers)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused), dict(refused.headers)


def granted(issuer: SuiteIssuer, *more: tuple[str, str], path: str = "/token") -> dict[str, Any]:
    status, document, headers = post(issuer.base_url + path, urllib.parse.urlencode([*GRANT, *more]).encode())
    assert (status, headers["Cache-Control"]) == (200, "no-store")
    return document


# --- POST /token ----------------------------------------------------------------------------------------------------


def test_a_granted_token_is_admitted_by_an_independent_library(issuer: SuiteIssuer) -> None:
    document = granted(issuer, ("scope", "rates:read rates:history"), ("resource", RESOURCE))
    token = document.pop("access_token")
    assert document == {"token_type": "Bearer", "expires_in": TOKEN_LIFETIME, "scope": "rates:read rates:history"}
    key = jwt.PyJWKClient(issuer.jwks_url).get_signing_key_from_jwt(token).key
    claims = jwt.decode(token, key, algorithms=["ES256"], audience=RESOURCE, issuer=issuer.base_url)
    assert (claims["sub"], claims["client_id"], claims["scope"]) == ("broad", "broad", "rates:read rates:history")
    assert claims["exp"] - claims["iat"] == TOKEN_LIFETIME
    assert header_of(token)["typ"] == "at+jwt"


@pytest.mark.parametrize(
    ("resources", "aud"),
    [
        ([], ...),
        (["https://a.example/mcp"], "https://a.example/mcp"),
        ([""], ""),
        (["HTTPS://A.example:443/%7e/../é\n"], "HTTPS://A.example:443/%7e/../é\n"),
        (["%us%"], "%us%"),
        (["https://a.example", "https://b.example"], ["https://a.example", "https://b.example"]),
        (["x", "x"], ["x", "x"]),
    ],
)
def test_every_resource_is_written_into_aud_byte_for_byte(issuer: SuiteIssuer, resources: list[str], aud: Any) -> None:
    document = granted(issuer, *(("resource", resource) for resource in resources))
    assert payload_of(document["access_token"]).get("aud", ...) == aud


def test_a_tenant_grants_in_its_own_name_where_its_metadata_says(issuer: SuiteIssuer) -> None:
    place = f"{issuer.base_url}/.well-known/oauth-authorization-server/run-3"
    with urllib.request.urlopen(place, timeout=5) as answer:
        metadata = json.load(answer)
    assert metadata["token_endpoint"] == f"{issuer.base_url}/run-3/token"
    assert metadata["grant_types_supported"] == ["client_credentials"]
    assert metadata["token_endpoint_auth_methods_supported"] == ["none"]
    assert payload_of(granted(issuer, path="/run-3/token")["access_token"])["iss"] == issuer.tenant(3)
    assert payload_of(granted(issuer)["access_token"])["iss"] == issuer.base_url


@pytest.mark.parametrize(
    ("body", "media_type", "error"),
    [
        (b"", FORM, "unsupported_grant_type"),
        (b"grant_type=authorization_code&client_id=broad", FORM, "unsupported_grant_type"),
        (b"grant_type=client_credentials", FORM, "invalid_request"),
        (b"grant_type=client_credentials&client_id=", FORM, "invalid_request"),
        (b"grant_type=client_credentials&client_id=a&client_id=b", FORM, "invalid_request"),
        (b"grant_type=client_credentials&client_id=a&scope=a&scope=b", FORM, "invalid_request"),
        (b"grant_type=client_credentials&client_id=a", "application/json", "invalid_request"),
        (b"grant_type=client_credentials&client_id=a", "", "invalid_request"),
        (b"grant_type=client_credentials&client_id=%ff", FORM, "invalid_request"),
        (b"\xff", FORM, "invalid_request"),
        (b"a&" * 500, FORM, "invalid_request"),
    ],
)
def test_a_grant_that_cannot_be_given_is_refused_as_rfc_6749_says(
    issuer: SuiteIssuer, body: bytes, media_type: str, error: str
) -> None:
    status, document, headers = post(f"{issuer.base_url}/token", body, media_type)
    assert (status, document["error"], headers["Cache-Control"]) == (400, error, "no-store")
    assert set(document) == {"error", "error_description"}


def test_a_long_body_is_refused_and_a_page_from_elsewhere_too(issuer: SuiteIssuer) -> None:
    form = urllib.parse.urlencode(GRANT).encode()
    assert post(f"{issuer.base_url}/token", form + b"&resource=" + b"a" * 70_000)[0] == 413
    status, document, _ = post(f"{issuer.base_url}/token", form, Host="rebound.example")
    assert (status, document["error"]) == (403, "invalid_request")
    assert post(f"{issuer.base_url}/token", form, Host="localhost:1")[0] == 200


# --- POST /mint -----------------------------------------------------------------------------------------------------


def mint(issuer: SuiteIssuer, asked: Any) -> tuple[int, dict[str, Any]]:
    return post(f"{issuer.base_url}/mint", json.dumps(asked).encode(), "application/json")[:2]


@pytest.mark.parametrize("signature", list(Signature))
def test_every_recipe_of_the_codec_is_minted(issuer: SuiteIssuer, signature: Signature) -> None:
    audience = Audience(AudienceForm.LITERAL, (), '["%us%", 0]')
    recipe = TokenRecipe(caller="broad", audience=audience, signature=signature, claims=(Claim("x", RawJson("1e0")),))
    asked = {"recipe": encode(recipe), "resource": "https://r", "scopes": ["a", "b"], "tenant": "run-3"}
    status, document = mint(issuer, asked)
    payload = payload_of(document["access_token"])
    assert (status, payload["aud"], payload["scope"], payload["x"]) == (200, ["https://r", 0], "a b", 1.0)
    assert (payload["iss"], payload["sub"]) == (issuer.tenant(3), "broad")


def test_a_recipe_by_hand_is_minted_and_a_stranger_too(issuer: SuiteIssuer) -> None:
    _, document = mint(issuer, {"recipe": {"caller": "a", "issuer": "stranger"}, "resource": "https://r"})
    assert payload_of(document["access_token"])["iss"] == "https://stranger.quenchz.invalid"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([], "resource is missing"),
        ({"resource": 7}, "resource is missing"),
        ({"resource": "r"}, "caller is None"),
        ({"resource": "r", "scope": "a"}, "'scope' is not recipe, resource, scopes or tenant"),
        ({"resource": "r", "scopes": "a"}, "scopes is no list"),
        ({"resource": "r", "scopes": [7]}, "scopes is no list"),
        ({"resource": "r", "recipe": {"caller": "a"}, "tenant": 7}, "tenant is no string"),
        ({"resource": "r", "recipe": {"caller": "a"}, "tenant": "a/b"}, "tenant has other characters"),
        ({"resource": "r", "recipe": {"caller": "a", "aud": {"raw": "\ud800"}}}, "cannot be written"),
        (
            {"resource": "//[", "recipe": encode(TokenRecipe(caller="a"))},
            "cannot be written",
        ),
        (
            {"resource": "r", "recipe": {"caller": "a", "claims": {"x": {"raw": "\ud800"}}}},
            "cannot be written",
        ),
    ],
)
def test_what_cannot_be_minted_is_refused_by_name(issuer: SuiteIssuer, asked: Any, said: str) -> None:
    status, document = mint(issuer, asked)
    assert (status, document["error"]) == (400, "invalid_request")
    assert said in document["error_description"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 60_000, b'{"a":' * 9_000, b"1" * 5_000])
def test_a_body_that_is_no_json_is_refused(issuer: SuiteIssuer, body: bytes) -> None:
    status, document, _ = post(f"{issuer.base_url}/mint", body, "application/json")
    assert (status, document["error"]) == (400, "invalid_request")


@settings(max_examples=100, deadline=None, database=None)
@given(
    head=st.sampled_from(["POST /token", "POST /mint", "POST /run-1/token", "POST /jwks.json", "PUT /mint", "\x00"]),
    length=st.sampled_from(["", "Content-Length: 4", "Content-Length: -1", "Content-Length: " + "9" * 5_000]),
    media_type=st.sampled_from([FORM, "application/json", "é", ""]),
    body=st.binary(max_size=40) | st.sampled_from([b"grant_type=client_credentials&client_id=%00", b'{"recipe":{}}']),
)
def test_no_request_makes_it_crash_or_fall_silent(
    issuer: SuiteIssuer, head: str, length: str, media_type: str, body: bytes
) -> None:
    shown: list[object] = []
    server = issuer._running
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "handle_error", lambda *_: shown.append(sys.exception()))
        lines = [f"{head} HTTP/1.1", length, f"Content-Type: {media_type}"]
        sent = "\r\n".join(filter(None, lines)).encode("latin-1") + b"\r\n\r\n" + body
        with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=5) as sock:
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            answered = b""
            while piece := sock.recv(4096):
                answered += piece
    assert b"HTTP/1.0 " in answered or head == "\x00"
    assert shown == []


# --- the programs ---------------------------------------------------------------------------------------------------


@contextmanager
def program(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "quenchz", "issuer", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        guard = threading.Timer(20, process.kill)
        guard.start()
        try:
            assert process.stdout is not None
            prefix, _, url = process.stdout.readline().strip().partition(": ")
            assert prefix == "quenchz issuer ready"
            yield process, url
        finally:
            process.terminate()
            process.wait(10)
            guard.cancel()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_program_says_where_it_is_and_what_it_does_and_ends_with_0(number: signal.Signals) -> None:
    with program("--port", "0") as (process, url):
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{url}/jwks.json", timeout=5) as answer:
            assert json.load(answer)["keys"]
        process.send_signal(number)
        assert process.wait(10) == 0
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == ""
        assert "mints any token for anybody on this machine" in process.stderr.read()


def test_a_port_that_cannot_be_had_exits_with_2(issuer: SuiteIssuer, capsys: pytest.CaptureFixture[str]) -> None:
    port = issuer.base_url.rpartition(":")[2]
    assert main(["issuer", "--port", port]) == 2
    assert main(["issuer", "--port", "70000"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(f"quenchz: --port {port}: Address already in use; ")
    assert said[1].startswith("quenchz: --port 70000: ports are 0 to 65535; ")


def minted(issuer: SuiteIssuer, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["mint", "--issuer", issuer.base_url, *options]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    token, nothing = printed.out.split("\n")
    assert nothing == ""
    return token


def test_mint_prints_the_token_of_a_recipe_and_nothing_else(
    issuer: SuiteIssuer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    payload = payload_of(minted(issuer, capsys, "--recipe", '{"caller": "broad"}'))
    assert (payload["sub"], payload["aud"], payload["scope"]) == ("broad", RESOURCE, " ".join(SCOPES))
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps({"caller": "me", "aud": ["%us%", "https://other.example/mcp"]}), encoding="utf-8")
    token = minted(issuer, capsys, "--recipe", str(path), "--resource", "https://r", "--scopes", "a  b")
    payload = payload_of(token)
    assert (payload["aud"], payload["scope"]) == (["https://r", "https://other.example/mcp"], "a b")
    coded = json.dumps(encode(TokenRecipe(caller="me", signature=Signature.NONE)))
    token = minted(issuer, capsys, "--recipe", coded)
    assert (header_of(token)["alg"], payload_of(token)["scope"]) == ("none", "")


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--recipe", '{"caller": 7}'], 2, "caller is 7"),
        (["--recipe", "{"], 2, "not JSON"),
        (["--recipe", "/no/such/recipe.json"], 2, "/no/such/recipe.json: No such file"),
        (["--recipe", '{"caller": "a"}', "--issuer", "127.0.0.1:1"], 2, "--issuer is '127.0.0.1:1'"),
        (["--recipe", '{"caller": "a"}', "--issuer", "http://127.0.0.1:1"], 3, "start `quenchz issuer`"),
    ],
)
def test_mint_says_on_one_line_what_is_wrong(
    options: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mint", *options]) == code
    printed = capsys.readouterr()
    assert (printed.out, len(printed.err.splitlines())) == ("", 1)
    assert said in printed.err


def test_the_help_of_mint_shows_recipes_that_are_recipes(
    issuer: SuiteIssuer, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["mint", "--help"])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip().startswith('{"caller"')]
    recipes = [line.split("  ", 1)[0] for line in lines]
    assert len({minted(issuer, capsys, "--recipe", recipe) for recipe in recipes}) == len(recipes) >= 8

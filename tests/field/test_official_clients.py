"""The official Python client finds its own way to a token, from the challenge to the call, on both wires.

Nothing tells it where the metadata, the authorization server or the token endpoint are, or which resource to ask for:
it has the URL, a client's credentials, and the issuer that these are for. The resource is the URL that it dials, which
it insists on (RFC 9728 §3.3).
"""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthFlowError, OAuthTokenError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client

from field.oidc_provider import environment
from field.oidc_provider.run import start
from field.oidc_provider.transcribe import OTHER, parts
from field.processes import kept_port, reference
from quenchz.issuer import SuiteIssuer

if TYPE_CHECKING:
    from collections.abc import Generator

    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

SECRET = secrets.token_urlsafe(16)
WINDOW = {"currency": "USD", "from": "2026-03-30", "to": "2026-04-10"}
MODES = {"2026-07-28": "2026-07-28", "legacy": "2025-11-25", "auto": "2026-07-28"}


@dataclass
class Memory:
    """The client's store of tokens."""

    tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError("the client is registered already")


@dataclass(frozen=True)
class Served:
    """A reference server whose resource is the URL that is dialled, and the authorization server that it trusts."""

    url: str
    issuer: str
    way: str


@dataclass
class Walk:
    """What a client did: each request with the status of its answer, the form that it posted, and what it got."""

    steps: list[tuple[str, int, bool]] = field(default_factory=list[tuple[str, int, bool]])
    form: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    token: str = ""
    wire: str = ""
    tools: list[str] = field(default_factory=list[str])
    observations: int = 0

    async def note(self, response: httpx2.Response) -> None:
        """Take down one answer."""
        request = response.request
        if request.headers.get("Content-Type") == "application/x-www-form-urlencoded":
            self.form = parse_qs(request.content.decode())
        bearer = request.headers.get("Authorization", "").startswith("Bearer ")
        self.steps.append((f"{request.method} {urlsplit(str(request.url)).path}", response.status_code, bearer))


async def walk(served: Served, mode: str, found: Walk) -> None:
    """Connect, list the tools and call one, as a user of the official client does."""
    memory = Memory()
    provider = ClientCredentialsOAuthProvider(
        server_url=served.url,
        storage=memory,
        client_id="broad",
        client_secret=SECRET,
        token_endpoint_auth_method="client_secret_basic" if served.way == "oidc-provider" else "client_secret_post",
        issuer=served.issuer,
    )
    async with (
        httpx2.AsyncClient(auth=provider, event_hooks={"response": [found.note]}) as http,
        Client(streamable_http_client(served.url, http_client=http), mode=mode) as client,
    ):
        found.wire = client.protocol_version
        found.tools = [tool.name for tool in (await client.list_tools()).tools]
        answer = await client.call_tool("exchange_rates", WINDOW)
        found.observations = len((answer.structured_content or {})["observations"])
        found.token = memory.tokens.access_token if memory.tokens is not None else ""


@contextlib.contextmanager
def authorization_server(way: str, resources: list[str]) -> Generator[str]:
    """Run the authorization server of a name and yield its issuer identifier."""
    if way == "oidc-provider":
        environment.ensure()
        with start(resources, {"broad": SECRET}) as issuer:
            yield issuer
    else:
        with SuiteIssuer(grants=True) as suite:
            yield suite.base_url


@pytest.fixture(scope="module", params=["oidc-provider", "quenchz issuer"])
def served(request: pytest.FixtureRequest) -> Generator[Served]:
    """Three parties on loopback: the client in this process, the two servers in their own."""
    with kept_port() as port:
        resource = f"http://127.0.0.1:{port}/mcp"
        options = ("--port", str(port), "--resource", resource, "--trust-issuer")
        with authorization_server(request.param, [resource]) as issuer, reference(*options, issuer) as url:
            assert url == resource
            yield Served(url, issuer, request.param)


@pytest.mark.parametrize("mode", MODES)
def test_the_official_python_client_goes_from_the_challenge_to_an_authorized_call(served: Served, mode: str) -> None:
    found = Walk()
    anyio.run(walk, served, mode, found)
    assert found.steps[:5] == [
        ("POST /mcp", 401, False),
        ("GET /.well-known/oauth-protected-resource/mcp", 200, False),
        ("GET /.well-known/oauth-authorization-server", 200, False),
        ("POST /token", 200, False),
        ("POST /mcp", 200, True),
    ]
    assert all(bearer and status < 300 for step, status, bearer in found.steps[5:] if step == "POST /mcp")
    assert found.form["grant_type"] == ["client_credentials"]
    assert found.form["resource"] == [served.url]
    header, payload = parts(found.token)
    assert (header["typ"], header["alg"]) == ("at+jwt", "ES256")
    assert (payload["iss"], payload["sub"], payload["aud"]) == (served.issuer, "broad", served.url)
    assert payload["scope"] == "rates:read"  # what the resource's metadata names, which the client asks for
    assert (found.wire, found.tools) == (MODES[mode], ["exchange_rates", "latest_rate"])
    assert found.observations == 8


def test_the_official_python_client_is_served_nothing_when_its_resource_is_not_registered() -> None:
    environment.ensure()
    found = Walk()
    with kept_port() as port, start([OTHER], {"broad": SECRET}) as issuer:
        resource = f"http://127.0.0.1:{port}/mcp"
        with (
            reference("--port", str(port), "--resource", resource, "--trust-issuer", issuer) as url,
            pytest.RaisesGroup(OAuthTokenError, flatten_subgroups=True, allow_unwrapped=True),
        ):
            anyio.run(walk, Served(url, issuer, "oidc-provider"), "2026-07-28", found)
    assert found.steps[-1] == ("POST /token", 400, False)
    assert found.tools == []


def test_the_official_python_client_refuses_a_resource_that_is_not_the_url_it_dials() -> None:
    """Which is why a server that real clients are to find is started with `--resource`, the URL that they dial."""
    found = Walk()
    with SuiteIssuer(grants=True) as suite, reference("--port", "0", "--trust-issuer", suite.base_url) as url:
        served = Served(url, suite.base_url, "quenchz issuer")
        with pytest.RaisesGroup(OAuthFlowError, flatten_subgroups=True, allow_unwrapped=True):
            anyio.run(walk, served, "2026-07-28", found)
    assert found.steps[-1] == ("GET /.well-known/oauth-protected-resource/mcp", 200, False)

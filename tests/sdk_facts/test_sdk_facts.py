"""Facts about the libraries underneath that our own gates are designed around; a release that changes one is seen here.

The reference server compares the audience itself, by string equality, and answers a denied tool like a nonexistent one,
because of what mcp 2.3's own bearer check and PyJWT do. The SDK is asked over its own Starlette app, by plain requests:
what a deployed server answers is the fact, not the code behind it. If one of these fails after an upgrade, read the
release notes, then decide whether the gate that leans on it is still right.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import AnyHttpUrl

if TYPE_CHECKING:
    from collections.abc import Mapping

RESOURCE = "https://rates.quenchz.invalid/mcp"
FOREIGN = "https://other.quenchz.invalid/mcp"
DISCOVER: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "server/discover",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}
HEADERS = {
    "Authorization": "Bearer opaque",
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "server/discover",
}


@dataclass(frozen=True)
class OneToken:
    """A token verifier (the SDK's protocol) that knows one token: issued for this resource, with these scopes."""

    resource: str | None
    scopes: tuple[str, ...] = ()

    async def verify_token(self, token: str) -> AccessToken | None:
        if token != "opaque":
            return None
        return AccessToken(token=token, client_id="narrow", scopes=list(self.scopes), resource=self.resource)


def answer_of(verifier: OneToken, settings: AuthSettings, headers: Mapping[str, str] = HEADERS) -> httpx2.Response:
    """Send one request to the SDK's own app, in process, and return its answer."""
    server: Server[Any] = Server("facts")
    app = server.streamable_http_app(json_response=True, auth=settings, token_verifier=verifier)

    async def ask() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client,
        ):
            return await client.post("/mcp", json=DISCOVER, headers=dict(headers))

    return anyio.run(ask)


def settings_with(*, validate: bool | None, scopes: list[str] | None = None) -> AuthSettings:
    """Say how the SDK is to check tokens."""
    return AuthSettings(
        issuer_url=AnyHttpUrl("https://issuer.quenchz.invalid"),
        resource_server_url=AnyHttpUrl(RESOURCE),
        validate_token_resource=validate,
        required_scopes=scopes,
    )


def assert_admitted(answer: httpx2.Response) -> None:
    """Admitted means served: discovery answered with a result, not merely some other error."""
    assert answer.status_code == 200, answer.text
    assert answer.json()["result"]["resultType"] == "complete"


def assert_refused(answer: httpx2.Response) -> None:
    """Refused means 401 with the code of a bad token."""
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith('Bearer error="invalid_token"')


def test_the_sdk_admits_a_foreign_resource_while_the_check_is_off() -> None:
    assert_admitted(answer_of(OneToken(FOREIGN), settings_with(validate=False)))


def test_the_sdk_check_is_off_by_default_and_warns_that_it_is() -> None:
    with pytest.warns(MCPDeprecationWarning, match="validate_token_resource"):
        settings = settings_with(validate=None)
    assert_admitted(answer_of(OneToken(FOREIGN), settings))


@pytest.mark.parametrize(
    "resource",
    [
        FOREIGN,
        None,
        "",
        RESOURCE + "/child",
        RESOURCE + "?a=b",
        RESOURCE + "#part",
        RESOURCE.replace("/mcp", "/MCP"),
        RESOURCE.replace("/mcp", "/%6Dcp"),
        RESOURCE.replace("https:", "http:"),
        RESOURCE.replace(".invalid", ".invalid:8443"),
    ],
)
def test_the_sdk_refuses_another_resource_while_the_check_is_on(resource: str | None) -> None:
    assert_refused(answer_of(OneToken(resource), settings_with(validate=True)))


@pytest.mark.parametrize(
    "resource",
    [
        pytest.param(RESOURCE, id="exact"),
        pytest.param(RESOURCE + "/", id="slash added"),
        pytest.param(RESOURCE.replace("rates", "RATES"), id="host in upper case"),
        pytest.param(RESOURCE.replace("https:", "HTTPS:"), id="scheme in upper case"),
        pytest.param(RESOURCE.replace(".invalid", ".invalid:443"), id="default port written out"),
    ],
)
def test_the_sdk_admits_other_spellings_of_the_resource_while_the_check_is_on(resource: str) -> None:
    assert_admitted(answer_of(OneToken(resource), settings_with(validate=True)))


def test_the_sdk_refuses_an_unknown_token_like_a_foreign_one() -> None:
    settings = settings_with(validate=True)
    unknown = answer_of(OneToken(RESOURCE), settings, {**HEADERS, "Authorization": "Bearer other"})
    foreign = answer_of(OneToken(FOREIGN), settings)
    assert_refused(unknown)
    assert (unknown.headers.raw, unknown.content) == (foreign.headers.raw, foreign.content)


def test_the_sdk_names_the_scope_that_was_missing_when_it_denies() -> None:
    settings = settings_with(validate=True, scopes=["rates:admin"])
    assert_admitted(answer_of(OneToken(RESOURCE, ("rates:admin",)), settings))
    denied = answer_of(OneToken(RESOURCE, ("rates:read",)), settings)
    assert denied.status_code == 403
    assert denied.json() == {"error": "insufficient_scope", "error_description": "Required scope: rates:admin"}
    challenge = denied.headers["www-authenticate"]
    assert challenge.startswith('Bearer error="insufficient_scope"')
    assert "rates:admin" in challenge


def test_pyjwt_admits_an_audience_list_that_contains_the_resource() -> None:
    key = ec.generate_private_key(ec.SECP256R1())

    def audience_read(aud: object) -> object:
        token = jwt.encode({"aud": aud, "exp": int(time.time()) + 60}, key, algorithm="ES256")
        return jwt.decode(token, key.public_key(), algorithms=["ES256"], audience=RESOURCE)["aud"]

    for aud in (RESOURCE, [RESOURCE], [RESOURCE, FOREIGN], [FOREIGN, RESOURCE]):
        assert audience_read(aud) == aud
    for aud in (FOREIGN, [FOREIGN], RESOURCE + "/"):
        with pytest.raises(jwt.InvalidAudienceError):
            audience_read(aud)

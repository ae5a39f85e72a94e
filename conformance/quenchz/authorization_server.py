"""Tokens of a real authorization server: the client credentials grant (RFC 6749 §4.4) with `resource` (RFC 8707).

Such a server mints what `resource` can express: our resource, another one, none, several. What it gives is not taken to
be what was asked for: its `aud` is read and compared, and a bad token that came out otherwise is no probe.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode, urlsplit

from quenchz.tokens import FOREVER, KeepingSource, header_of, other_audience, payload_of, seconds_good
from quenchz.web import Answer, NoAnswerError, is_bearer_token, is_confidential, request, shown
from quenchz_spec.outcomes import UntestableError
from quenchz_spec.shapes import items
from quenchz_spec.vocabulary import TokenRecipe, parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quenchz_spec.subject import Target

AUTH_METHODS = ("client_secret_basic", "client_secret_post")
_ELSEWHERE = "let the target trust the suite's issuer, or mint it with a command (tokens.source)"
_PARTS = {
    "signature": "another signature",
    "claims": "other claims",
    "without": "claims left out",
    "issuer": "another issuer",
    "header": "another header",
    "without_header": "header members left out",
    "shape": "another form",
    "generation": "another key of its issuer",
}
"""The parts of a recipe that no parameter of a token request can ask for, in words."""


@dataclass(frozen=True)
class Client:
    """A registered client: its id, and its secret, which is never written."""

    id: str
    secret: str = field(repr=False)

    @property
    def basic(self) -> str:
        """The credentials of HTTP Basic authentication, each part form-encoded first (RFC 6749 §2.3.1)."""
        pair = ":".join(quote_plus(part, errors="surrogatepass") for part in (self.id, self.secret))
        return base64.b64encode(pair.encode()).decode()

    @property
    def unsaid(self) -> list[str]:
        """What may stand in no text: the secret, however it was sent."""
        return [self.secret, quote_plus(self.secret, errors="surrogatepass"), self.basic]


@dataclass(frozen=True, kw_only=True)
class AuthorizationServer:
    """Where tokens are asked for: `token_endpoint`, or what the metadata of `issuer` names.

    `auth_method` is one of AUTH_METHODS, or empty for the first of them that the metadata offers.
    """

    issuer: str = ""
    token_endpoint: str = ""
    auth_method: str = ""
    ca_file: str | None = None

    def discovered(self) -> AuthorizationServer:
        """Return the server with its token endpoint (RFC 8414 §3, OpenID Connect Discovery 1.0 §4).

        Raises:
            UntestableError: there is no metadata of this issuer, or it names no usable token endpoint.
        """
        if self.token_endpoint:
            return self
        parts = urlsplit(self.issuer)
        path = parts.path.rstrip("/")
        origin = f"{parts.scheme}://{parts.netloc}"
        places = [f"{origin}/.well-known/oauth-authorization-server{path}"]
        places.append(f"{origin}{path}/.well-known/openid-configuration")
        said: list[str] = []
        for place in places:
            try:
                answer = request("GET", place, ca_file=self.ca_file)
            except NoAnswerError as error:
                raise UntestableError(
                    f"the metadata of tokens.issuer cannot be read: {error}", "correct it, or start the server"
                ) from None
            if answer.status == 200 and answer.document:
                return self._named_by(answer.document, place)
            said.append(f"{place} answers HTTP {answer.status}")
        raise UntestableError(f"tokens.issuer has no metadata: {', '.join(said)}", "give tokens.token_endpoint instead")

    def _named_by(self, metadata: Mapping[str, Any], place: str) -> AuthorizationServer:
        if metadata.get("issuer") != self.issuer:
            named = shown(json.dumps(metadata.get("issuer")))
            raise UntestableError(
                f"{place} is of issuer {named}, not of {self.issuer!r} (RFC 8414 §3.3)", "correct tokens.issuer"
            )
        endpoint = metadata.get("token_endpoint")
        if not isinstance(endpoint, str) or not is_confidential(endpoint):
            raise UntestableError(
                f"{place} names the token endpoint {shown(json.dumps(endpoint))}; it takes https to send a secret",
                "give tokens.token_endpoint",
            )
        offered = items(metadata.get("token_endpoint_auth_methods_supported")) or [AUTH_METHODS[0]]
        method = self.auth_method or next((known for known in AUTH_METHODS if known in offered), "")
        if not method:
            raise UntestableError(
                f"{place} offers the client authentication {shown(json.dumps(offered))}",
                f"have it offer {' or '.join(AUTH_METHODS)}",
            )
        return AuthorizationServer(token_endpoint=endpoint, auth_method=method, ca_file=self.ca_file)


class ClientCredentialsSource(KeepingSource):
    """Tokens that the clients of a real authorization server are granted, one client for each caller."""

    def __init__(self, server: AuthorizationServer, clients: Mapping[str, Client], target: Target) -> None:
        super().__init__()
        self._server = server
        self._clients = clients
        self._target = target
        self._given: dict[str, TokenRecipe] = {}

    def new(self, recipe: TokenRecipe, domain: int) -> tuple[str, float]:
        """Ask for a token, and make sure that a bad one is as bad as was asked, and bad in nothing else."""
        asked = self._resources(recipe)
        client = self._clients[recipe.caller]
        self._server = self._server.discovered()
        answer = self._answer(client, recipe.caller, asked)
        token = answer.document.get("access_token")
        if answer.status != 200 or not isinstance(token, str):
            raise self._refusal(answer, client, recipe, asked)
        kind = answer.document.get("token_type")
        if not is_bearer_token(token) or not isinstance(kind, str) or kind.lower() != "bearer":
            raise UntestableError(
                "the authorization server gave no bearer token (RFC 6750 §2.1)", "have it grant bearer tokens"
            )
        if not recipe.plainly_valid:
            problem = other_audience(recipe, token, self._target.resource, client.unsaid)
            besides = "" if problem else _other_besides(token, self.token(TokenRecipe(caller=recipe.caller), domain))
            if problem or besides:
                raise UntestableError(f"the authorization server {problem or besides}", _ELSEWHERE)
        if self._given.setdefault(token, recipe) != recipe:
            raise UntestableError(
                f"the authorization server gave {recipe.caller} the same token again",
                "have it make a new one each time",
            )
        lasts = answer.document.get("expires_in")
        if isinstance(lasts, (int, float)) and lasts > 0:
            return token, float(min(lasts, FOREVER))
        return token, seconds_good(token)

    def _resources(self, recipe: TokenRecipe) -> list[str]:
        """Return the `resource` parameters that ask for a recipe's audience."""
        plain = TokenRecipe(caller=recipe.caller, audience=recipe.audience, serial=recipe.serial)
        other = [part.name for part in fields(recipe) if getattr(recipe, part.name) != getattr(plain, part.name)]
        if other:
            beyond = " and ".join(_PARTS.get(name, f"another {name}") for name in other)
            raise UntestableError(f"an authorization server cannot be asked for a token with {beyond}", _ELSEWHERE)
        text = recipe.audience.json(self._target.resource)
        audience = [] if text is None else parse_json(text)
        listed = [audience] if isinstance(audience, str) else items(audience)
        if not (isinstance(audience, (str, list)) and all(isinstance(item, str) for item in listed)):
            raise UntestableError(f"a resource parameter cannot ask for the aud {text}", _ELSEWHERE)
        return listed

    def _answer(self, client: Client, caller: str, resources: list[str]) -> Answer:
        form = [("grant_type", "client_credentials")]
        scopes = self._target.caller(caller).scopes
        form += [("scope", " ".join(scopes))] if scopes else []
        form += [("resource", resource) for resource in resources]
        headers = [("Content-Type", "application/x-www-form-urlencoded")]
        if self._server.auth_method == "client_secret_post":
            form += [("client_id", client.id), ("client_secret", client.secret)]
        else:
            headers.append(("Authorization", f"Basic {client.basic}"))
        try:
            body = urlencode(form, errors="surrogatepass").encode()
            return request("POST", self._server.token_endpoint, headers, body, ca_file=self._server.ca_file)
        except NoAnswerError as error:
            raise UntestableError(
                f"the authorization server gives no token: {error}", "start it, or correct where it is"
            ) from None

    def _refusal(self, answer: Answer, client: Client, recipe: TokenRecipe, asked: list[str]) -> UntestableError:
        said = [answer.document.get(key) for key in ("error", "error_description")]  # RFC 6749 §5.2
        code, description = (shown(text, client.unsaid) if isinstance(text, str) else "" for text in said)
        named = code or f"HTTP {answer.status}"
        why = f" ({description})" if code and description else ""
        wanted = f"resource {', '.join(json.dumps(item) for item in asked)}" if asked else "no resource"
        fix = _ELSEWHERE
        if named in ("invalid_client", "unauthorized_client"):
            fix = f"correct callers.{recipe.caller}.client_id or the secret in its environment variable"
        elif recipe.plainly_valid:
            fix = f"have it grant {client.id} the client credentials grant for this resource and these scopes"
        elif named == "invalid_target":
            # Most servers grant what was registered with them, and few grant what is no URI (RFC 8707 §2).
            fix = f"register that resource there if it takes it, or {_ELSEWHERE}"
        return UntestableError(f"the authorization server refuses {recipe.caller} with {wanted}: {named}{why}", fix)


def _other_besides(token: str, good: str) -> str:
    """Return in words how a token differs from the good one besides its audience: it may be refused for that."""
    pairs = {
        **{key: (header_of(token).get(key), header_of(good).get(key)) for key in ("alg", "typ")},
        **{key: (payload_of(token).get(key), payload_of(good).get(key)) for key in ("iss", "sub", "scope", "scp")},
    }
    other = [key for key, (one, two) in pairs.items() if one != two]
    return f"changed {', '.join(other)} too, which may be why it is refused" if other else ""

"""What the suite's issuer grants over HTTP: any token that anybody on this machine asks for.

A real authorization server validates `resource` (RFC 8707 §2) and the client. This one is hostile on purpose: it
exists for servers under test that are told to trust it, and it binds to loopback only.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from quenchz.recipes import RecipeError, read_recipe
from quenchz.tokens import TOKEN_LIFETIME
from quenchz_spec.shapes import items, members
from quenchz_spec.vocabulary import Audience, AudienceForm, TokenRecipe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quenchz.mint import Mint

    Answer = tuple[int, dict[str, Any]]

_ONCE = ("grant_type", "client_id", "scope")


class GrantError(Exception):
    """A request that gets no token; `code` is an error code of RFC 6749 §5.2."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(description)
        self.code = code


class Grants:
    """Answers token requests. `mint_for` returns the mint for a resource, `issuer_of` a tenant's issuer identifier."""

    def __init__(self, mint_for: Callable[[str], Mint], issuer_of: Callable[[str], str | None]) -> None:
        self._mint_for = mint_for
        self._issuer_of = issuer_of

    def token(self, body: bytes, media_type: str, tenant: str) -> Answer:
        """Answer a client credentials request (RFC 6749 §4.4.2) with `resource` parameters (RFC 8707 §2).

        They are written into `aud` byte for byte: none as no member, one as a string, several as a list.
        """
        return _answered(lambda: self._token(_form(body, media_type), tenant))

    def mint(self, body: bytes) -> Answer:
        """Answer a request for the token of a recipe: `recipe`, `resource`, `scopes` and `tenant` in JSON."""
        return _answered(lambda: self._mint(body))

    def _token(self, form: Sequence[tuple[str, str]], tenant: str) -> dict[str, Any]:
        once = {name: [value for key, value in form if key == name] for name in _ONCE}
        repeated = [name for name, values in once.items() if len(values) > 1]
        if repeated:
            raise GrantError("invalid_request", f"{repeated[0]} is given more than once")
        if once["grant_type"] != ["client_credentials"]:
            raise GrantError("unsupported_grant_type", "grant_type is not client_credentials, the only one there is")
        if not any(once["client_id"]):
            raise GrantError("invalid_request", "client_id is missing; expected the name of a caller")
        resources = [value for key, value in form if key == "resource"]
        audience = Audience(AudienceForm.ABSENT, ())
        if resources:
            written = json.dumps(resources[0] if len(resources) == 1 else resources)
            audience = Audience(AudienceForm.LITERAL, (), written)
        recipe = TokenRecipe(caller=once["client_id"][0], audience=audience)
        # No resource to stand in for: what was asked is written as it stands, `%us%` included.
        token = self._minted(recipe, "%us%", once["scope"], tenant)
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": TOKEN_LIFETIME}
        return answer | ({"scope": once["scope"][0]} if once["scope"] else {})

    def _mint(self, body: bytes) -> dict[str, Any]:
        try:
            asked = members(json.loads(body))
        except (ValueError, RecursionError):
            raise GrantError("invalid_request", "the body is not JSON") from None
        unknown = sorted(set(asked) - {"recipe", "resource", "scopes", "tenant"})
        if unknown:
            raise GrantError("invalid_request", f"{unknown[0]!r} is not recipe, resource, scopes or tenant")
        resource, scopes, tenant = asked.get("resource"), asked.get("scopes", []), asked.get("tenant", "")
        if not isinstance(resource, str):
            raise GrantError("invalid_request", "resource is missing; expected a resource identifier, a string")
        if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in items(scopes)):
            raise GrantError("invalid_request", "scopes is no list of strings")
        if not isinstance(tenant, str):
            raise GrantError("invalid_request", "tenant is no string")
        try:
            recipe = read_recipe(asked.get("recipe"))
        except RecipeError as error:
            raise GrantError("invalid_request", str(error)) from None
        return {"access_token": self._minted(recipe, resource, items(scopes), tenant)}

    def _minted(self, recipe: TokenRecipe, resource: str, scopes: Sequence[str], tenant: str) -> str:
        issuer = self._issuer_of(tenant)
        if issuer is None:
            raise GrantError("invalid_request", "tenant has other characters than A-Z a-z 0-9 . _ -, or more than 64")
        try:
            return self._mint_for(resource).mint(recipe, subject=recipe.caller, scopes=scopes, issuer=issuer)
        except (ValueError, TypeError, RecursionError):
            reason = "it is not Unicode, its resource is no URI, or a value is out of place"
            raise GrantError("invalid_request", f"the token cannot be written: {reason}") from None


def _answered(grant: Callable[[], dict[str, Any]]) -> Answer:
    try:
        return 200, grant()
    except GrantError as error:
        return 400, {"error": error.code, "error_description": str(error)}


def _form(body: bytes, media_type: str) -> list[tuple[str, str]]:
    if media_type.partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise GrantError("invalid_request", "the body is not application/x-www-form-urlencoded (RFC 6749 §4.4.2)")
    try:
        return parse_qsl(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=200)
    except ValueError:
        raise GrantError("invalid_request", "the form cannot be read: not UTF-8, or more than 200 members") from None

"""Where tokens come from: the suite's own issuer, or a tokens file."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any, Protocol

from quenchz_spec.outcomes import UntestableError
from quenchz_spec.shapes import items, members
from quenchz_spec.vocabulary import OURS, SecondsFromNow, TokenRecipe

if TYPE_CHECKING:
    from pathlib import Path

    from quenchz.issuer import SuiteIssuer
    from quenchz.mint import Mint
    from quenchz_spec.subject import Target

TOKEN_LIFETIME = 3 * 3600
"""Seconds; longer than any run, so that no honest token expires in the middle of one."""


class TokenSource(Protocol):
    """Turns recipes into tokens."""

    def token(self, recipe: TokenRecipe, domain: int) -> str:
        """Return the token of a recipe in a budget domain.

        Raises:
            UntestableError: this source cannot mint the recipe.
        """
        ...


class SuiteSource:
    """Tokens of the suite's issuer: every recipe can be minted, and each budget domain is a tenant of its own."""

    def __init__(self, issuer: SuiteIssuer, mint: Mint, target: Target) -> None:
        self._issuer = issuer
        self._mint = mint
        self._target = target
        self._minted: dict[tuple[TokenRecipe, int], str] = {}

    def token(self, recipe: TokenRecipe, domain: int) -> str:
        """Return the token of a recipe, the same one for the same recipe and domain."""
        key = (recipe, domain)
        try:
            return self._minted[key]
        except KeyError:
            pass
        except TypeError:
            return self._new(recipe, domain)  # a claim holds a list or an object, which cannot be a key
        if len(self._minted) > 5000:
            self._minted.clear()
        self._minted[key] = self._new(recipe, domain)
        return self._minted[key]

    def _new(self, recipe: TokenRecipe, domain: int) -> str:
        caller = self._target.caller(recipe.caller)
        issuer = self._issuer.tenant(domain) if self._target.fresh_budgets else None
        return self._mint.mint(recipe, subject=caller.name, scopes=caller.scopes, issuer=issuer)


class TokensFileError(ValueError):
    """The tokens file cannot be used; the text names the file, the member, what it holds and the fix."""


class FileSource:
    """Tokens of a tokens file (spec/schemas/tokens-file.json): what the file does not hold cannot be minted."""

    def __init__(self, document: dict[str, Any], resource: str) -> None:
        self._callers: dict[str, list[str]] = {}
        for name, caller in document["callers"].items():
            self._callers[name] = [caller["token"], *caller.get("fresh_tokens", [])]
        self._resource = resource
        self._bad: list[tuple[str, dict[str, Any], str]] = []
        for bad in document.get("bad_tokens", {}).values():
            self._bad.append((bad["caller"], payload_of(bad["token"]), bad["token"]))

    def token(self, recipe: TokenRecipe, domain: int) -> str:  # noqa: ARG002 - a file has one budget domain
        """Return the token that the file holds for a recipe."""
        tokens = self._callers.get(recipe.caller)
        if tokens is None:
            raise UntestableError(f"the tokens file has no caller {recipe.caller!r}", "add it under callers")
        if recipe.plainly_valid:
            if recipe.serial < len(tokens):
                return tokens[recipe.serial]
            raise UntestableError(
                f"the tokens file holds {len(tokens)} tokens of {recipe.caller}, not {recipe.serial + 1}",
                "add fresh_tokens, or let the target trust the suite's issuer",
            )
        for caller, payload, token in self._bad:
            if caller == recipe.caller and self._fits(recipe, payload):
                return token
        raise UntestableError(
            "the tokens file does not hold this token", "let the target trust the suite's issuer (tokens.source)"
        )

    def _fits(self, recipe: TokenRecipe, payload: dict[str, Any]) -> bool:
        """Whether a payload is what the recipe describes: the same one change from a good token."""
        now = time.time()
        if TokenRecipe(caller=recipe.caller, audience=recipe.audience).fresh(recipe.serial) == recipe:
            written = recipe.audience.json(self._resource)
            expired = isinstance(payload.get("exp"), (int, float)) and payload["exp"] <= now
            if written is None:
                return "aud" not in payload and not expired
            return "aud" in payload and payload["aud"] == json.loads(written) and not expired
        if TokenRecipe(caller=recipe.caller, claims=recipe.claims) == recipe and recipe.audience == OURS:
            values = [claim.value for claim in recipe.claims if claim.name == "exp"]
            past = (
                len(recipe.claims) == 1 and values and isinstance(values[0], SecondsFromNow) and values[0].seconds < 0
            )
            return bool(past and payload.get("aud") == self._resource and payload.get("exp", now) < now)
        return False


def payload_of(token: str) -> dict[str, Any]:
    """Return the payload of a JWT without verifying it; an empty dict when it cannot be read."""
    parts = token.split(".")
    if len(parts) < 2:
        return {}
    try:
        payload = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return members(payload)


def read_tokens_file(path: Path) -> dict[str, Any]:
    """Read a tokens file.

    Raises:
        TokensFileError: it is missing, is no JSON, or lacks what every run needs.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TokensFileError(f"{path}: no such tokens file; `quenchz serve --tokens-file` writes one") from None
    except OSError as error:
        raise TokensFileError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise TokensFileError(
            f"{path}: not JSON ({type(error).__name__}); expected spec/schemas/tokens-file.json"
        ) from None
    found = members(document)
    if found.get("quenchz_tokens") != 1:
        raise TokensFileError(
            f"{path}: quenchz_tokens is {found.get('quenchz_tokens')!r}; expected 1, as in a tokens file"
        )
    if not isinstance(found.get("resource"), str):
        raise TokensFileError(
            f"{path}: resource is {found.get('resource')!r}; expected the resource identifier, a string"
        )
    if not isinstance(found.get("callers"), dict):
        raise TokensFileError(f"{path}: callers is missing; expected an object with the callers by name")
    for name, caller in members(found["callers"]).items():
        # The value is not shown: it could be a token in the wrong place.
        if not isinstance(members(caller).get("token"), str):
            raise TokensFileError(f"{path}: callers.{name}.token is missing or no string; expected a bearer token")
        fresh = members(caller).get("fresh_tokens", [])
        if not isinstance(fresh, list) or not all(isinstance(token, str) for token in items(fresh)):
            raise TokensFileError(f"{path}: callers.{name}.fresh_tokens is no list of strings; expected bearer tokens")
    bad_tokens = found.get("bad_tokens", {})
    if not isinstance(bad_tokens, dict):
        raise TokensFileError(f"{path}: bad_tokens is no object; expected bad tokens by name")
    for name, bad in members(bad_tokens).items():
        if not all(isinstance(members(bad).get(key), str) for key in ("caller", "token")):
            raise TokensFileError(f"{path}: bad_tokens.{name} lacks a caller or a token; expected both as strings")
    return found

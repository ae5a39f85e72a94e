"""Where tokens come from: the suite's own issuer, a tokens file, a command. See also `quenchz.authorization_server`."""

from __future__ import annotations

import base64
import json
import math
import secrets
import subprocess
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from quenchz.recipes import RecipeError, write_recipe
from quenchz.web import NoAnswerError, is_bearer_token, request, shown
from quenchz_spec.codec import encode
from quenchz_spec.outcomes import UntestableError
from quenchz_spec.shapes import items, members
from quenchz_spec.vocabulary import OURS, SecondsFromNow, Shape, TokenRecipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from quenchz.issuer import SuiteIssuer
    from quenchz.mint import Mint
    from quenchz_spec.subject import Target

TOKEN_LIFETIME = 3 * 3600
"""Seconds; longer than any run, so that no honest token of the suite's expires in the middle of one."""
COMMAND_SECONDS = 10.0
"""How long a command may take for one token."""
CANNOT_MINT = 3
"""The exit code with which a command says that it cannot mint a recipe."""
FOREVER = 10**11
"""A moment, or a span of seconds, beyond every run; larger integers of others cannot become floats."""
_KEPT = 5000  # tokens; more are asked for again


class TokenSource(Protocol):
    """Turns recipes into tokens."""

    def token(self, recipe: TokenRecipe, domain: int) -> str:
        """Return the token of a recipe in a budget domain.

        Raises:
            UntestableError: this source cannot mint the recipe.
        """
        ...

    def order(self, order: Mapping[str, Any], domain: int) -> dict[str, Any]:  # noqa: ARG002 - few can
        """Give the issuer of a budget domain's tokens an order (`quenchz.orders`), and return what it says.

        Raises:
            UntestableError: the issuer takes no orders.
        """
        raise UntestableError(
            "the issuer of the tokens takes no orders",
            "let the target trust tenants of the suite's issuer (tokens.source, tokens.tenants)",
        )


class KeepingSource(TokenSource, ABC):
    """A source that asks for each token once, and again when three quarters of its time are over."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, float]] = {}

    def token(self, recipe: TokenRecipe, domain: int) -> str:
        """Return the token of a recipe, the same one for the same recipe and domain while it is good.

        One with a moment of its own is new every time: to stand so far from now is what it is for.
        """
        if recipe.has_moments:
            return self.new(recipe, domain)[0]
        # As text, because a claim may hold a list, and because 1 and true are one key of a dict.
        key = f"{domain} {json.dumps(encode(recipe))}"
        token, until = self._kept.get(key, ("", 0.0))
        if until <= time.monotonic():
            token, lasts = self.new(recipe, domain)
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[key] = token, time.monotonic() + 0.75 * lasts
        return token

    @abstractmethod
    def new(self, recipe: TokenRecipe, domain: int) -> tuple[str, float]:
        """Return a new token of a recipe and how many seconds it is good for.

        Raises:
            UntestableError: this source cannot mint the recipe.
        """


def seconds_good(token: str) -> float:
    """Return how long a token is good for by its `exp`; infinity if that cannot be read or is over by intention."""
    expiry = payload_of(token).get("exp")
    if not isinstance(expiry, (int, float)):
        return math.inf
    left = min(expiry, FOREVER) - time.time()
    return left if left > 0 else math.inf


class SuiteSource(KeepingSource):
    """Tokens of the suite's issuer: every recipe can be minted, and each budget domain is a tenant of its own.

    The tenants of a run are those after `first`.
    """

    def __init__(self, issuer: SuiteIssuer, mint: Mint, target: Target, first: int = 0) -> None:
        super().__init__()
        self._issuer = issuer
        self._mint = mint
        self._target = target
        self._first = first

    def order(self, order: Mapping[str, Any], domain: int) -> dict[str, Any]:
        """Order in this process."""
        return self._issuer.order(_ordered_tenant(self._target, order, self._first + domain), order)

    def new(self, recipe: TokenRecipe, domain: int) -> tuple[str, float]:
        """Mint a token in this process."""
        caller = self._target.caller(recipe.caller)
        issuer = self._issuer.tenant(self._first + domain) if self._target.fresh_budgets else None
        formed = _formed(recipe, self._target)
        token = self._mint.mint(formed, subject=caller.name, scopes=caller.scopes, issuer=issuer)
        return token, seconds_good(token)


class IssuerSource(KeepingSource):
    """Tokens of a `quenchz issuer` that runs elsewhere: every recipe can be minted, as by `SuiteSource`."""

    def __init__(self, issuer: str, target: Target, first: int = 0) -> None:
        super().__init__()
        self._issuer = issuer
        self._target = target
        self._first = first

    def order(self, order: Mapping[str, Any], domain: int) -> dict[str, Any]:
        """Send the issuer an order."""
        tenant = _ordered_tenant(self._target, order, self._first + domain)
        status, document = _posted(self._issuer, "/order", {**order, "tenant": tenant})
        if status != 200:
            raise _unwilling(self._issuer, "takes no order", status, document)
        return document

    def new(self, recipe: TokenRecipe, domain: int) -> tuple[str, float]:
        """Ask the issuer for a token."""
        scopes = self._target.caller(recipe.caller).scopes
        tenant = tenant_name(self._first + domain) if self._target.fresh_budgets else ""
        formed = encode(_formed(recipe, self._target))
        token = minted_by(self._issuer, formed, self._target.resource, scopes, tenant)
        return token, seconds_good(token)


def tenant_name(number: int) -> str:
    """Return the last segment of a tenant's issuer identifier."""
    return f"run-{number}"


def _ordered_tenant(target: Target, order: Mapping[str, Any], number: int) -> str:
    """Return the tenant that an order is about; "" where there is one issuer, which others may share.

    Raises:
        UntestableError: there is no tenant, and the order is more than a question.
    """
    if order and not target.fresh_budgets:
        raise UntestableError(
            "the issuer's key set is not the judge's alone, so it is not changed",
            "let the target trust tenants of the suite's issuer (tokens.tenants)",
        )
    return tenant_name(number) if target.fresh_budgets else ""


def _formed(recipe: TokenRecipe, target: Target) -> TokenRecipe:
    """Return a recipe in the form that the tokens of a target have: opaque by the profile "introspection"."""
    is_opaque = "introspection" in target.profiles and recipe.shape is Shape.COMPACT
    return replace(recipe, shape=Shape.OPAQUE) if is_opaque else recipe


def first_tenant() -> int:
    """Return a number after which no tenant was used yet: an issuer may outlive a run, and a budget with it."""
    return secrets.randbelow(10**9) * 10**6


def minted_by(issuer: str, recipe: Any, resource: str, scopes: Sequence[str], tenant: str = "") -> str:
    """Return a token from a running `quenchz issuer`; `recipe` in either form that `read_recipe` reads.

    Raises:
        UntestableError: it cannot be reached, or does not mint the recipe.
    """
    asked = {"recipe": recipe, "resource": resource, "scopes": list(scopes), "tenant": tenant}
    status, document = _posted(issuer, "/mint", asked)
    token = document.get("access_token")
    if status != 200 or not isinstance(token, str):
        raise _unwilling(issuer, "gives no token", status, document)
    return token


def _posted(issuer: str, path: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    try:
        headers = [("Content-Type", "application/json")]
        answer = request("POST", issuer.rstrip("/") + path, headers, json.dumps(asked).encode())
    except NoAnswerError as error:
        raise UntestableError(f"the issuer does not answer: {error}", "start `quenchz issuer`") from None
    return answer.status, answer.document


def _unwilling(issuer: str, what: str, status: int, document: dict[str, Any]) -> UntestableError:
    said = shown(str(document.get("error_description", "")))
    return UntestableError(
        f"the issuer {issuer} {what}: HTTP {status} {said}".rstrip(),
        "make sure that a `quenchz issuer` of this release runs there",
    )


class CommandSource(KeepingSource):
    """Tokens that a program prints.

    For each recipe the program is started in `folder`, gets the recipe as one JSON object on standard input (in the
    form of `quenchz.recipes`, with the `resource` and the caller's `scopes` beside it) and prints a token within 10
    seconds. Exit code 3 says that it cannot mint the recipe; the first line of its standard error is the reason.
    """

    def __init__(self, command: Sequence[str], target: Target, folder: Path | None = None) -> None:
        super().__init__()
        self._command = list(command)
        self._target = target
        self._folder = folder
        self._given: dict[str, TokenRecipe] = {}

    def new(self, recipe: TokenRecipe, domain: int) -> tuple[str, float]:  # noqa: ARG002 - one budget domain
        """Run the command once."""
        token = self._printed(recipe)
        if not is_bearer_token(token):
            raise self._failed("printed no bearer token (RFC 6750 §2.1)" if token else "printed nothing")
        if recipe.audience != OURS and (problem := other_audience(recipe, token, self._target.resource)):
            raise self._failed(problem)
        if self._given.setdefault(token, recipe) != recipe:
            raise self._failed(f"gave {recipe.caller} the same token for two recipes")
        return token, seconds_good(token)

    def _printed(self, recipe: TokenRecipe) -> str:
        resource, scopes = self._target.resource, list(self._target.caller(recipe.caller).scopes)
        try:
            asked = write_recipe(recipe, resource) | {"resource": resource, "scopes": scopes}
        except RecipeError as error:
            raise UntestableError(f"tokens.command cannot be asked: {error}", _ELSEWHERE) from None
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command
                self._command,
                input=json.dumps(asked).encode(),
                capture_output=True,
                cwd=self._folder,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self._failed(f"printed no token within {COMMAND_SECONDS:g} s") from None
        except OSError as error:
            raise UntestableError(
                f"tokens.command cannot be started: {self._command[0]!r}: {error.strerror}", "correct it"
            ) from None
        token = done.stdout.decode("utf-8", "replace").strip()
        if done.returncode == CANNOT_MINT:
            why = shown(done.stderr.decode("utf-8", "replace"), [token, *self._given])
            raise UntestableError(f"tokens.command cannot mint this token: {why or 'no reason given'}", _ELSEWHERE)
        if done.returncode != 0:
            raise self._failed(f"ended with exit code {done.returncode}")
        return token

    def _failed(self, how: str) -> UntestableError:
        # What it printed is not shown: a program that fails may print its secrets.
        return UntestableError(f"tokens.command {how}", f"run {self._command[0]!r} by hand with a recipe on its input")


_ELSEWHERE = "let the target trust the suite's issuer (tokens.source)"


class TokensFileError(ValueError):
    """The tokens file cannot be used; the text names the file, the member, what it holds and the fix."""


class FileSource(TokenSource):
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
            return "aud" in payload and payload["aud"] == _value(written) and not expired
        if TokenRecipe(caller=recipe.caller, claims=recipe.claims) == recipe and recipe.audience == OURS:
            values = [claim.value for claim in recipe.claims if claim.name == "exp"]
            past = (
                len(recipe.claims) == 1 and values and isinstance(values[0], SecondsFromNow) and values[0].seconds < 0
            )
            return bool(past and payload.get("aud") == self._resource and payload.get("exp", now) < now)
        return False


def payload_of(token: str) -> dict[str, Any]:
    """Return the payload of a JWT without verifying it; an empty dict when it cannot be read."""
    return _segment(token, 1)


def header_of(token: str) -> dict[str, Any]:
    """Return the header of a JWT without verifying it; an empty dict when it cannot be read."""
    return _segment(token, 0)


def _segment(token: str, number: int) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) < 2:
        return {}
    text = parts[number]
    try:
        return members(json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))
    except (ValueError, RecursionError):
        return {}


def other_audience(recipe: TokenRecipe, token: str, resource: str, unsaid: Sequence[str] = ()) -> str:
    """Return in words what audience a token has instead of its recipe's; an empty string if it has the recipe's.

    What is in `unsaid` is blotted out.
    """
    payload = payload_of(token)
    if not payload:
        return "gave an opaque token: its aud cannot be read, so it may be another than was asked for"
    wanted = recipe.audience.json(resource)
    found = json.dumps(payload["aud"]) if "aud" in payload else None
    same = wanted is found is None if wanted is None or found is None else _same_json(wanted, found)
    return "" if same else f"wrote {_aud(found, unsaid)} instead of {_aud(wanted, ())}"


def _same_json(wanted: str, found: str) -> bool:
    try:
        return json.dumps(_value(wanted), sort_keys=True) == json.dumps(_value(found), sort_keys=True)
    except ValueError:
        return False


def _value(written: str) -> Any:
    """Return the value of an `aud` that is written so: the last, if the text goes on to write others."""
    return json.loads(f'{{"aud":{written}}}')["aud"]


def _aud(text: str | None, unsaid: Sequence[str]) -> str:
    return "no aud" if text is None else f"aud {shown(text, unsaid)}"


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

"""quenchz.toml (spec/schemas/target.json) and the tokens file, as descriptions of a target."""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from quenchz.authorization_server import AUTH_METHODS
from quenchz.tokens import read_tokens_file
from quenchz.web import is_confidential
from quenchz_spec.shapes import items, members
from quenchz_spec.subject import KINDS, Budget, CallerSpec, ObservationTool, Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")
_LIMITERS = ("reserve", "per-caller", "shared", "none")
_SOURCES = ("suite-issuer", "client-credentials", "tokens-file", "command")
_TOKENS = ("source", "file", "listen", "issuer", "tenants", "token_endpoint", "auth_method", "command")
_REQUIRED = object()


class TargetFileError(ValueError):
    """The target file cannot be used; the text names the file, the key, its value and the fix."""


@dataclass(frozen=True, kw_only=True)
class ClientSpec:
    """The client of a caller at an authorization server; `secret_env` names the variable that holds its secret."""

    caller: str
    id: str
    secret_env: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A target and how to reach it.

    `source` names where tokens come from, and the fields after it say what that source needs. `folder` is where the
    target file stands: `command` is started there.
    """

    url: str
    target: Target
    protocol: str = "auto"
    source: str = ""
    tokens_file: Path | None = None
    listen: str = ""
    issuer: str = ""
    token_endpoint: str = ""
    auth_method: str = ""
    clients: tuple[ClientSpec, ...] = ()
    command: tuple[str, ...] = ()
    folder: Path | None = None
    owner_authorized: bool = False


class _Table:
    """A table of the file that knows where it stands, so that an error can say so."""

    def __init__(self, data: Mapping[str, Any], where: str, known: Sequence[str]) -> None:
        self._data = data
        self._where = where
        unknown = sorted(set(data) - set(known))
        if unknown:
            raise TargetFileError(f"{self.path(unknown[0])} is not a key of this table; it has {', '.join(known)}")

    def path(self, key: str) -> str:
        """Return the place of a key in words."""
        return f"{self._where}{key}"

    def take(self, key: str, kind: type[T], default: object = _REQUIRED) -> T:
        """Return the value of a key, checked for its type."""
        value = self._data.get(key, default)
        if value is _REQUIRED:
            raise TargetFileError(f"{self.path(key)} is missing; expected {_word(kind)}")
        fits = isinstance(value, kind) and not (kind is not bool and isinstance(value, bool))
        if value is not default and not fits and not (kind is float and isinstance(value, int)):
            raise TargetFileError(f"{self.path(key)} is {value!r}; expected {_word(kind)}")
        return cast("T", float(value) if kind is float and isinstance(value, int) else value)

    def table(self, key: str) -> dict[str, Any]:
        """Return a table, empty by default."""
        return members(self.take(key, dict, {}))

    def entries(self, key: str) -> list[Any]:
        """Return a list, empty by default."""
        return items(self.take(key, list, []))

    def strings(self, key: str) -> tuple[str, ...]:
        """Return a list of strings, empty by default."""
        value = self.entries(key)
        if not all(isinstance(item, str) for item in value):
            raise TargetFileError(f"{self.path(key)} is {value!r}; expected a list of strings")
        return tuple(value)

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        """Return one of `choices`."""
        value = self.take(key, str, default)
        if value not in choices:
            raise TargetFileError(f"{self.path(key)} is {value!r}; expected one of {', '.join(choices)}")
        return value


def _word(kind: type) -> str:
    words = {str: "a string", int: "an integer", float: "a number", bool: "true or false", dict: "a table"}
    return words.get(kind, "a list")


def read_target_file(path: Path, url: str | None = None, tokens_file: Path | None = None) -> Configuration:
    """Read a target file; `url` and `tokens_file` from the command line stand in for the file's own.

    Raises:
        TargetFileError: the file is missing, is no TOML, or a key does not fit.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TargetFileError(f"{path}: no such target file; `quenchz init URL` writes a first one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TargetFileError(f"{path}: cannot be read ({error})") from None
    except tomllib.TOMLDecodeError as error:
        raise TargetFileError(f"{path}: not TOML: {error}") from None
    keys = (
        *("url", "protocol", "resource", "broad", "narrow", "owner_authorized", "tokens", "callers", "hidden"),
        *("budget", "observations", "calls", "mask", *_DECLARED),
    )
    top = _Table(data, f"{path}: ", keys)
    tokens = _Table(top.table("tokens"), f"{path}: tokens.", _TOKENS)
    source = tokens.choice("source", ("", *_SOURCES), "")
    named = tokens.take("file", str, "")
    if tokens_file is not None:
        source = "tokens-file"
    dialled = url or top.take("url", str)
    callers = _callers(top.table("callers"), path, _CLIENT)
    target = Target(
        resource=top.take("resource", str, dialled),
        callers=callers,
        broad=top.take("broad", str, callers[0].name if callers else ""),
        narrow=top.take("narrow", str, callers[1].name if len(callers) > 1 else ""),
        budget=_budget(top.table("budget"), callers, f"{path}: budget."),
        observations=tuple(
            _observation(entry, f"{path}: observations[{n}].") for n, entry in enumerate(top.entries("observations"))
        ),
        hidden=_hidden(top.table("hidden"), f"{path}: hidden."),
        may_call=_Table(top.table("calls"), f"{path}: calls.", ("allow", "challengeable")).strings("allow"),
        challengeable=_Table(top.table("calls"), f"{path}: calls.", ("allow", "challengeable")).strings(
            "challengeable"
        ),
        mask_headers=_Table(top.table("mask"), f"{path}: mask.", ("headers",)).strings("headers"),
        fresh_budgets=tokens.take("tenants", bool, False) and source == "suite-issuer",
        **_declared(top),
    )
    names = [caller.name for caller in callers]
    for key, name in (("broad", target.broad), ("narrow", target.narrow)):
        if name and name not in names:
            raise TargetFileError(f"{path}: {key} is {name!r}; expected one of the callers {', '.join(names)}")
    _check_source(source, tokens)
    return Configuration(
        url=checked_url(dialled, f"{path}: url"),
        target=target,
        protocol=top.choice("protocol", ("auto", "2026-07-28", "2025-11-25"), "auto"),
        source=source,
        tokens_file=tokens_file or (path.parent / named if named else None),
        listen=tokens.take("listen", str, ""),
        issuer=tokens.take("issuer", str, ""),
        token_endpoint=tokens.take("token_endpoint", str, ""),
        auth_method=tokens.choice("auth_method", ("", *AUTH_METHODS), ""),
        clients=_clients(top.table("callers"), path) if source == "client-credentials" else (),
        command=tokens.strings("command"),
        folder=path.parent,
        owner_authorized=top.take("owner_authorized", bool, False),
    )


_DECLARED = ("audience", "leeway_seconds", "profiles", "refetch_seconds", "patience_seconds", "withdrawal_seconds")
_PROFILES = ("rfc9068", "introspection")


def declarations(lines: Sequence[str]) -> dict[str, Any]:
    """Return the fields of `Target` that lines of a target file declare, such as `audience = "member"`.

    Raises:
        TargetFileError: they are no TOML, or are about something else than tokens and issuers.
    """
    try:
        data = tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError as error:
        raise TargetFileError(f"--declare: not TOML: {error}") from None
    given = {key.removesuffix("_seconds") for key in data}
    declared = _declared(_Table(data, "--declare: ", _DECLARED))
    return {field: value for field, value in declared.items() if field in given}


def _declared(top: _Table) -> dict[str, Any]:
    """Return what a target declares of its tokens and issuers, as fields of `Target`."""
    profiles = top.strings("profiles")
    if unknown := [name for name in profiles if name not in _PROFILES]:
        raise TargetFileError(f"{top.path('profiles')} has {unknown[0]!r}; expected some of {', '.join(_PROFILES)}")
    times = ("leeway", "refetch", "patience", "withdrawal")
    seconds: dict[str, float | None] = {name: top.take(f"{name}_seconds", float, None) for name in times}
    for name, value in seconds.items():
        if value is not None and not 0 <= value < math.inf:
            raise TargetFileError(f"{top.path(f'{name}_seconds')} is {value}; expected 0 or more, and finite")
    return {"audience": top.choice("audience", ("exact", "member"), "exact"), "profiles": profiles, **seconds}


def checked_url(url: str, where: str) -> str:
    """Return `url` if it can be dialled.

    Raises:
        TargetFileError: it is not an http or https URL with a host.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise TargetFileError(f"{where} is {url!r}; expected http://host[:port]/path or https://…")
    return url


def _check_source(source: str, tokens: _Table) -> None:
    """Make sure that what a token source needs is there, and that no secret would travel in the clear."""
    one_of = {"suite-issuer": ("listen", "issuer"), "client-credentials": ("issuer", "token_endpoint")}.get(source, ())
    given = [key for key in one_of if tokens.take(key, str, "")]
    if one_of and len(given) != 1:
        both = f"{tokens.path(one_of[0])} and {tokens.path(one_of[1])} are both"
        raise TargetFileError(f"{both if given else both.replace('both', 'neither')} given; {source} takes one of them")
    for key in given:
        url = tokens.take(key, str)
        if key != "listen" and not is_confidential(url):
            raise TargetFileError(f"{tokens.path(key)} is {url!r}; expected an https URL, or http on this machine")
    command = tokens.strings("command")
    if source == "command" and not (command and command[0]):
        raise TargetFileError(f'{tokens.path("command")} is missing; expected a program, as in ["python3", "mint.py"]')


_CLIENT = ("client_id", "client_secret_env")


def _clients(data: Mapping[str, Any], path: Path) -> tuple[ClientSpec, ...]:
    found: list[ClientSpec] = []
    for name, entry in data.items():
        identifier, variable = (members(entry).get(key) for key in _CLIENT)
        if not isinstance(identifier, str) or not identifier:
            raise TargetFileError(f"{path}: callers.{name}.client_id is {identifier!r}; expected the id of a client")
        if not isinstance(variable, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            raise TargetFileError(
                f"{path}: callers.{name}.client_secret_env is not the name of an environment variable; expected the "
                "name of the one that holds the secret, never the secret itself"
            )
        found.append(ClientSpec(caller=name, id=identifier, secret_env=variable))
    return tuple(found)


def _callers(data: Mapping[str, Any], path: Path, more: Sequence[str] = ()) -> tuple[CallerSpec, ...]:
    found: list[CallerSpec] = []
    for name, entry in data.items():
        if not isinstance(entry, dict):
            raise TargetFileError(f"{path}: callers.{name} is {entry!r}; expected a table")
        table = _Table(members(entry), f"{path}: callers.{name}.", ("scopes", "reserve", *more))
        reserve = table.take("reserve", int, 0)
        if reserve < 0:
            raise TargetFileError(f"{path}: callers.{name}.reserve is {reserve}; expected 0 units or more")
        found.append(CallerSpec(name=name, scopes=table.strings("scopes"), reserve=reserve or None))
    return tuple(found)


def _budget(data: Mapping[str, Any], callers: Sequence[CallerSpec], where: str) -> Budget | None:
    if not data:
        return None
    keys = ("limiter", "budget", "window_seconds", "free_methods", "refusal_status", "exclusive")
    table = _Table(data, where, keys)
    limiter = table.choice("limiter", _LIMITERS, "reserve")
    if limiter == "none":
        return None
    budget, window = table.take("budget", int), table.take("window_seconds", float)
    reserved = sum(caller.reserve or 0 for caller in callers)
    if reserved > budget:
        raise TargetFileError(f"{where}budget is {budget}; the callers' reserves add up to {reserved}")
    if not 0 < window < math.inf or budget < 1:
        raise TargetFileError(
            f"{where}budget is {budget} and {where}window_seconds is {window}; both must be positive and finite"
        )
    return Budget(
        limiter=limiter,
        budget=budget,
        window=window,
        pool=budget - reserved,
        free=table.strings("free_methods") or DEFAULT_FREE,
        refusal_status=table.take("refusal_status", int, 429),
        exclusive=table.take("exclusive", bool, True),
    )


DEFAULT_FREE = (
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "notifications/*",
)


def _observation(data: Any, where: str) -> ObservationTool:
    if not isinstance(data, dict):
        raise TargetFileError(f"{where.rstrip('.')} is {data!r}; expected a table")
    keys = ("tool", "arguments", "from", "to", "observations", "certificate", "gap_causes", "open_causes")
    table = _Table(members(data), where, keys)
    return ObservationTool(
        tool=table.take("tool", str),
        arguments=table.table("arguments"),
        since=table.take("from", str, "from"),
        until=table.take("to", str, "to"),
        observations=table.take("observations", str, "/observations"),
        certificate=table.take("certificate", str, "/coverage"),
        gap_causes=table.strings("gap_causes"),
        open_causes=table.strings("open_causes"),
    )


def _hidden(data: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    table = _Table(data, where, KINDS)
    return tuple((kind, name) for kind in KINDS for name in table.strings(kind))


def from_tokens_file(document: dict[str, Any], url: str, path: Path) -> Configuration:
    """Return the configuration that a tokens file describes.

    Raises:
        TargetFileError: a member does not fit.
    """
    top = _Table(document, f"{path}: ", tuple(document))
    described = {
        name: {key: value for key, value in members(caller).items() if key in ("scopes", "reserve")}
        for name, caller in document["callers"].items()
    }
    callers = _callers(described, path)
    by_scopes = sorted(callers, key=lambda caller: len(caller.scopes))
    budget = top.table("budget")
    known = ("limiter", "budget", "window_seconds", "free_methods", "refusal_status", "exclusive")
    shown = {key: budget[key] for key in known if key in budget}
    target = Target(
        resource=document["resource"],
        callers=callers,
        broad=by_scopes[-1].name if by_scopes else "",
        narrow=by_scopes[0].name if len(by_scopes) > 1 else "",
        budget=_budget(shown, callers, f"{path}: budget."),
        observations=tuple(
            _observation(entry, f"{path}: observations[{n}].") for n, entry in enumerate(top.entries("observations"))
        ),
        hidden=_hidden(top.table("hidden"), f"{path}: hidden."),
        may_call=top.strings("may_call"),
    )
    return Configuration(url=checked_url(url, "URL"), target=target, source="tokens-file", tokens_file=path)


def configured(url: str | None, target_file: Path | None, tokens_file: Path | None) -> Configuration:
    """Return the configuration that a command line names.

    Raises:
        TargetFileError: no target is named, or a file does not fit.
        TokensFileError: the tokens file cannot be read.
    """
    if target_file is not None:
        return read_target_file(target_file, url, tokens_file)
    if tokens_file is not None:
        document = read_tokens_file(tokens_file)
        dialled = url or document.get("url")
        if not isinstance(dialled, str):
            raise TargetFileError("give the URL of the server: the tokens file names none")
        return from_tokens_file(document, dialled, tokens_file)
    if url is None:
        raise TargetFileError("give a URL, --target FILE, or --reference")
    return Configuration(url=checked_url(url, "URL"), target=Target(resource=url))

"""Counterfeits of the invariant denials."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp_types import INVALID_PARAMS, Prompt, Resource, ResourceTemplate, Tool
from starlette.responses import JSONResponse

from counterfeits import counterfeit
from counterfeits.asgi import asked, heading, presented
from quenchz_reference.scopes import ADMIN, READ, Access, D, Entry
from quenchz_reference.service import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from quenchz_reference.caller import Caller
    from quenchz_reference.parts import Parts
    from quenchz_reference.scopes import Catalogue
    from quenchz_reference.service import RatesService

NO_RESOURCE = -32002
"""The code that MCP had for an unknown resource before 2026-07-28."""


# --- what is granted, and in which words it is denied ---------------------------------------------------------------


def substituting(parts: Parts, substitute: Callable[[Access, Caller, Entry[Any]], Entry[Any]]) -> Parts:
    """Where an entry is hidden from the caller, go on with a substitute of it; the substitute may raise instead."""

    class Fake(Access):
        def granted(self, caller: Caller, table: Mapping[str, Entry[D]], name: str) -> Entry[D]:
            entry = table.get(name)
            if entry is not None and not self.may(caller, entry):
                return substitute(self, caller, entry)
            return super().granted(caller, table, name)

    return replace(parts, access=Fake())


def granting(parts: Parts, *kinds: type) -> Parts:
    """Grant everything of some kinds to whoever knows its name."""

    def substitute(access: Access, caller: Caller, entry: Entry[Any]) -> Entry[Any]:
        if isinstance(entry.definition, kinds):
            return entry
        return access.deny(caller, "", "hidden")

    return substituting(parts, substitute)


def telling(parts: Parts, applies: Callable[[Entry[Any]], bool], message: str, code: int = INVALID_PARAMS) -> Parts:
    """Deny the hidden entries that `applies` holds for by an error of their own."""

    def substitute(access: Access, caller: Caller, entry: Entry[Any]) -> Entry[Any]:
        if applies(entry):
            raise MCPError(code, message.format(entry=entry))
        return access.deny(caller, "", "hidden")

    return substituting(parts, substitute)


@counterfeit("QZ-DEN-1", "QZ-DEN-2", "QZ-DEN-3", row="1, none")
def filters_only_listings(parts: Parts) -> Parts:
    """What is hidden is on no listing, and can be used by its name."""
    return granting(parts, Tool, Prompt, Resource, ResourceTemplate)


@counterfeit("QZ-DEN-2", "QZ-DEN-3", row="1, none")
def guards_only_tools(parts: Parts) -> Parts:
    """Grants are looked up for tools; prompts and resources can be used by their name."""
    return granting(parts, Prompt, Resource, ResourceTemplate)


@counterfeit("QZ-DEN-3", row="resource_templates, 1, none")
def reads_every_template(parts: Parts) -> Parts:
    """The URIs of a hidden template can be read."""
    return granting(parts, ResourceTemplate)


@counterfeit("QZ-DEN-1", "QZ-DEN-2", row="1, none")
def names_the_scope(parts: Parts) -> Parts:
    """Who calls a hidden tool or prompt is told the scope that it needs."""
    return telling(parts, lambda entry: isinstance(entry.definition, Tool | Prompt), "Needs {entry.scope}")


@counterfeit("QZ-DEN-1", "QZ-DEN-3", row="2, none")
def tells_administrators_apart(parts: Parts) -> Parts:
    """What needs the administrator's scope is denied in words of its own."""
    return telling(parts, lambda entry: entry.scope == ADMIN, "Administrators only")


@counterfeit("QZ-DEN-2", row="1, none")
def writes_one_blank_more(parts: Parts) -> Parts:
    """The message about a hidden prompt ends with a blank."""
    return telling(parts, lambda entry: isinstance(entry.definition, Prompt), "Unknown name ")


@counterfeit("QZ-DEN-3", row="resources, 1, none")
def has_an_older_code_for_resources(parts: Parts) -> Parts:
    """A hidden resource is denied with the older code for an unknown one."""
    return telling(parts, lambda entry: isinstance(entry.definition, Resource), "Unknown name", NO_RESOURCE)


def checking_arguments(parts: Parts, check: Callable[[Tool, Mapping[str, Any]], None]) -> Parts:
    """Give the arguments of a hidden tool to `check`, which may raise, before the call is denied."""

    def substitute(access: Access, caller: Caller, entry: Entry[Any]) -> Entry[Any]:
        async def perform(service: RatesService, arguments: Mapping[str, Any]) -> None:
            check(entry.definition, arguments)
            access.deny(caller, "", "hidden")

        if isinstance(entry.definition, Tool):
            return replace(entry, perform=perform)
        return access.deny(caller, "", "hidden")

    return substituting(parts, substitute)


@counterfeit("QZ-DEN-1", row="1, wrong_type")
def validates_before_it_denies(parts: Parts) -> Parts:
    """The types of the arguments are looked at before the grant."""

    def check(_: Tool, arguments: Mapping[str, Any]) -> None:
        if not all(isinstance(value, str) for value in arguments.values()):
            raise InvalidInputError("an argument is not text")

    return checking_arguments(parts, check)


@counterfeit("QZ-DEN-1", row="1, valid")
def explains_itself_to_a_proper_call(parts: Parts) -> Parts:
    """A call that has all it needs but the grant is told so."""

    def check(tool: Tool, arguments: Mapping[str, Any]) -> None:
        if set(tool.input_schema["required"]) == set(arguments):
            raise MCPError(INVALID_PARAMS, "Insufficient scope")

    return checking_arguments(parts, check)


@counterfeit("QZ-DEN-1", "QZ-DEN-2", "QZ-DEN-3", row="1, after use")
def grants_what_was_listed_last(parts: Parts) -> Parts:
    """The last listing is kept for the process and not for the caller, and what is on it is granted."""

    class Fake(Access):
        shown: frozenset[str] = frozenset()

        def listing(self, caller: Caller, table: Mapping[str, Entry[D]]) -> list[D]:
            self.shown = frozenset(name for name, entry in table.items() if self.may(caller, entry))
            return super().listing(caller, table)

        def granted(self, caller: Caller, table: Mapping[str, Entry[D]], name: str) -> Entry[D]:
            return table[name] if name in self.shown & table.keys() else super().granted(caller, table, name)

    return replace(parts, access=Fake())


def marking(app: ASGIApp, applies: Callable[[dict[str, Any]], bool], mark: Callable[[Message], None]) -> ASGIApp:
    """Mark the head of the answers to the narrow caller's messages that `applies` holds for."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        message, receive = await asked(scope, receive)
        found = presented(scope) if scope["type"] == "http" else None
        hidden = found is not None and found[1].get("scope") == READ and applies(message)
        await (heading(app, lambda _, start: mark(start)) if hidden else app)(scope, receive, send)

    return wrapped


@counterfeit("QZ-DEN-1", row="1, none", wraps=True)
def forbids_by_status(app: ASGIApp) -> ASGIApp:
    """The call of a hidden tool is answered 403, as MCP would have it."""

    def mark(start: Message) -> None:
        start["status"] = 403

    hidden = ("full_history", "refresh_cache")
    return marking(app, lambda message: message.get("params", {}).get("name") in hidden, mark)


@counterfeit("QZ-DEN-1", "QZ-DEN-3", row="1, none", wraps=True)
def names_the_scope_in_a_header(app: ASGIApp) -> ASGIApp:
    """Calls and reads of what is hidden are answered with the scope that would do, in a header."""

    def mark(start: Message) -> None:
        start["headers"] = [*start["headers"], (b"x-accepted-oauth-scopes", b"rates:history, rates:admin")]

    def applies(message: dict[str, Any]) -> bool:
        params = message.get("params", {})
        return params.get("name") == "full_history" or "/history/" in params.get("uri", "")

    return marking(app, applies, mark)


# --- what is listed -------------------------------------------------------------------------------------------------


def listing_all(parts: Parts, kind: type) -> Parts:
    """List everything of one kind to everybody."""

    class Fake(Access):
        def listing(self, caller: Caller, table: Mapping[str, Entry[D]]) -> list[D]:
            everything = [entry.definition for entry in table.values()]
            return everything if isinstance(everything[0], kind) else super().listing(caller, table)

    return replace(parts, access=Fake())


@counterfeit("QZ-DEN-4", "QZ-DEN-5", row="prompts")
def lists_every_prompt(parts: Parts) -> Parts:
    """Prompts are listed to everybody, and granted to whom they are."""
    return listing_all(parts, Prompt)


@counterfeit("QZ-DEN-4", "QZ-DEN-5", row="resources")
def lists_every_resource(parts: Parts) -> Parts:
    """Resources are listed to everybody, and granted to whom they are."""
    return listing_all(parts, Resource)


@counterfeit("QZ-DEN-4", "QZ-DEN-5", row="resource_templates")
def lists_every_template(parts: Parts) -> Parts:
    """Templates are listed to everybody, and granted to whom they are."""
    return listing_all(parts, ResourceTemplate)


@counterfeit("QZ-DEN-4", "QZ-DEN-5", row="tools")
def keeps_one_listing_for_all(parts: Parts) -> Parts:
    """A listing is kept without the caller in its key."""
    kept: dict[int, list[Any]] = {}

    class Fake(Access):
        def listing(self, caller: Caller, table: Mapping[str, Entry[D]]) -> list[D]:
            return kept.setdefault(id(table), super().listing(caller, table))

    return replace(parts, access=Fake())


# --- what is named --------------------------------------------------------------------------------------------------


@counterfeit("QZ-DEN-5", row="denials")
def refers_to_a_hidden_resource(parts: Parts) -> Parts:
    """The denial of a tool or prompt, existing or not, refers to a resource that is hidden as well."""

    class Fake(Access):
        def deny(self, caller: Caller, name: str, reason: str) -> Any:
            raise MCPError(INVALID_PARAMS, "Unknown name" if "://" in name else "Unknown; see rates://cache/state")

    return replace(parts, access=Fake())


@counterfeit("QZ-DEN-1", "QZ-DEN-2", "QZ-DEN-3", "QZ-DEN-5", row="1, none")
def lists_the_names_to_who_mistypes(parts: Parts) -> Parts:
    """A name that does not exist is answered with those that do, a hidden one is not."""

    class Fake(Access):
        def deny(self, caller: Caller, name: str, reason: str) -> Any:
            if reason == "unknown":
                raise MCPError(INVALID_PARAMS, f"Unknown name, not one of {', '.join(parts.catalogue.tools)}")
            super().deny(caller, name, reason)

    return replace(parts, access=Fake())


@counterfeit("QZ-DEN-5", row="listings")
def refers_to_a_hidden_tool(parts: Parts) -> Parts:
    """The description of a granted tool refers to a hidden one."""
    catalogue: Catalogue = parts.catalogue
    entry = catalogue.tools["latest_rate"]
    tool = entry.definition.model_copy(update={"description": "The last rate; for all of them use full_history."})
    tools = {**catalogue.tools, "latest_rate": replace(entry, definition=tool)}
    return replace(parts, catalogue=replace(catalogue, tools=tools))


def rewriting(app: ASGIApp, old: bytes, new: bytes) -> ASGIApp:
    """Write `new` for `old` in the body of every answer to a POST."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        held: list[Message] = []

        async def sending(message: Message) -> None:
            held.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                body = b"".join(part.get("body", b"") for part in held[1:]).replace(old, new)
                headers = [(key, value) for key, value in held[0]["headers"] if key != b"content-length"]
                await send({**held[0], "headers": [*headers, (b"content-length", b"%d" % len(body))]})
                await send({"type": "http.response.body", "body": body})

        is_post = scope["type"] == "http" and scope["method"] == "POST"
        await app(scope, receive, sending if is_post else send)

    return wrapped


@counterfeit("QZ-DEN-5", row="discovery", wraps=True)
def instructs_about_everything(app: ASGIApp) -> ASGIApp:
    """The instructions, the same for everybody, explain a hidden tool."""
    return rewriting(app, b"not for trading.", b"not for trading. All of them: full_history.")


@counterfeit("QZ-DEN-5", row="errors", wraps=True)
def takes_names_for_cursors(app: ASGIApp) -> ASGIApp:
    """The error about a cursor says which there are, and a cursor is the name of a tool."""
    return rewriting(app, b"Unknown cursor", b"Unknown cursor, not one of latest_rate, full_history")


@counterfeit("QZ-DEN-5", row="refusals", wraps=True)
def publishes_a_scope_for_each_tool(app: ASGIApp) -> ASGIApp:
    """Every tool has a scope of its own, and the metadata lists them."""
    scopes = ["latest_rate", "full_history", "refresh_cache"]
    document = JSONResponse({"resource": "https://rates.quenchz.invalid/mcp", "scopes_supported": scopes})

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        is_metadata = scope["type"] == "http" and scope["path"].startswith("/.well-known/")
        await (document if is_metadata else app)(scope, receive, send)

    return wrapped


# --- who may keep it ------------------------------------------------------------------------------------------------


def cached_by_proxies(app: ASGIApp, *methods: str) -> ASGIApp:
    """Answer some methods with an HTTP header that lets every proxy keep the answer for everybody."""

    def mark(start: Message) -> None:
        others = [(key, value) for key, value in start["headers"] if key != b"cache-control"]
        start["headers"] = [*others, (b"cache-control", b"public, max-age=60")]

    return marking(app, lambda message: message.get("method") in methods, mark)


@counterfeit("QZ-DEN-6", row="tools", wraps=True)
def calls_tools_public(app: ASGIApp) -> ASGIApp:
    """Listings are public as MCP has it, and that of tools as HTTP has it."""
    return rewriting(cached_by_proxies(app, "tools/list"), b'"private"', b'"public"')


@counterfeit("QZ-DEN-6", row="resources", wraps=True)
def lets_proxies_keep_resource_listings(app: ASGIApp) -> ASGIApp:
    """The listing of resources is private as MCP has it, and public as HTTP has it."""
    return cached_by_proxies(app, "resources/list")


@counterfeit("QZ-DEN-1", row="2, valid", wire="2026-07-28")
def schema_lookup_ignores_caller(parts: Parts) -> Parts:
    """Headers that mirror arguments are checked against the schema of any tool, before anybody asks who calls."""

    class Mirrored(Access):
        def input_schema(self, caller: Caller, table: Mapping[str, Entry[Tool]], name: str) -> Mapping[str, Any] | None:
            entry = table.get(name)
            return None if entry is None else entry.definition.input_schema

    hidden = parts.catalogue.tools["refresh_cache"]
    reason = {"type": "string", "x-mcp-header": "Reason"}
    schema = {**hidden.definition.input_schema, "properties": {"reason": reason}}
    definition = hidden.definition.model_copy(update={"input_schema": schema})
    tools = {**parts.catalogue.tools, "refresh_cache": replace(hidden, definition=definition)}
    return replace(parts, access=Mirrored(), catalogue=replace(parts.catalogue, tools=tools))

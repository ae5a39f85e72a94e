"""Gate 3: what a caller is not granted and what does not exist are one thing, and leave by one line of code.

Listing and dispatch ask the same question (`Access.may`), and every lookup by name goes through `Access.granted`. Its
refusal is a constant that repeats nothing of what was asked.
"""

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NoReturn, TypeVar

from mcp import MCPError
from mcp_types import INVALID_PARAMS, Prompt, Resource, ResourceTemplate, Tool

from quenchz_reference.caller import Caller
from quenchz_reference.service import RatesService

logger = logging.getLogger(__name__)

READ = "rates:read"
HISTORY = "rates:history"
ADMIN = "rates:admin"

D = TypeVar("D", Tool, Prompt, Resource, ResourceTemplate)

Perform = Callable[[RatesService, Mapping[str, Any]], Awaitable[Any]]
"""What an entry does, given the service and the caller's arguments."""


@dataclass(frozen=True)
class Entry(Generic[D]):
    """One thing of the catalogue.

    Attributes:
        scope: the scope that grants it.
        definition: what a listing shows of it.
        perform: what using it does.
    """

    scope: str
    definition: D
    perform: Perform

    @cached_property
    def mirrors_arguments(self) -> bool:
        """Whether the input schema of a tool asks for arguments to be mirrored in headers (`x-mcp-header`)."""
        return isinstance(self.definition, Tool) and "x-mcp-header" in json.dumps(self.definition.input_schema)


@dataclass(frozen=True)
class Catalogue:
    """Everything that exists, for whomever: names (of resources, URIs) and their entries."""

    tools: Mapping[str, Entry[Tool]]
    prompts: Mapping[str, Entry[Prompt]]
    resources: Mapping[str, Entry[Resource]]
    templates: Mapping[str, Entry[ResourceTemplate]]
    _patterns: dict[str, re.Pattern[str]] = field(default_factory=dict[str, re.Pattern[str]])

    def template_of(self, uri: str) -> tuple[str, dict[str, str]]:
        """The template that `uri` is an instance of, with the values of its variables; (uri, {}) if there is none.

        Only the simple form `{name}` of RFC 6570 is known: one path segment.
        """
        for template in self.templates:
            if match := self._pattern(template).fullmatch(uri):
                return template, match.groupdict()
        return uri, {}

    def _pattern(self, template: str) -> re.Pattern[str]:
        pattern = self._patterns.get(template)
        if pattern is None:
            escaped = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(template))
            pattern = self._patterns[template] = re.compile(escaped)
        return pattern


class Access:
    """The decisions of gate 3, one small method each. Stateless."""

    def may(self, caller: Caller, entry: Entry[Any]) -> bool:
        """Whether `caller` is granted `entry`: the one question that listings and lookups ask."""
        return entry.scope in caller.scopes

    def listing(self, caller: Caller, table: Mapping[str, Entry[D]]) -> list[D]:
        """What `caller` sees of `table`."""
        return [entry.definition for entry in table.values() if self.may(caller, entry)]

    def granted(self, caller: Caller, table: Mapping[str, Entry[D]], name: str) -> Entry[D]:
        """The entry called `name`.

        Raises:
            MCPError: the same for a name that is not granted and for a name that does not exist.
        """
        entry = table.get(name)
        if entry is None or not self.may(caller, entry):
            self.deny(caller, name, "unknown" if entry is None else f"exists, needs {entry.scope}")
        return entry

    def deny(self, caller: Caller, name: str, reason: str) -> NoReturn:
        """Raise the denial; what was asked and the reason are for the operator's log only."""
        # The name is the caller's own text and may be anything, even a token: the log gets its length.
        logger.info("denied to %s: a name of %d characters (%s)", caller, len(name), reason)
        raise MCPError(INVALID_PARAMS, "Unknown name")

    def input_schema(self, caller: Caller, table: Mapping[str, Entry[Tool]], name: str) -> Mapping[str, Any] | None:
        """The schema against which the headers that mirror arguments are checked, or None if there is nothing to check.

        The SDK asks before any handler runs. Answered for a tool that is not granted, its complaint about a header
        would tell that the tool exists. It walks what it is given twice on every call, a twentieth of what a call
        costs, so a schema in which there is nothing to find is not given.
        """
        entry = table.get(name)
        if entry is None or not entry.mirrors_arguments or not self.may(caller, entry):
            return None
        return entry.definition.input_schema

"""What the server offers: four tools, two prompts, two resources and two templates, under three scopes.

The scopes are so dealt that each kind of thing exists granted and hidden for a caller that holds `rates:read` alone.
"""

from collections.abc import Mapping
from datetime import date
from typing import Any

from mcp import MCPError
from mcp_types import (
    INVALID_PARAMS,
    GetPromptResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    Resource,
    ResourceTemplate,
    TextContent,
    Tool,
    ToolAnnotations,
)

from quenchz_reference.certificates import ANSWER_SCHEMA
from quenchz_reference.scopes import ADMIN, HISTORY, READ, Catalogue, Entry
from quenchz_reference.service import InvalidInputError, RatesService

_CURRENCY = {"type": "string", "pattern": "^[A-Z]{3}$", "description": "ISO 4217 code of the currency, e.g. USD"}
_READ_ONLY = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=True)
_JSON = "application/json"


def _schema(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _day(meaning: str) -> dict[str, Any]:
    return {"type": "string", "format": "date", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "description": meaning}


def _texts(arguments: Mapping[str, Any], *names: str) -> list[str]:
    """The values of exactly these arguments, all of them text.

    Raises:
        InvalidInputError: if one is missing or no text, or there is another one.
    """
    if missing := [name for name in names if name not in arguments]:
        raise InvalidInputError(f"the argument {missing[0]} is missing")
    if len(arguments) > len(names):
        raise InvalidInputError(f"only these arguments are known: {', '.join(names) or 'none'}")
    for name in names:
        if not isinstance(arguments[name], str):
            raise InvalidInputError(f"the argument {name} is not text")
    return [arguments[name] for name in names]


def _parse_day(text: str, name: str) -> date:
    try:
        # fromisoformat also reads 20260330 and 2026-W14-1; the wire has one form.
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:
        raise InvalidInputError(f"the argument {name} is not a calendar day of the form YYYY-MM-DD")
    return day


async def _exchange_rates(service: RatesService, arguments: Mapping[str, Any]) -> dict[str, Any]:
    currency, first, last = _texts(arguments, "currency", "from", "to")
    return (await service.exchange_rates(currency, _parse_day(first, "from"), _parse_day(last, "to"))).to_json()


async def _latest_rate(service: RatesService, arguments: Mapping[str, Any]) -> dict[str, Any]:
    (currency,) = _texts(arguments, "currency")
    return (await service.latest_rate(currency)).to_json()


async def _full_history(service: RatesService, arguments: Mapping[str, Any]) -> dict[str, Any]:
    (currency,) = _texts(arguments, "currency")
    return (await service.full_history(currency)).to_json()


async def _refresh_cache(service: RatesService, arguments: Mapping[str, Any]) -> dict[str, Any]:
    _texts(arguments)
    return await service.refresh_cache()


async def _calendar(service: RatesService, _: Mapping[str, Any]) -> dict[str, Any]:
    return service.calendar()


async def _cache_state(service: RatesService, _: Mapping[str, Any]) -> dict[str, Any]:
    return service.cache_state()


def _prompt(text: str) -> GetPromptResult:
    return GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(type="text", text=text))])


def _prompt_arguments(arguments: Mapping[str, Any], *names: str) -> list[str]:
    # A prompt has no result in which a tool's error could stand: what is wrong with it is a protocol error.
    try:
        return _texts(arguments, *names)
    except InvalidInputError as error:
        raise MCPError(INVALID_PARAMS, str(error)) from error


async def _explain_rate(service: RatesService, arguments: Mapping[str, Any]) -> GetPromptResult:
    del service
    currency, day = _prompt_arguments(arguments, "currency", "date")
    return _prompt(
        f"Look up the ECB euro reference rate of {currency} on {day} with the tool exchange_rates and explain it. "
        "If there is none, say which of the causes in `coverage.absent` applies. It is a reference rate, not a price "
        "at which anybody trades."
    )


async def _audit_history(service: RatesService, arguments: Mapping[str, Any]) -> GetPromptResult:
    del service
    (currency,) = _prompt_arguments(arguments, "currency")
    return _prompt(
        f"Fetch all ECB euro reference rates of {currency} with the tool full_history and audit its certificate: do "
        "delivered and absent days add up to the requested ones, and which days are genuine gaps?"
    )


def default_catalogue() -> Catalogue:
    """The catalogue of DESIGN.md section 6."""
    tools = {
        READ: [
            (
                Tool(
                    name="exchange_rates",
                    description="Euro reference rates of a currency in a window of calendar days, both inclusive.",
                    input_schema=_schema(currency=_CURRENCY, **{"from": _day("First day"), "to": _day("Last day")}),
                    output_schema=ANSWER_SCHEMA,
                    annotations=_READ_ONLY,
                ),
                _exchange_rates,
            ),
            (
                Tool(
                    name="latest_rate",
                    description="The most recent euro reference rate of a currency.",
                    input_schema=_schema(currency=_CURRENCY),
                    output_schema=ANSWER_SCHEMA,
                    annotations=_READ_ONLY,
                ),
                _latest_rate,
            ),
        ],
        HISTORY: [
            (
                Tool(
                    name="full_history",
                    description="All euro reference rates of a currency since its first.",
                    input_schema=_schema(currency=_CURRENCY),
                    output_schema=ANSWER_SCHEMA,
                    annotations=_READ_ONLY,
                ),
                _full_history,
            ),
        ],
        ADMIN: [
            (
                Tool(
                    name="refresh_cache",
                    description="Drop what was parsed and read it again from the source.",
                    input_schema=_schema(),
                    output_schema={
                        "type": "object",
                        "properties": {"values_read": {"type": "object", "additionalProperties": {"type": "integer"}}},
                        "required": ["values_read"],
                        "additionalProperties": False,
                    },
                    annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True),
                ),
                _refresh_cache,
            ),
        ],
    }
    currency = PromptArgument(name="currency", description="ISO 4217 code of the currency, e.g. USD", required=True)
    prompts = {
        READ: (
            Prompt(
                name="explain_rate",
                description="Explain one rate, or why there is none.",
                arguments=[currency, PromptArgument(name="date", description="YYYY-MM-DD", required=True)],
            ),
            _explain_rate,
        ),
        HISTORY: (
            Prompt(name="audit_history", description="Audit a currency's whole history.", arguments=[currency]),
            _audit_history,
        ),
    }
    resources = {
        READ: (
            Resource(
                uri="rates://calendar",
                name="calendar",
                description="The closing days of TARGET, on which no rate is published.",
                mime_type=_JSON,
            ),
            _calendar,
        ),
        ADMIN: (
            Resource(uri="rates://cache/state", name="cache_state", description="What is parsed.", mime_type=_JSON),
            _cache_state,
        ),
    }
    templates = {
        READ: (
            ResourceTemplate(
                uri_template="rates://latest/{currency}",
                name="latest",
                description="The answer of latest_rate.",
                mime_type=_JSON,
            ),
            _latest_rate,
        ),
        HISTORY: (
            ResourceTemplate(
                uri_template="rates://history/{currency}",
                name="history",
                description="The answer of full_history.",
                mime_type=_JSON,
            ),
            _full_history,
        ),
    }
    return Catalogue(
        tools={tool.name: Entry(scope, tool, perform) for scope, listed in tools.items() for tool, perform in listed},
        prompts={prompt.name: Entry(scope, prompt, perform) for scope, (prompt, perform) in prompts.items()},
        resources={resource.uri: Entry(scope, resource, perform) for scope, (resource, perform) in resources.items()},
        templates={entry.uri_template: Entry(scope, entry, perform) for scope, (entry, perform) in templates.items()},
    )

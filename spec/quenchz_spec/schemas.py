"""Arguments for a JSON Schema: the small subset that tools declare, deterministic, for calls that a property makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quenchz_spec.shapes import items, members
from quenchz_spec.strategies.denials import ArgumentsForm

if TYPE_CHECKING:
    from collections.abc import Mapping

_BY_TYPE: dict[str, Any] = {
    "string": "USD",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}
_OTHER_TYPE: dict[str, Any] = {"string": 7, "integer": "x", "number": "x", "boolean": "x", "array": 7, "object": 7}


def valid_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object for `schema` with every declared property: examples, constants and formats are honoured."""
    return {name: _value(member) for name, member in _properties(schema).items()}


def arguments_for(schema: Mapping[str, Any], form: ArgumentsForm, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of one form for a tool with the input schema `schema`."""
    if form is ArgumentsForm.GIVEN:
        return given
    valid = valid_arguments(schema)
    if form is ArgumentsForm.VALID:
        return valid
    if form is ArgumentsForm.MISSING:
        return {name: value for name, value in valid.items() if name not in items(schema.get("required"))}
    if form is ArgumentsForm.WRONG_TYPE:
        return {name: _OTHER_TYPE.get(str(member.get("type")), 7) for name, member in _properties(schema).items()}
    return {}


def only_reads(entry: Mapping[str, Any]) -> bool:
    """Whether a tool says of itself that it only reads (MCP schema, ToolAnnotations.readOnlyHint)."""
    return members(entry.get("annotations")).get("readOnlyHint") is True


def accepts_anything(schema: Mapping[str, Any]) -> bool:
    """Whether `schema` requires nothing, so that any object may be valid and a call would really run."""
    return not schema.get("required")


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {name: members(member) for name, member in members(schema.get("properties")).items()}


def _value(schema: Mapping[str, Any]) -> Any:
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if listed := items(schema.get(key)):
            return listed[0]
    if schema.get("format") == "date":
        return "2026-04-01"
    kind = next(iter(items(schema.get("type"))), schema.get("type"))
    if kind == "integer" and isinstance(schema.get("minimum"), int):
        return schema["minimum"]
    return _BY_TYPE.get(str(kind), "USD")

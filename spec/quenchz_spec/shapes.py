"""JSON that somebody else wrote, read without trusting its shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def members(value: Any) -> dict[str, Any]:
    """Return the members of a JSON object; of anything else, none."""
    # mypy and pyright narrow a container of unknown content differently: the one needs the cast, the other minds it.
    if not isinstance(value, Mapping):
        return {}
    return {str(k): v for k, v in cast("Mapping[Any, Any]", value).items()}  # type: ignore[redundant-cast]


def items(value: Any) -> list[Any]:
    """Return the items of a JSON list; of anything else, none."""
    if not isinstance(value, list):
        return []
    return list(cast("list[Any]", value))  # type: ignore[redundant-cast]


def at_pointer(document: Any, pointer: str) -> Any:
    """Return the value at a JSON Pointer (RFC 6901), or None where there is nothing."""
    for token in pointer.split("/")[1:] if pointer else []:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(document, Mapping):
            document = members(cast("Any", document)).get(key)
        elif isinstance(document, list):
            listed = items(cast("Any", document))
            document = listed[int(key)] if key.isdigit() and int(key) < len(listed) else None
        else:
            return None
    return document

"""Symbolic values of the law as JSON, and back.

The arguments of an example, the requests a property asks for and the description of a target are plain data: None,
booleans, integers, floats, strings, dates, enumeration members, frozen dataclasses of this package, tuples, lists and
dicts with string keys. What is not plain data cannot be replayed, so encoding anything else raises.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from typing import Any, TypeVar

from quenchz_spec.shapes import members

T = TypeVar("T")

_KINDS: dict[str, type] = {}


class NotPlainDataError(TypeError):
    """A value that the history cannot hold: the property that drew it could never be replayed."""


def plain(kind: type[T]) -> type[T]:
    """Register a frozen dataclass or an enumeration of the law as plain data, by its class name.

    Raises:
        NotPlainDataError: the class is neither a frozen dataclass nor an enumeration, or its name is taken.
    """
    frozen = dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    if not frozen and not issubclass(kind, enum.Enum):
        raise NotPlainDataError(f"{kind.__name__} is neither a frozen dataclass nor an enumeration")
    if kind.__name__ in _KINDS:
        raise NotPlainDataError(f"two kinds of plain data are called {kind.__name__}")
    _KINDS[kind.__name__] = kind
    return kind


def encode(value: Any) -> Any:
    """Return `value` as JSON data (what `json.dumps` takes).

    Raises:
        NotPlainDataError: `value`, or something inside it, is not plain data.
    """
    # bool, str and enumerations come before their bases: the order of these branches is the precedence.
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return {"!": type(value).__name__, "name": value.name}
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return {"!": "date", "iso": value.isoformat()}
    if isinstance(value, tuple):
        return {"!": "tuple", "of": [encode(item) for item in value]}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [encode(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return _encode_dict(value)  # pyright: ignore[reportUnknownArgumentType]
    if dataclasses.is_dataclass(value) and _KINDS.get(type(value).__name__) is type(value):
        fields = {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"!": type(value).__name__, **fields}
    raise NotPlainDataError(f"{type(value).__name__} is not plain data, so an example that holds it cannot be replayed")


def _encode_dict(value: dict[Any, Any]) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            raise NotPlainDataError(f"a dict key is {key!r}; keys are strings in JSON")
    # A dict that has a "!" of its own is wrapped, so that no argument can pose as a tagged value.
    encoded = {key: encode(item) for key, item in value.items()}
    return {"!": "dict", "of": encoded} if "!" in value else encoded


def decode(data: Any) -> Any:
    """Return the value that `encode` turned into `data`.

    Raises:
        NotPlainDataError: a tag is unknown to this release of the law, or its members do not fit.
    """
    if isinstance(data, list):
        return [decode(item) for item in data]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(data, dict):
        return data
    found = members(data)
    return _decode_tagged(found) if "!" in found else {key: decode(value) for key, value in found.items()}


def _decode_tagged(data: dict[str, Any]) -> Any:
    tag = data["!"]
    try:
        if tag == "date":
            return dt.date.fromisoformat(data["iso"])
        if tag == "tuple":
            return tuple(decode(item) for item in data["of"])
        if tag == "dict":
            return {key: decode(item) for key, item in data["of"].items()}
        kind = _KINDS[tag]
        if issubclass(kind, enum.Enum):
            return kind[data["name"]]
        return kind(**{key: decode(item) for key, item in data.items() if key != "!"})
    except (KeyError, TypeError, ValueError, AttributeError) as misfit:
        raise NotPlainDataError(f"this release of the law cannot read a {tag!r}: {misfit}") from misfit

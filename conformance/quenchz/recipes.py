"""Token recipes as JSON that a person writes by hand and a program of any language reads.

    {"caller": "broad"}                                            the caller's good token
    {"caller": "broad", "aud": ["%us%", "https://other.example/mcp"]}
    {"caller": "broad", "aud": null}                               the JSON value null
    {"caller": "broad", "without": ["aud"]}                        no such member
    {"caller": "broad", "claims": {"exp": "-3600", "tier": {"a": 1}}}
    {"caller": "broad", "claims": {"exp": {"raw": "1e400"}}}       JSON text, written as it stands
    {"caller": "broad", "signature": "none"}                       a name of quenchz_spec.vocabulary.Signature
    {"caller": "broad", "header": {"typ": "JWT"}, "without_header": ["kid"]}
    {"caller": "broad", "shape": "four"}                           a name of quenchz_spec.vocabulary.Shape
    {"caller": "broad", "issuer": "stranger"}                      an issuer that the server was never told to trust

`%us%` in `aud` stands for the resource under test. A claim that is a string of a sign and digits is a moment, so many
seconds from the minting; {"filler": n} is so many letters. `serial` tells the fresh tokens of a caller apart, and
`generation` the keys of the issuer, in the order in which it turned to them. An object with the member "!" is in the
form of `quenchz_spec.codec` instead.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import typing
from typing import Any, TypeVar

from quenchz_spec.codec import NotPlainDataError, decode
from quenchz_spec.shapes import items, members
from quenchz_spec.vocabulary import (
    OURS,
    Audience,
    AudienceForm,
    Claim,
    Filler,
    OurKey,
    RawJson,
    SecondsFromNow,
    Shape,
    Signature,
    TokenRecipe,
)

_MEMBERS = (
    *("caller", "aud", "claims", "without", "header", "without_header"),
    *("signature", "shape", "issuer", "serial", "generation"),
)
T = TypeVar("T")
E = TypeVar("E", bound=enum.Enum)
_LONGEST_FILLER = 2**20  # letters; a request to the issuer must not cost it all its memory
_MOMENT = re.compile(r"[+-][0-9]{1,15}")


class RecipeError(ValueError):
    """What was given is no recipe; the text names the member, its value and the fix."""


def parse_recipe(text: str) -> TokenRecipe:
    """Return the recipe that a JSON text describes.

    Raises:
        RecipeError: the text is no JSON, or no recipe.
    """
    try:
        return read_recipe(json.loads(text))
    except RecipeError:
        raise
    except (ValueError, RecursionError):
        raise RecipeError('the recipe is not JSON; expected an object such as {"caller": "broad"}') from None


def read_recipe(data: Any) -> TokenRecipe:
    """Return the recipe that JSON data describes, in the form of this module or in the codec's.

    Raises:
        RecipeError: it is no recipe, or a member does not fit.
    """
    found = members(data)
    if "!" in found:
        try:
            recipe = decode(found)
        except (NotPlainDataError, RecursionError) as error:
            raise RecipeError(f"the recipe cannot be decoded: {str(error)[:200]}") from None
    else:
        recipe = _by_hand(found)
    if not isinstance(recipe, TokenRecipe):
        raise RecipeError(f"recipe is of type {type(recipe).__name__}; expected TokenRecipe")
    _check(recipe, TokenRecipe, "recipe")
    if recipe.issuer not in ("trusted", "stranger"):
        raise RecipeError(f'issuer is {recipe.issuer!r}; expected "trusted" or "stranger"')
    return recipe


def _by_hand(data: dict[str, Any]) -> TokenRecipe:
    if not isinstance(data.get("caller"), str):
        raise RecipeError(
            f'caller is {data.get("caller")!r}; expected the name of a caller, as in {{"caller": "broad"}}'
        )
    unknown = sorted(set(data) - set(_MEMBERS))
    if unknown:
        raise RecipeError(f"{unknown[0]} is no member of a recipe; it has {', '.join(_MEMBERS)}")
    without = _names(data, "without")
    audience = _audience(data["aud"]) if "aud" in data else OURS
    if "aud" in without:
        if "aud" in data:
            raise RecipeError("aud is both given and left out; remove it from the one or from the other")
        audience = Audience(AudienceForm.ABSENT, ())
    return TokenRecipe(
        caller=data["caller"],
        audience=audience,
        signature=_member(data, "signature", Signature, Signature.OWN),
        claims=_claims(data, "claims"),
        without=tuple(name for name in without if name != "aud"),
        header=_claims(data, "header"),
        without_header=_names(data, "without_header"),
        shape=_member(data, "shape", Shape, Shape.COMPACT),
        issuer=data.get("issuer", "trusted"),
        serial=data.get("serial", 0),
        generation=data.get("generation", 0),
    )


def _member(data: dict[str, Any], key: str, kind: type[E], default: E) -> E:
    names = {member.name.lower(): member for member in kind}
    value = data.get(key, default.name.lower())
    if not isinstance(value, str) or value not in names:
        raise RecipeError(f"{key} is {value!r}; expected one of {', '.join(names)}")
    return names[value]


def _names(data: dict[str, Any], key: str) -> tuple[str, ...]:
    if not isinstance(data.get(key, []), list):
        raise RecipeError(f'{key} is {data[key]!r}; expected a list of names, as in ["aud"]')
    return tuple(items(data.get(key)))


def _claims(data: dict[str, Any], key: str) -> tuple[Claim, ...]:
    if not isinstance(data.get(key, {}), dict):
        raise RecipeError(f'{key} is {data[key]!r}; expected an object, as in {{"exp": "-3600"}}')
    return tuple(Claim(name, _claim(value)) for name, value in members(data.get(key)).items())


def _audience(value: Any) -> Audience:
    if value == "%us%":
        return OURS
    raw = _raw(value)
    return Audience(AudienceForm.LITERAL, (), json.dumps(value) if raw is None else raw)


def _claim(value: Any) -> Any:
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        return SecondsFromNow(int(value))
    length = _only(value, "filler", int)
    raw = _raw(value)
    if length is not None:
        return Filler(length)
    return value if raw is None else RawJson(raw)


def _raw(value: Any) -> str | None:
    return _only(value, "raw", str)


def _only(value: Any, key: str, kind: type[T]) -> T | None:
    """Return the value of the only member of an object, if it is `key` and of this type."""
    found = members(value)
    return found[key] if set(found) == {key} and type(found[key]) is kind else None


def _check(value: Any, kind: Any, where: str) -> None:
    """Make sure that decoded data has the types that the vocabulary declares: whoever wrote it may be hostile."""
    if kind is Any:
        _check_claim(value, where)
        return
    plain = typing.get_origin(kind) or kind
    if not isinstance(value, plain) or (plain is int and isinstance(value, bool)):
        raise RecipeError(f"{where} is of type {type(value).__name__}; expected {getattr(plain, '__name__', plain)}")
    if plain is tuple:
        for number, item in enumerate(typing.cast("tuple[Any, ...]", value)):
            _check(item, typing.get_args(kind)[0], f"{where}[{number}]")
    elif dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            _check(getattr(value, field.name), hints[field.name], f"{where}.{field.name}")


def _check_claim(value: Any, where: str) -> None:
    if isinstance(value, OurKey):
        return
    if isinstance(value, (RawJson, SecondsFromNow, Filler, Audience)):
        _check(value, type(value), where)
        if isinstance(value, Filler) and not 0 <= value.length <= _LONGEST_FILLER:
            raise RecipeError(f"{where} is a filler of {value.length} letters; expected 0 to {_LONGEST_FILLER}")
        return
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise RecipeError(f"{where} is no JSON value; expected JSON, RawJson or SecondsFromNow") from None


# --- the other way --------------------------------------------------------------------------------------------------


def write_recipe(recipe: TokenRecipe, resource: str) -> dict[str, Any]:
    """Return a recipe as JSON data that `read_recipe` reads, with `aud` written out for `resource`.

    `aud` is always given, unless it is left out; everything else only where it differs from a good token.

    Raises:
        RecipeError: this form has no words for the recipe.
    """
    text = recipe.audience.json(resource)
    without = [*(["aud"] if text is None else []), *recipe.without]
    optional: dict[str, Any] = {
        "without": without,
        "claims": {claim.name: _written_claim(claim.value, resource) for claim in recipe.claims},
        "header": {claim.name: _written_claim(claim.value, resource) for claim in recipe.header},
        "without_header": list(recipe.without_header),
        "signature": "" if recipe.signature is Signature.OWN else recipe.signature.name.lower(),
        "shape": "" if recipe.shape is Shape.COMPACT else recipe.shape.name.lower(),
        "issuer": "" if recipe.issuer == "trusted" else recipe.issuer,
        "serial": recipe.serial,
        "generation": recipe.generation,
    }
    aud = {} if text is None else {"aud": _written(text)}
    written = {"caller": recipe.caller} | aud | {name: value for name, value in optional.items() if value}
    # What was read must be the recipe in everything: in what a later law adds to recipes, too.
    again = dataclasses.replace(
        read_recipe(written), audience=recipe.audience, claims=recipe.claims, header=recipe.header
    )
    twice = any(len({claim.name for claim in group}) < len(group) for group in (recipe.claims, recipe.header))
    if again != recipe or twice:
        raise RecipeError("the recipe has parts that cannot be written by hand")
    return written


def _written_claim(value: Any, resource: str) -> Any:
    if isinstance(value, OurKey):
        raise RecipeError("the recipe names a key of the judge's own")
    if isinstance(value, Audience):
        return _written(value.json(resource) or "null")
    if isinstance(value, Filler):
        return {"filler": value.length}
    if isinstance(value, SecondsFromNow):
        return f"{value.seconds:+d}"
    if isinstance(value, RawJson):
        return {"raw": value.text}
    is_moment = isinstance(value, str) and _MOMENT.fullmatch(value)
    return {"raw": json.dumps(value)} if is_moment else _written(json.dumps(value))


def _written(text: str) -> Any:
    """Return JSON text as the value it stands for, or as {"raw": text} where a JSON library would change it."""
    try:
        value = json.loads(text)
        same = json.dumps(value, allow_nan=False) == text
    except (ValueError, RecursionError):
        same, value = False, None
    special = _raw(value) is not None or _only(value, "filler", int) is not None
    return value if same and not special else {"raw": text}

"""What the callers list, and what the server's own noise is: read through the same verb a property uses.

Both run once before any property, over recorded exchanges as well as live ones, so a replayed history yields the same
catalogue and the same masks.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quenchz_spec.masks import Mask, Pair, learn
from quenchz_spec.outcomes import NotDeclaredError, UntestableError
from quenchz_spec.shapes import items, members
from quenchz_spec.subject import Catalogue, Target
from quenchz_spec.vocabulary import Ask, Exchange, Role, TokenRecipe

Asking = Callable[[Ask, Role], Exchange]

LISTINGS = {
    "tools": ("tools/list", "tools", "name"),
    "prompts": ("prompts/list", "prompts", "name"),
    "resources": ("resources/list", "resources", "uri"),
    "resource_templates": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
}
"""For each kind: its listing method, the member of the result, the member that identifies an entry (MCP schema)."""

PAGES_AT_MOST = 50
NOISE_PAIRS = 5
_ALPHABETS = ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789")


def discover(ask: Asking, target: Target) -> Catalogue:
    """Read the listings of the broad and the narrow caller, all pages.

    A kind whose listing answers "method not found" (-32601) is not declared. What else goes wrong is kept in
    `problems`; the properties that need the listing then find it empty.
    """
    entries: dict[str, dict[str, dict[str, Mapping[str, Any]]]] = {}
    declared: set[str] = set()
    problems: list[str] = []
    for caller in dict.fromkeys(name for name in (target.broad, target.narrow) if name):
        for kind in LISTINGS:
            found, problem = _list(ask, caller, kind)
            if problem == "":
                declared.add(kind)
                entries.setdefault(caller, {})[kind] = found
            elif problem is not None:
                problems.append(f"{caller} asks {LISTINGS[kind][0]}: {problem}")
    return Catalogue(entries, frozenset(declared), tuple(problems))


def _list(ask: Asking, caller: str, kind: str) -> tuple[dict[str, Mapping[str, Any]], str | None]:
    """Return the entries, and "" or the problem (None: the kind is not declared)."""
    method, member, key = LISTINGS[kind]
    found: dict[str, Mapping[str, Any]] = {}
    cursor: str | None = None
    for _ in range(PAGES_AT_MOST):
        params = {} if cursor is None else {"cursor": cursor}
        answer = ask(Ask(method=method, params=params, token=TokenRecipe(caller=caller)), Role.SETUP)
        if answer.error_code == -32601:
            return {}, None
        result = answer.result or {}
        if not isinstance(result.get(member), list):
            return {}, f"{answer.words}, where {member!r} was expected"
        for entry in map(members, items(result[member])):
            if isinstance(entry.get(key), str):
                found[entry[key]] = entry
        cursor = result.get("nextCursor")
        if not isinstance(cursor, str):
            return found, ""
    return found, f"more than {PAGES_AT_MOST} pages"


def use(kind: str, name: str, arguments: Any = None) -> tuple[str, dict[str, Any]]:
    """Return the method and params that use a thing of `kind`."""
    if kind == "tools":
        return "tools/call", {"name": name, "arguments": {} if arguments is None else arguments}
    if kind == "prompts":
        return "prompts/get", {"name": name, "arguments": {} if arguments is None else arguments}
    return "resources/read", {"uri": name}


def invented(like: str, serial: int, taken: frozenset[str] = frozenset()) -> str:
    """Return a name that no listing holds, with the length and the alphabet of `like`.

    Letters and digits are exchanged for others of their class, everything else stays, so that a URI stays a URI of
    the same scheme. The same `like` and `serial` give the same name.
    """
    choice = random.Random(f"{serial}/{like}")  # noqa: S311 - a name, not a secret
    scheme = re.match(r"[a-z][a-z0-9+.-]*://", like)
    kept = scheme.end() if scheme else 0
    for _ in range(1000):
        name = like[:kept] + "".join(_other(letter, choice) for letter in like[kept:])
        if name != like and name not in taken:
            return name
    raise UntestableError(f"no name like {like!r} could be invented", "give the hidden things longer names")


def _other(letter: str, choice: random.Random) -> str:
    for alphabet in _ALPHABETS:
        if letter in alphabet:
            return choice.choice(alphabet)
    return letter


def shifted(like: str, taken: frozenset[str] = frozenset()) -> str:
    """Return an invented name that any client can compute: every letter and digit of `like` moved on by five places.

    By six where that name is taken, and so on. `invented` is better for comparisons, of which each needs a name of its
    own; this one is for prices, where a recorded example names no tool and another client must ask for the same one.
    """
    for places in range(5, 26):
        name = "".join(_moved(letter, places) for letter in like)
        if name not in taken and name != like:
            return name
    raise UntestableError(f"no name like {like!r} could be invented", "give the hidden things longer names")


def _moved(letter: str, places: int) -> str:
    for alphabet in _ALPHABETS:
        if letter in alphabet:
            return alphabet[(alphabet.index(letter) + places) % len(alphabet)]
    return letter


def all_names(catalogue: Catalogue, kind: str) -> frozenset[str]:
    """Return every name of `kind` that any caller lists."""
    return frozenset(name for kinds in catalogue.entries.values() for name in kinds.get(kind, {}))


def concrete(kind: str, name: str) -> str:
    """Return a name that can be used: a URI template (RFC 6570) with each expression replaced by a value."""
    return re.sub(r"\{[^{}]*\}", "USD", name) if kind == "resource_templates" else name


def learn_mask(ask: Asking, target: Target, catalogue: Catalogue, kind: str) -> Mask:
    """Return what may differ between two denials of `kind`, from pairs of invented names asked by the narrow caller.

    Raises:
        NotDeclaredError: no caller lists anything of `kind`, so there is nothing to invent a name like.
        UntestableError: two invented names are told apart by more than a mask may hide.
    """
    names = sorted(all_names(catalogue, kind) | {name for of, name in target.hidden if of == kind})
    if not names:
        raise NotDeclaredError(f"any {kind.replace('_', ' ')}")
    like = concrete(kind, max(names, key=len))
    pairs: list[Pair] = []
    for serial in range(NOISE_PAIRS):
        one, other = (invented(like, 2 * serial + leg, frozenset(names)) for leg in (0, 1))
        answers = [
            ask(Ask(method=m, params=p, token=TokenRecipe(caller=target.narrow)), Role.NOISE)
            for m, p in (use(kind, one), use(kind, other))
        ]
        pairs.append((answers[0], answers[1], (one, other)))
    return mask_of(pairs, target, kind)


def mask_of(pairs: Sequence[Pair], target: Target, kind: str) -> Mask:
    """Return the mask that pairs of invented names show.

    Raises:
        UntestableError: there are too few pairs, or two names are told apart by more than a mask may hide.
    """
    pairs = [pair for pair in pairs if pair[0].status and pair[1].status]  # what was never answered shows no noise
    if len(pairs) < NOISE_PAIRS:
        raise UntestableError(
            f"noise is learned from {NOISE_PAIRS} pairs of invented {kind}, and {len(pairs)} were recorded",
            "record a new history",
        )
    mask, unmaskable = learn(pairs, target.mask_headers)
    if unmaskable is not None:
        raise UntestableError(
            f"noisy: two invented {kind} are told apart by more than a mask may hide. {unmaskable.words}",
            "name a varying header in the target file's mask, or make the server answer two unknown names alike",
        )
    return mask

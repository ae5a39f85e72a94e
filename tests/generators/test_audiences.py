"""Every near miss can be drawn, and nothing that is drawn for another resource is ours by any reading of RFC 3986."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from quenchz_spec.resources import Edit, Uri
from quenchz_spec.strategies.audiences import (
    REWRITTEN,
    lists_with_us,
    one,
    other_resources,
    unnamed_audiences,
)
from quenchz_spec.test_audience import LISTS_WITH_US, OTHER_RESOURCES, RESPELLINGS, UNNAMED
from quenchz_spec.vocabulary import Audience, AudienceForm, TokenRecipe

RESOURCES = [
    "https://rates.quenchz.invalid/mcp",
    "https://rates.example",
    "https://rates.example/",
    "https://rates.example/mcp/",
    "https://rates.example:8443/a/b",
    "http://127.0.0.1:8931/mcp",
    "http://[::1]:8931/mcp",
    "https://[2001:db8::1]/mcp",
    "https://rates.example/x",
    "https://rates.example/A~b/1",
]
FAST = settings(max_examples=100, deadline=None, database=None, phases=[Phase.generate])

_UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
_GENERIC = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)  # RFC 3986 appendix B


def normal(uri: str) -> tuple[str, ...]:
    """Return the normal form of RFC 3986 §6.2.2 and §6.2.3, a trailing slash dropped; written without urllib.

    Two spellings have one normal form exactly if somebody could take them for one resource.
    """
    match = _GENERIC.fullmatch(uri)
    assert match is not None
    scheme, authority, path, query, fragment = (part or "" for part in match.groups())
    scheme = scheme.lower()
    user, at, host = authority.rpartition("@")
    bracketed = re.fullmatch(r"(\[[^\]]*\]|[^:]*):?([0-9]*)", host)
    name, port = bracketed.groups() if bracketed else (host, "")
    port = "" if port == {"http": "80", "https": "443"}.get(scheme) else port
    name = _unescaped(name).lower()
    return scheme, _unescaped(user) + at, name, port, _without_dots(_unescaped(path)).rstrip("/"), query, fragment


def _unescaped(text: str) -> str:
    def one_octet(match: re.Match[str]) -> str:
        character = chr(int(match.group(1), 16))
        return character if character in _UNRESERVED else match.group(0).upper()

    return re.sub(r"%([0-9A-Fa-f]{2})", one_octet, text)


def _without_dots(path: str) -> str:
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            kept = kept[:-1] or [""]
        elif segment != ".":
            kept.append(segment)
    return "/".join(kept) + ("/" if path.endswith(("/.", "/..")) else "")


@pytest.mark.parametrize(
    ("one_spelling", "other"),
    [
        ("HTTPS://Rates.Example:443/%6Dcp/", "https://rates.example/mcp"),
        ("http://h:80/a/./b/../c", "http://h/a/c"),
        ("http://h:/%7ea", "http://h/~a"),
        ("https://h/x/..", "https://h"),
        ("https://[2001:DB8::1]:443/", "https://[2001:db8::1]"),
    ],
)
def test_the_normaliser_of_these_tests_sees_through_respellings(one_spelling: str, other: str) -> None:
    assert normal(one_spelling) == normal(other)


@pytest.mark.parametrize(
    ("one_uri", "other"),
    [
        ("https://h/a", "https://h/A"),
        ("https://h/a", "http://h/a"),
        ("https://h/a", "https://h:80/a"),
        ("https://h/a", "https://h/a?"),
        ("https://h/a", "https://u@h/a"),
        ("https://h/a%2Fb", "https://h/a/b"),
        ("https://h/a", "https://h/a//b"),
    ],
)
def test_the_normaliser_of_these_tests_keeps_apart_what_differs(one_uri: str, other: str) -> None:
    assert normal(one_uri) != normal(other)


def written(row: Audience | TokenRecipe, resource: str) -> Any:
    """Return the value of `aud`, the last of several (RFC 7519 §4), or Ellipsis when it is absent."""
    text = (row.audience if isinstance(row, TokenRecipe) else row).json(resource)
    return ... if text is None else json.loads(f'{{"aud":{text}}}')["aud"]


def is_ours(audience: Audience, resource: str) -> bool:
    """Whether an audience of one string is our resource by some reading."""
    value = written(audience, resource)
    assert isinstance(value, str)
    return normal(value) == normal(resource)


# --- another resource (QZ-AUD-1) ------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", RESOURCES)
def test_no_written_row_of_another_resource_is_ours(resource: str) -> None:
    """A row that happens to write ours itself does not apply, and the property says so; a respelling would be wrong."""
    ours = {
        name: written(row.value, resource)
        for name, row in OTHER_RESOURCES.items()
        if is_ours(row.value, resource) and written(row.value, resource) != resource
    }
    assert ours == {}


@pytest.mark.parametrize("resource", RESOURCES)
def test_no_drawn_other_resource_is_ours(resource: str) -> None:
    @FAST
    @given(other_resources())
    def holds(audience: Audience) -> None:
        assert written(audience, resource) == resource or not is_ours(audience, resource)

    holds()


@pytest.mark.parametrize("resource", RESOURCES)
def test_nearly_every_row_applies_to_every_resource(resource: str) -> None:
    skipped = [name for name, row in OTHER_RESOURCES.items() if written(row.value, resource) == resource]
    paths = {"origin", "path in capitals", "parent", "double slash", "backslash", "encoded slash"}
    assert set(skipped) <= paths | {"other port", "plain http", "lookalike host", "punycode host", "fullwidth host"}


def test_every_row_of_another_resource_applies_to_the_reference() -> None:
    assert [name for name, row in OTHER_RESOURCES.items() if written(row.value, RESOURCES[0]) == RESOURCES[0]] == []


def test_no_two_rows_of_one_table_write_the_same() -> None:
    for table in (OTHER_RESOURCES, RESPELLINGS):
        texts = [written(row.value, RESOURCES[0]) for row in table.values()]
        assert len(set(texts)) == len(texts)


def test_the_hosts_that_look_like_ours_are_those_of_the_registries() -> None:
    resource = RESOURCES[0]
    lookalike, punycode, wide = (
        urlsplit(written(OTHER_RESOURCES[name].value, resource)).hostname or ""
        for name in ("lookalike host", "punycode host", "fullwidth host")
    )
    assert lookalike == "r\u0430tes.quenchz.invalid"
    assert lookalike.encode("idna").decode() == punycode
    assert unicodedata.normalize("NFKC", wide) == urlsplit(resource).hostname


DRAWN_EDITS = [
    Edit.SUFFIX,
    Edit.SIBLING,
    Edit.HOST_SUFFIX,
    Edit.HOST_PREFIX,
    Edit.USERINFO,
    Edit.OTHER_PORT,
    Edit.LITERAL,
    Edit.PREFIX,
    *REWRITTEN,
]


@pytest.mark.parametrize("edit", DRAWN_EDITS)
def test_every_way_of_being_near_is_drawn(edit: Edit) -> None:
    found = find(
        other_resources(), lambda audience: audience.uris[0].edit is edit, settings=settings(FAST, max_examples=2000)
    )
    assert found.uris[0].edit is edit


@pytest.mark.parametrize("start", ["/", "?", "#", "a", " ", "\u200b"])
def test_suffixes_of_every_sort_are_drawn(start: str) -> None:
    def is_one(audience: Audience) -> bool:
        (uri,) = audience.uris
        begins = uri.text.startswith(start) if start != "a" else uri.text[:1].isalnum()
        return uri.edit is Edit.SUFFIX and begins

    assert find(other_resources(), is_one, settings=settings(FAST, max_examples=2000))


def test_nothing_else_is_drawn_as_another_resource() -> None:
    @FAST
    @given(other_resources())
    def holds(audience: Audience) -> None:
        assert audience.form is AudienceForm.STRING
        assert audience.uris[0].edit in DRAWN_EDITS

    holds()


# --- respellings (QZ-AUD-2) -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("name", sorted(RESPELLINGS))
def test_a_respelling_is_another_string_for_the_same_resource(name: str, resource: str) -> None:
    """Where a resource has no such respelling (a host without letters, say) the row writes ours and does not apply."""
    assert normal(written(RESPELLINGS[name].value, resource)) == normal(resource)


def test_every_respelling_applies_to_the_reference() -> None:
    same = [name for name, row in RESPELLINGS.items() if written(row.value, RESOURCES[0]) == RESOURCES[0]]
    assert same == []


# --- lists and what names nobody (QZ-AUD-3, QZ-AUD-4) ---------------------------------------------------------------


@pytest.mark.parametrize("resource", RESOURCES)
def test_every_list_with_us_holds_us_and_is_a_list(resource: str) -> None:
    @FAST
    @given(lists_with_us() | st.sampled_from([row.value for row in LISTS_WITH_US.values()]))
    def holds(audience: Audience) -> None:
        value = written(audience, resource)
        if isinstance(value, str):
            text = f'{{"aud":{audience.json(resource)}}}'
            value = [said for name, said in json.loads(text, object_pairs_hook=list) if name == "aud"]
            assert len(value) == 2
        assert isinstance(value, list)
        assert resource in value

    holds()


@pytest.mark.parametrize("name", ["written twice, ours first", "escaped, ours first"])
def test_what_is_written_twice_names_us_to_a_reader_of_the_first(name: str) -> None:
    resource = RESOURCES[0]
    pairs = json.loads(f'{{"aud":{UNNAMED[name].value.json(resource)}}}', object_pairs_hook=list)
    assert [key for key, _ in pairs] == ["aud", "aud"]
    assert pairs[0][1] == resource != pairs[1][1]


def test_other_claims_than_the_audience_name_us() -> None:
    rows = [row.value for row in UNNAMED.values() if isinstance(row.value, TokenRecipe)]
    assert len(rows) == 5
    for row in rows:
        assert {claim.value.json(RESOURCES[0]) for claim in row.claims} == {json.dumps(RESOURCES[0])}
        assert "aud" not in {claim.name for claim in row.claims}


@pytest.mark.parametrize("place", ["first", "last", "middle", "alone"])
def test_we_are_drawn_at_every_place_of_a_list(place: str) -> None:
    def is_there(audience: Audience) -> bool:
        at, length = audience.uris.index(Uri()), len(audience.uris)
        return {
            "first": at == 0 < length - 1,
            "last": 0 < at == length - 1,
            "middle": 0 < at < length - 1,
            "alone": length == 1,
        }[place]

    assert find(lists_with_us(), is_there, settings=FAST)


def names_us(value: Any, resource: str) -> bool:
    """Whether a verifier that takes a string or a list of strings (RFC 7519 §4.1.3) finds us in `value`."""
    strings = (
        [value]
        if isinstance(value, str)
        else [item for item in value if isinstance(item, str)]
        if isinstance(value, list)
        else []
    )
    return any(normal(item) == normal(resource) for item in strings)


@pytest.mark.parametrize("resource", RESOURCES)
def test_nothing_that_names_nobody_names_us(resource: str) -> None:
    @FAST
    @given(unnamed_audiences() | st.sampled_from([row.value for row in UNNAMED.values()]))
    def holds(row: Audience | TokenRecipe) -> None:
        assert not names_us(written(row, resource), resource)

    holds()


@pytest.mark.parametrize(
    "is_one",
    [
        lambda value: value is ...,
        lambda value: value is None,
        lambda value: value == [],
        lambda value: isinstance(value, list) and len(value) >= 2,
        lambda value: isinstance(value, dict),
        lambda value: isinstance(value, (int, float)),
    ],
    ids=["absent", "null", "empty list", "list of others", "object", "number"],
)
def test_every_sort_of_naming_nobody_is_drawn(is_one: Any) -> None:
    found = find(unnamed_audiences(), lambda audience: bool(is_one(written(audience, RESOURCES[0]))), settings=FAST)
    assert is_one(written(found, RESOURCES[0]))


def test_a_resource_with_characters_that_json_escapes_is_written_as_json() -> None:
    odd = 'https://h.example/a"b\\c'
    for row in [*OTHER_RESOURCES.values(), *RESPELLINGS.values(), *LISTS_WITH_US.values(), *UNNAMED.values()]:
        written(row.value, odd)  # json.loads raises on what is not JSON
    assert written(UNNAMED["object"].value, odd) == {odd: 1}
    assert written(one(Edit.SAME), odd) == odd

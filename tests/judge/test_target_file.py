"""A target file that cannot be used is refused by file, key, value and fix; one that can says what it says."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quenchz.target_file import (
    DEFAULT_FREE,
    Configuration,
    TargetFileError,
    checked_url,
    from_tokens_file,
    read_target_file,
)
from quenchz_spec.subject import Budget, CallerSpec, ObservationTool

FULL = """
url = "http://127.0.0.1:8931/mcp"
protocol = "2025-11-25"
resource = "https://rates.example/mcp"
broad = "boss"
narrow = "clerk"
owner_authorized = true
audience = "member"
leeway_seconds = 30
profiles = ["rfc9068"]
refetch_seconds = 2.5
patience_seconds = 4
withdrawal_seconds = 0

[tokens]
source = "tokens-file"
file = "tokens.json"

[callers.clerk]
scopes = ["read"]
reserve = 2

[callers.boss]
scopes = ["read", "write"]

[hidden]
tools = ["drop_table"]
resource_templates = ["db://{table}"]

[budget]
budget = 10
window_seconds = 60
refusal_status = 503
exclusive = false

[[observations]]
tool = "rates"
arguments = { currency = "USD" }
from = "since"
gap_causes = ["gap"]

[calls]
allow = ["rates"]
challengeable = ["admin"]

[mask]
headers = ["X-Request-Id"]
"""


def read(folder: Path, text: str, **how: Any) -> Configuration:
    path = folder / "quenchz.toml"
    path.write_text(text, encoding="utf-8")
    return read_target_file(path, **how)


def test_every_key_reaches_the_description(tmp_path: Path) -> None:
    found = read(tmp_path, FULL)
    target = found.target
    assert (found.url, found.protocol, found.owner_authorized) == ("http://127.0.0.1:8931/mcp", "2025-11-25", True)
    assert (found.source, found.tokens_file) == ("tokens-file", tmp_path / "tokens.json")
    assert target.resource == "https://rates.example/mcp"
    assert (target.broad, target.narrow) == ("boss", "clerk")
    assert target.callers == (
        CallerSpec(name="clerk", scopes=("read",), reserve=2),
        CallerSpec(name="boss", scopes=("read", "write"), reserve=None),
    )
    assert target.hidden == (("tools", "drop_table"), ("resource_templates", "db://{table}"))
    assert target.budget == Budget(
        limiter="reserve", budget=10, window=60.0, pool=8, free=DEFAULT_FREE, refusal_status=503, exclusive=False
    )
    assert target.observations == (
        ObservationTool(tool="rates", arguments={"currency": "USD"}, since="since", gap_causes=("gap",)),
    )
    assert (target.may_call, target.challengeable, target.mask_headers) == (("rates",), ("admin",), ("X-Request-Id",))
    assert (target.audience, target.leeway, target.profiles) == ("member", 30.0, ("rfc9068",))
    assert (target.refetch, target.patience, target.withdrawal) == (2.5, 4.0, 0.0)


def test_the_schema_has_the_keys_that_are_read(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    schema = json.loads((pytestconfig.rootpath / "spec/schemas/target.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(tomllib.loads(FULL))
    with pytest.raises(TargetFileError) as error:
        read(tmp_path, 'url = "http://a"\nurls = []')
    assert set(str(error.value).rpartition("it has ")[2].split(", ")) == set(schema["properties"])


def test_a_url_alone_is_a_target(tmp_path: Path) -> None:
    found = read(tmp_path, 'url = "https://mcp.example/mcp"')
    assert found.target.resource == found.url == "https://mcp.example/mcp"
    target = found.target
    assert (found.protocol, found.owner_authorized, target.budget) == ("auto", False, None)
    assert (target.audience, target.leeway, target.profiles) == ("exact", None, ())
    assert (target.refetch, target.patience, target.withdrawal) == (None, None, None)


def test_the_command_line_stands_in_for_the_file(tmp_path: Path) -> None:
    found = read(tmp_path, FULL, url="http://127.0.0.1:1/mcp", tokens_file=Path("other.json"))
    assert (found.url, found.tokens_file) == ("http://127.0.0.1:1/mcp", Path("other.json"))


WRONG: list[tuple[str, str, list[str]]] = [
    ("no TOML", "url = ", ["not TOML"]),
    ("no url", "", ["url", "missing", "a string"]),
    ("a number for a url", "url = 7", ["url", "7", "a string"]),
    ("no http", 'url = "ftp://a/b"', ["url", "'ftp://a/b'", "http://host"]),
    ("a stranger", 'url = "http://a"\nurls = []', ["urls", "not a key", "protocol"]),
    ("a protocol", 'url = "http://a"\nprotocol = "2020-01-01"', ["protocol", "'2020-01-01'", "2026-07-28"]),
    ("a flag", 'url = "http://a"\nowner_authorized = "yes"', ["owner_authorized", "'yes'", "true or false"]),
    ("a flag as a number", 'url = "http://a"\nowner_authorized = 1', ["owner_authorized", "1", "true or false"]),
    ("an unknown caller", 'url = "http://a"\nbroad = "x"\n[callers.y]', ["broad", "'x'", "callers y"]),
    ("a caller that is text", 'url = "http://a"\n[callers]\ny = "z"', ["callers.y", "'z'", "a table"]),
    ("scopes that are text", 'url = "http://a"\n[callers.y]\nscopes = "z"', ["callers.y.scopes", "'z'", "a list"]),
    ("scopes of numbers", 'url = "http://a"\n[callers.y]\nscopes = [1]', ["callers.y.scopes", "[1]", "strings"]),
    (
        "a reserve that is true",
        'url = "http://a"\n[callers.y]\nreserve = true',
        ["callers.y.reserve", "True", "integer"],
    ),
    ("a reserve below zero", 'url = "http://a"\n[callers.y]\nreserve = -1', ["callers.y.reserve", "-1"]),
    ("a source", 'url = "http://a"\n[tokens]\nsource = "magic"', ["tokens.source", "'magic'", "suite-issuer"]),
    ("a limiter", 'url = "http://a"\n[budget]\nlimiter = "x"', ["budget.limiter", "'x'", "per-caller"]),
    ("no budget", 'url = "http://a"\n[budget]\nwindow_seconds = 1', ["budget.budget", "missing", "an integer"]),
    ("no window", 'url = "http://a"\n[budget]\nbudget = 1', ["budget.window_seconds", "missing", "a number"]),
    ("a budget of nothing", 'url = "http://a"\n[budget]\nbudget = 0\nwindow_seconds = 1', ["budget", "positive"]),
    ("no time", 'url = "http://a"\n[budget]\nbudget = 1\nwindow_seconds = 0', ["budget", "positive"]),
    (
        "an endless window",
        'url = "http://a"\n[budget]\nbudget = 1\nwindow_seconds = inf',
        ["budget.window_seconds", "inf"],
    ),
    ("no number", 'url = "http://a"\n[budget]\nbudget = 1\nwindow_seconds = nan', ["budget.window_seconds", "nan"]),
    (
        "promises beyond the budget",
        'url = "http://a"\n[callers.y]\nreserve = 9\n[budget]\nbudget = 3\nwindow_seconds = 1',
        ["budget.budget", "3", "add up to 9"],
    ),
    ("an unknown kind", 'url = "http://a"\n[hidden]\ntool = ["x"]', ["hidden.tool", "not a key", "resource_templates"]),
    ("an observation", 'url = "http://a"\n[[observations]]\nfrom = "x"', ["observations[0].tool", "missing"]),
    ("observations", 'url = "http://a"\nobservations = [1]', ["observations[0]", "1", "a table"]),
    ("an audience", 'url = "http://a"\naudience = "any"', ["audience", "'any'", "exact, member"]),
    ("a leeway below zero", 'url = "http://a"\nleeway_seconds = -1', ["leeway_seconds", "-1", "0 or more"]),
    ("a leeway without end", 'url = "http://a"\nleeway_seconds = inf', ["leeway_seconds", "inf", "finite"]),
    ("a patience that is text", 'url = "http://a"\npatience_seconds = "2"', ["patience_seconds", "'2'", "a number"]),
    ("no number of seconds", 'url = "http://a"\nrefetch_seconds = nan', ["refetch_seconds", "nan", "0 or more"]),
    ("a profile", 'url = "http://a"\nprofiles = ["rfc9069"]', ["profiles", "'rfc9069'", "introspection"]),
    ("a call", 'url = "http://a"\n[calls]\nallowed = ["x"]', ["calls.allowed", "not a key", "allow"]),
]


@pytest.mark.parametrize(("text", "said"), [pytest.param(text, said, id=name) for name, text, said in WRONG])
def test_what_is_wrong_is_named_by_file_key_value_and_fix(text: str, said: list[str], tmp_path: Path) -> None:
    with pytest.raises(TargetFileError) as error:
        read(tmp_path, text)
    assert [word for word in ["quenchz.toml", *said] if word not in str(error.value)] == []


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TargetFileError, match="quenchz init"):
        read_target_file(tmp_path / "quenchz.toml")
    with pytest.raises(TargetFileError, match="cannot be read"):
        read_target_file(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(TargetFileError, match="cannot be read"):
        read_target_file(tmp_path / "binary")


@pytest.mark.parametrize(
    "url", ["", "mcp.example/mcp", "http://", "http:///mcp", "http://a:99999/", "http://a:x/", "http://[::1"]
)
def test_what_cannot_be_dialled_is_no_url(url: str) -> None:
    with pytest.raises(TargetFileError, match="URL is"):
        checked_url(url, "URL")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8931/mcp", "https://mcp.example", "http://[::1]:1/x?y=z"])
def test_what_can_be_dialled_is_kept_as_it_is(url: str) -> None:
    assert checked_url(url, "URL") == url


# --- the tokens file as a description -------------------------------------------------------------------------------

CALLERS = {
    "broad": {"scopes": ["a", "b"], "reserve": 2, "token": "t.t.t"},
    "narrow": {"scopes": ["a"], "reserve": 0, "token": "u.u.u"},
}
DOCUMENT: dict[str, Any] = {"quenchz_tokens": 1, "resource": "https://r.example", "callers": CALLERS}


def test_the_caller_with_most_scopes_is_the_broad_one() -> None:
    found = from_tokens_file(DOCUMENT, "http://127.0.0.1:1/mcp", Path("tokens.json")).target
    assert (found.broad, found.narrow) == ("broad", "narrow")
    assert [caller.reserve for caller in found.callers] == [2, None]
    turned = {**DOCUMENT, "callers": dict(reversed(CALLERS.items()))}
    assert from_tokens_file(turned, "http://127.0.0.1:1/mcp", Path("tokens.json")).target.broad == "broad"


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 5) | st.text("ab/", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["tools", "tool", "budget", "scopes"]), inner)
    ),
    max_leaves=5,
)


def described(document: dict[str, Any], key: str) -> Configuration | None:
    """Return the description, or None when the file is refused by its name and the member's."""
    refusals = pytest.RaisesExc(TargetFileError, match=rf"tokens\.json: .*{key}")
    try:
        return from_tokens_file(document, "http://127.0.0.1:1/mcp", Path("tokens.json"))
    except TargetFileError as error:
        if not refusals.matches(error):
            raise
        return None


@settings(max_examples=300, deadline=None)
@given(key=st.sampled_from(["observations", "hidden", "budget", "may_call"]), value=ANY_JSON)
@example(key="observations", value=5)
@example(key="hidden", value=None)
@example(key="may_call", value=5)
@example(key="budget", value=[])
def test_a_tokens_file_with_anything_in_a_member_is_read_or_refused_by_name(key: str, value: Any) -> None:
    described({**DOCUMENT, key: value}, key)


@settings(max_examples=200, deadline=None)
@given(key=st.sampled_from(["scopes", "reserve"]), value=ANY_JSON)
@example(key="scopes", value=5)
@example(key="reserve", value="five")
def test_a_caller_with_anything_in_a_member_is_read_or_refused_by_name(key: str, value: Any) -> None:
    callers = {**CALLERS, "narrow": {**CALLERS["narrow"], key: value}}
    budget = {"budget": 9, "window_seconds": 1}
    found = described({**DOCUMENT, "callers": callers, "budget": budget}, key)
    if found is not None:
        assert found.target.caller("narrow").reserve in (None, value)
        assert all(isinstance(scope, str) for scope in found.target.caller("narrow").scopes)


def test_the_declared_budget_of_a_tokens_file_is_the_targets() -> None:
    document = json.loads(json.dumps({**DOCUMENT, "budget": {"budget": 9, "window_seconds": 1.5, "pool": 7}}))
    found = from_tokens_file(document, "http://127.0.0.1:1/mcp", Path("tokens.json")).target.budget
    assert found is not None
    assert (found.budget, found.window, found.pool, found.refusal_status) == (9, 1.5, 7, 429)

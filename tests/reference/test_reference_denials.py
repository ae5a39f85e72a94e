"""Denied and nonexistent are the same bytes: on both wires, in both framings, over a real socket."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from reference_support import LEGACY, MODERN, Running, running

from quenchz_reference.parts import Parts
from quenchz_reference.scopes import Entry

ASKS: dict[str, tuple[str, Any, Any]] = {
    "a tool": ("tools/call", {"name": "full_history"}, {"name": "full_histori"}),
    "a tool with good arguments": (
        "tools/call",
        {"name": "full_history", "arguments": {"currency": "USD"}},
        {"name": "full_histori", "arguments": {"currency": "USD"}},
    ),
    "a tool with wrong arguments": (
        "tools/call",
        {"name": "refresh_cache", "arguments": {"x": [1]}},
        {"name": "refresh_cachf", "arguments": {"x": [1]}},
    ),
    "a tool with a broken name": ("tools/call", {"name": "refresh_cache "}, {"name": "refresh_cach\u00e9"}),
    "a prompt": ("prompts/get", {"name": "audit_history"}, {"name": "audit_histori"}),
    "a prompt with arguments": (
        "prompts/get",
        {"name": "audit_history", "arguments": {"currency": "USD"}},
        {"name": "audit_histori", "arguments": {"currency": "USD"}},
    ),
    "a resource": ("resources/read", {"uri": "rates://cache/state"}, {"uri": "rates://cache/statf"}),
    "a template instance": ("resources/read", {"uri": "rates://history/USD"}, {"uri": "rates://histori/USD"}),
    "a template instance that cannot be": (
        "resources/read",
        {"uri": "rates://history/???"},
        {"uri": "rates://histori/???"},
    ),
    "a template itself": (
        "resources/read",
        {"uri": "rates://history/{currency}"},
        {"uri": "rates://histori/{currency}"},
    ),
    "no URI at all": ("resources/read", {"uri": "rates://cache/state"}, {"uri": "::::::::::::::::::"}),
    "completion of a prompt": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "audit_history"}, "argument": {"name": "currency", "value": "U"}},
        {"ref": {"type": "ref/prompt", "name": "audit_histori"}, "argument": {"name": "currency", "value": "U"}},
    ),
    "completion of a template": (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "rates://history/{currency}"},
            "argument": {"name": "currency", "value": ""},
        },
        {
            "ref": {"type": "ref/resource", "uri": "rates://histori/{currency}"},
            "argument": {"name": "currency", "value": ""},
        },
    ),
    "completion of a resource": (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "rates://cache/state"}, "argument": {"name": "x", "value": ""}},
        {"ref": {"type": "ref/resource", "uri": "rates://cache/statf"}, "argument": {"name": "x", "value": ""}},
    ),
    "a subscription": ("resources/subscribe", {"uri": "rates://cache/state"}, {"uri": "rates://cache/statf"}),
    "the end of a subscription": (
        "resources/unsubscribe",
        {"uri": "rates://cache/state"},
        {"uri": "rates://cache/statf"},
    ),
}
DENIAL = {"code": -32602, "message": "Unknown name"}


@pytest.fixture(scope="module", params=["json", "sse"])
def server(request: pytest.FixtureRequest) -> Iterator[Running]:
    with running("--framing", request.param) as found:
        yield found


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_a_hidden_thing_answers_as_one_that_never_existed(
    server: Running, revision: str, ask: tuple[str, Any, Any]
) -> None:
    method, hidden, invented = ask
    broad, narrow = server.wire("broad", revision), server.wire("narrow", revision)
    for other in (narrow, narrow, broad, narrow):
        before = narrow.ask(method, hidden)
        after = narrow.ask(method, invented)
        assert before == after
        other.ask("tools/list")
    if "subscri" not in method:
        assert before.message["error"] == DENIAL
        assert before.status == (400 if revision == MODERN else 200)
    else:
        assert before.message["error"]["code"] == -32601


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_the_controls_are_served_to_who_may_have_them(server: Running, revision: str) -> None:
    broad, narrow = server.wire("broad", revision), server.wire("narrow", revision)
    for name in ("full_history", "latest_rate"):
        assert not broad.call(name).message["result"]["isError"]
    for uri in ("rates://history/USD", "rates://cache/state", "rates://calendar", "rates://latest/USD"):
        assert "result" in broad.ask("resources/read", {"uri": uri}).message
    for uri in ("rates://calendar", "rates://latest/USD"):
        assert "result" in narrow.ask("resources/read", {"uri": uri}).message
    assert "result" in broad.ask("prompts/get", {"name": "audit_history", "arguments": {"currency": "USD"}}).message
    completed = {"ref": {"type": "ref/prompt", "name": "explain_rate"}, "argument": {"name": "currency", "value": "US"}}
    assert narrow.ask("completion/complete", completed).message["result"]["completion"]["values"] == ["USD"]


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_an_instance_of_a_granted_template_that_cannot_be_is_a_name_that_does_not_exist(
    server: Running, revision: str
) -> None:
    narrow = server.wire("narrow", revision)
    answers = [
        narrow.ask("resources/read", {"uri": f"rates://{path}"}) for path in ("latest/XXX", "latest/JPY", "latesd/XXX")
    ]
    assert answers[0].message["error"] == DENIAL
    assert answers[0] == answers[1] == answers[2]


def test_the_log_of_a_denial_says_why_and_to_whom_and_repeats_nothing(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "quenchz_reference")
    narrow = server.wire("narrow")
    token = str(narrow.token)
    narrow.call(token)
    narrow.ask("resources/read", {"uri": f"rates://latest/{token}"})
    narrow.call("full_history")
    assert [record.message for record in caplog.records] == [
        f"denied to 'narrow' of 'https://issuer.quenchz.invalid': a name of {length} characters ({reason})"
        for length, reason in (
            (len(token), "unknown"),
            (len(token) + len("rates://latest/"), "there is no answer"),
            (len("full_history"), "exists, needs rates:history"),
        )
    ]


HIDDEN = (b"full_history", b"refresh_cache", b"audit_history", b"cache/state", b"rates://history")
LISTINGS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_no_listing_or_introduction_names_a_hidden_thing(server: Running, revision: str) -> None:
    narrow, broad = server.wire("narrow", revision), server.wire("broad", revision)
    methods = [*LISTINGS, "server/discover" if revision == MODERN else "ping"]
    seen = b"".join(narrow.ask(method).body for method in methods)
    assert not [name for name in HIDDEN if name in seen]
    assert all(any(name in broad.ask(method).body for method in LISTINGS) for name in HIDDEN)
    if revision == MODERN:
        scopes = [narrow.ask(method).message["result"]["cacheScope"] for method in LISTINGS]
        assert scopes == ["private"] * 4


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_a_cursor_that_was_never_handed_out_is_refused_alike(server: Running, revision: str) -> None:
    for method in LISTINGS:
        answers = [
            server.wire(who, revision).ask(method, {"cursor": cursor})
            for who in ("broad", "narrow")
            for cursor in ("", "bogus", "eyJvIjotMX0")
        ]
        assert all(answer.message["error"]["code"] == -32602 for answer in answers)
        assert len({(answer.status, answer.body) for answer in answers}) == 1


def test_a_subscription_acknowledges_only_what_the_caller_may_read(server: Running) -> None:
    def acknowledged(who: str, uri: str) -> bytes:
        wire = server.wire(who)
        params = {"notifications": {"resourceSubscriptions": [uri, "rates://calendar"]}}
        wire.ask_without_reading("subscriptions/listen", params)
        return wire.read_event()

    hidden = acknowledged("narrow", "rates://cache/state")
    assert hidden == acknowledged("narrow", "rates://cache/statf")
    assert b"rates://calendar" in hidden
    assert b"rates://cache/state" in acknowledged("broad", "rates://cache/state")


def test_a_subscriber_learns_of_a_refresh_only_if_it_may_read_the_state(server: Running) -> None:
    broad, narrow, admin = server.wire("broad"), server.wire("narrow"), server.wire("broad")
    both = {"notifications": {"resourceSubscriptions": ["rates://cache/state"]}}
    for wire in (broad, narrow):
        wire.ask_without_reading("subscriptions/listen", both)
        wire.read_event()
    admin.call("refresh_cache", {})
    assert b"rates://cache/state" in broad.read_event()
    assert narrow.nothing_to_read()


def with_mirrored_header(parts: Parts) -> Parts:
    """The catalogue with a hidden tool that wants its argument mirrored in a header."""
    tool = parts.catalogue.tools["full_history"]
    schema = tool.definition.input_schema
    currency = schema["properties"]["currency"] | {"x-mcp-header": "Currency"}
    definition = tool.definition.model_copy(update={"input_schema": schema | {"properties": {"currency": currency}}})
    tools = {**parts.catalogue.tools, "full_history": Entry(tool.scope, definition, tool.perform)}
    return replace(parts, catalogue=replace(parts.catalogue, tools=tools))


def test_a_missing_mirrored_header_does_not_betray_a_hidden_tool() -> None:
    with running(alter=with_mirrored_header) as server:
        broad, narrow = server.wire("broad"), server.wire("narrow")
        assert broad.call("full_history").message["error"]["code"] == -32020
        assert narrow.call("full_history") == narrow.call("full_histori")
        headers = {"Mcp-Param-Currency": "EUR"}
        arguments = {"currency": "USD"}
        asked = [
            narrow.ask("tools/call", {"name": name, "arguments": arguments}, headers)
            for name in ("full_history", "full_histori")
        ]
        assert asked[0] == asked[1]


def test_headers_that_disagree_with_the_body_are_answered_alike(server: Running) -> None:
    narrow = server.wire("narrow")
    for headers in ({"Mcp-Name": "latest_rate"}, {"Mcp-Method": "tools/list"}, {"Mcp-Name": "=?base64?!?="}):
        answers = [narrow.ask("tools/call", {"name": name}, headers) for name in ("full_history", "full_histori")]
        assert answers[0] == answers[1]
        assert answers[0].message["error"]["code"] == -32020


def test_a_session_serves_each_request_with_the_scopes_of_its_own_token(server: Running) -> None:
    broad = server.wire("broad", LEGACY)
    assert "result" in broad.call("full_history").message
    fewer = server.wire_with(None, LEGACY)
    fewer.token, fewer.session = server.token("broad", scope="rates:read"), broad.session
    assert fewer.call("full_history").message["error"] == DENIAL
    assert "result" in broad.call("full_history").message


def test_a_session_of_another_caller_does_not_exist(server: Running) -> None:
    thief = server.wire("narrow", LEGACY)
    thief.session = server.wire("broad", LEGACY).session
    stolen = thief.ask("tools/list")
    thief.session = "0" * 32
    assert stolen.status == 404
    assert stolen == thief.ask("tools/list")

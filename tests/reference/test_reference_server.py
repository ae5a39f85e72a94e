"""The gates together, over a real socket: charges, budget refusals, metadata, and the SDK's own client."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NoReturn

import anyio
import httpx2
import pytest
from jsonschema import Draft202012Validator
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent
from reference_support import LEGACY, META, MODERN, Json, Running, running

from quenchz_reference.caller import Caller
from quenchz_reference.clock import ManualClock
from quenchz_reference.parts import Parts, recast
from quenchz_reference.reserves import Budgets, Charges, NaiveLedger, ReserveLedger
from quenchz_reference.scopes import Access, Entry
from quenchz_reference.serving import Alter

EASTER = {"currency": "USD", "from": "2026-03-30", "to": "2026-04-10"}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as found:
        yield found


# --- clients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["json", "sse"])
@pytest.mark.parametrize("mode", [MODERN, "legacy", "auto"])
def test_the_sdks_own_client_lists_and_calls(mode: str, framing: str) -> None:
    async def use(running_server: Running) -> tuple[list[str], CallToolResult]:
        headers = {"authorization": f"Bearer {running_server.token('narrow')}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(f"{running_server.address}/mcp", http_client=http)
            async with Client(transport, mode=mode) as client:
                listed = await client.list_tools()
                return [tool.name for tool in listed.tools], await client.call_tool("exchange_rates", EASTER)

    with running("--framing", framing) as running_server:
        names, answer = anyio.run(use, running_server)
    assert names == ["exchange_rates", "latest_rate"]
    assert not answer.is_error
    assert answer.structured_content["coverage"]["delivered_observations"] == 8
    assert isinstance(answer.content[0], TextContent)
    assert json.loads(answer.content[0].text) == answer.structured_content


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_every_answer_is_valid_against_the_schema_that_its_tool_lists(server: Running, revision: str) -> None:
    broad = server.wire("broad", revision)
    tools = {tool["name"]: tool for tool in broad.ask("tools/list").message["result"]["tools"]}
    for name, arguments in {
        "exchange_rates": EASTER,
        "latest_rate": None,
        "full_history": None,
        "refresh_cache": {},
    }.items():
        result = broad.call(name, arguments).message["result"]
        Draft202012Validator(tools[name]["outputSchema"]).validate(result["structuredContent"])
        assert [json.loads(block["text"]) for block in result["content"]] == [result["structuredContent"]]
    assert broad.call("refresh_cache", {}).message["result"]["structuredContent"] == {"values_read": {"USD": 7078}}


WRONG: dict[str, tuple[Any, str]] = {
    "none": ({}, "currency is missing"),
    "one missing": ({"currency": "USD", "from": "2026-03-30"}, "to is missing"),
    "one too many": ({**EASTER, "x": 1}, "only these arguments are known: currency, from, to"),
    "a number": ({**EASTER, "from": 20260330}, "from is not text"),
    "null": ({**EASTER, "currency": None}, "currency is not text"),
    "no such day": ({**EASTER, "to": "2026-02-30"}, "to is not a calendar day"),
    "another form of day": ({**EASTER, "to": "20260410"}, "to is not a calendar day"),
    "a week": ({**EASTER, "to": "2026-W15-5"}, "to is not a calendar day"),
    "a time of day": ({**EASTER, "to": "2026-04-10T00:00"}, "to is not a calendar day"),
    "reversed": ({"currency": "USD", "from": "2026-04-10", "to": "2026-03-30"}, "begins on 2026-04-10, after it ends"),
    "lower case": ({**EASTER, "currency": "usd"}, "no euro reference rate series is known"),
    "not offline": ({**EASTER, "currency": "JPY"}, "offline"),
    "ten millennia": ({"currency": "USD", "from": "0001-01-01", "to": "9999-12-31"}, "146097"),
}


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
@pytest.mark.parametrize(("arguments", "text"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_get_a_clear_error_and_no_observations(
    server: Running, revision: str, arguments: Json, text: str
) -> None:
    result = server.wire("narrow", revision).call("exchange_rates", arguments).message["result"]
    assert result["isError"]
    assert "structuredContent" not in result
    assert text in result["content"][0]["text"]


# --- gate 1 over the socket ------------------------------------------------------------------------------------------


def test_the_metadata_names_the_resource_and_is_found_by_the_challenge(server: Running) -> None:
    refused = server.wire_with(None).ask("tools/list")
    url = f"{server.address}/.well-known/oauth-protected-resource/mcp"
    assert (refused.status, refused.header("www-authenticate")) == (401, f'Bearer resource_metadata="{url}"')
    for address in (url, f"{server.address}/.well-known/oauth-protected-resource"):
        document = httpx2.get(address).json()
        assert document["resource"] == "https://rates.quenchz.invalid/mcp"
        assert document["authorization_servers"] == ["https://issuer.quenchz.invalid"]


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_all_bad_tokens_get_the_same_bytes_on_every_method(server: Running, revision: str) -> None:
    good = server.wire("broad", revision)
    tokens = [
        "x",
        server.token("broad", aud="https://elsewhere.invalid"),
        server.token("broad", aud=["https://rates.quenchz.invalid/mcp"]),
        server.token("broad", aud=None),
        server.token("broad", exp=1),
        server.token("broad", exp=1e300),
        server.token("broad") + "A",
    ]
    answers = []
    for token in tokens:
        wire = server.wire_with(None, revision)
        wire.token, wire.session = token, good.session
        answers += [
            wire.ask("tools/list"),
            wire.post(b"{"),
            *(wire.http(m) for m in ("GET", "PUT", "DELETE", "OPTIONS")),
        ]
    assert all(answer == answers[0] for answer in answers)
    assert answers[0].status == 401
    assert 'error="invalid_token"' in str(answers[0].header("www-authenticate"))
    assert good.ask("tools/list").status == 200, "a refused DELETE ended the session of another caller"


def test_the_host_header_does_not_change_the_challenge(server: Running) -> None:
    wire = server.wire_with(None)
    assert wire.ask("tools/list") == wire.ask("tools/list", headers={"Host": "evil.example"})


def test_a_foreign_host_or_origin_is_refused_on_loopback(server: Running) -> None:
    narrow = server.wire("narrow")
    assert narrow.ask("tools/list", headers={"Host": "evil.example"}).status == 421
    assert narrow.ask("tools/list", headers={"Origin": "https://evil.example"}).status == 403


def test_other_paths_do_not_exist(server: Running) -> None:
    for path in ("/mcp/", "/mcp/x", "/", "/MCP", "//mcp"):
        assert httpx2.get(f"{server.address}{path}", headers={"authorization": "Bearer x"}).status_code == 404


def test_blanks_after_a_header_value_do_not_count(server: Running) -> None:
    params = {"name": "latest_rate", "arguments": {"currency": "USD"}}
    answer = server.wire("narrow").ask(
        "tools/call", params, {"Mcp-Name": "latest_rate  ", "Mcp-Method": "tools/call\t"}
    )
    assert answer.status == 200


# --- gate 2 over the socket ------------------------------------------------------------------------------------------


def small(alter: Alter = lambda parts: parts) -> AbstractContextManager[Running]:
    """A reserve of one for each caller and a pool of one."""
    reserves = ["--reserve", "broad=1", "--reserve", "narrow=1", "--reserve", "quiet=1"]
    return running("--budget", "4", *reserves, alter=alter)


CHARGED: dict[str, bytes] = {
    "a call": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"latest_rate"}}',
    "a call without an id": b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"latest_rate"}}',
    "an unknown method": b'{"jsonrpc":"2.0","id":1,"method":"tools/Call"}',
    "a notification with an id": b'{"jsonrpc":"2.0","id":1,"method":"notifications/x"}',
    "a method in another case": b'{"jsonrpc":"2.0","id":1,"method":"PING"}',
    "a method that is no text": b'{"jsonrpc":"2.0","id":1,"method":["ping"]}',
    "the method twice": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"ping"}',
    "a parameter twice": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1,"a":2}}',
    "a batch": b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
    "a response": b'{"jsonrpc":"2.0","id":1,"result":{}}',
    "nothing": b"",
    "no JSON": b"{",
    "a byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "UTF-16": '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
    "not UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\xff"}',
    "deep nesting": b"[" * 100_000,
    "a number of 5,000 digits": b'{"jsonrpc":"2.0","id":1,"method":"ping","x":' + b"9" * 5000 + b"}",
    "too long a body": b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"' + b"a" * 5_000_000 + b'"}',
}
FREE: dict[str, bytes] = {
    method: json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META}}).encode()
    for method in (
        "ping",
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    )
} | {"a notification": b'{"jsonrpc":"2.0","method":"notifications/cancelled"}'}


@pytest.mark.parametrize("body", CHARGED.values(), ids=CHARGED)
@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_what_is_not_recognisably_free_costs_one_unit(body: bytes, revision: str) -> None:
    with small() as server:
        caller = server.wire("broad", revision)
        statuses = [caller.post(body, {"Mcp-Method": "tools/call", "Mcp-Name": "latest_rate"}).status for _ in range(3)]
    assert [status == 429 for status in statuses] == [False, False, True]


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_handshake_listings_and_notifications_cost_nothing(revision: str) -> None:
    with small() as server:
        caller = server.wire("broad", revision)
        for name, body in FREE.items():
            statuses = {caller.post(body, {"Mcp-Method": name}).status for _ in range(5)}
            assert 429 not in statuses, name
        assert caller.http("GET", headers={"MCP-Protocol-Version": MODERN}).status in (405, 400)
        assert [caller.call().status == 429 for _ in range(3)] == [False, False, True]
        assert caller.ask("tools/list").status == 200


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_a_budget_refusal_has_one_form_whatever_was_asked(revision: str) -> None:
    clock = ManualClock()

    def stand_still(parts: Parts) -> Parts:
        reserves = {"broad": 1, "narrow": 1}
        return replace(parts, budgets=Budgets(lambda: ReserveLedger(2, 60, reserves, clock)))

    with running(alter=stand_still) as server:
        narrow = server.wire("narrow", revision)
        assert narrow.call().status == 200
        clock.advance(20.5)
        asked = [narrow.call(name) for name in ("latest_rate", "full_history", "no_such_tool")]
        asked += [
            narrow.call("latest_rate", {"currency": 1}),
            narrow.post(b"{"),
            narrow.ask("prompts/get", {"name": "x"}),
        ]
        fresh = server.wire_with(None, revision)
        fresh.token, fresh.session = server.token("narrow", jti="two"), narrow.session
        assert all(answer == asked[0] for answer in [*asked, fresh.call()])
        assert (asked[0].status, asked[0].header("retry-after")) == (429, "40")
        assert asked[0].body == b'{"error":"budget_refused"}'
        assert server.wire("broad", revision).call().status == 200
        clock.advance(39.5)
        assert narrow.call().status == 200


def test_granted_denied_and_invented_calls_charge_alike_and_bad_tokens_charge_nobody() -> None:
    for name in ("latest_rate", "full_history", "no_such_tool"):
        with small() as server:
            bad = server.wire_with(server.token("narrow", aud="https://elsewhere.invalid"))
            assert {bad.call().status for _ in range(9)} == {401}
            narrow = server.wire("narrow")
            assert [narrow.call(name).status == 429 for _ in range(3)] == [False, False, True]


def test_each_issuer_has_a_budget_of_its_own(server: Running) -> None:
    budgets = server.parts.budgets
    assert budgets.of("https://a.invalid") is not budgets.of("https://b.invalid")
    assert budgets.of("https://a.invalid") is budgets.of("https://a.invalid")


def test_a_server_with_no_ledger_left_answers_503_and_admits_nobody() -> None:
    with running(
        alter=lambda parts: replace(parts, budgets=Budgets(lambda: NaiveLedger(1, 60, parts.clock), limit=0))
    ) as server:
        assert server.wire("broad").call().status == 503


# --- parts -----------------------------------------------------------------------------------------------------------


class DeniesAloud(Access):
    def deny(self, caller: Caller, name: str, reason: str) -> NoReturn:
        raise ValueError(name)


class ChargesNothing(Charges):
    def is_free(self, body: bytes) -> bool:
        return True


def test_one_replaced_part_changes_one_decision() -> None:
    with small(alter=lambda parts: replace(parts, charges=recast(ChargesNothing, parts.charges))) as server:
        assert {server.wire("broad").call().status for _ in range(5)} == {200}
    with running(alter=lambda parts: replace(parts, access=DeniesAloud())) as server:
        assert server.wire("narrow").call("full_history").message["error"]["code"] == -32603


def test_a_thousand_tools_are_listed_and_each_can_be_called() -> None:
    def many(parts: Parts) -> Parts:
        entry = parts.catalogue.tools["latest_rate"]
        tools = {
            f"tool_{n}": Entry(entry.scope, entry.definition.model_copy(update={"name": f"tool_{n}"}), entry.perform)
            for n in range(1000)
        }
        return replace(parts, catalogue=replace(parts.catalogue, tools=tools))

    with running(alter=many) as server:
        narrow = server.wire("narrow")
        assert len(narrow.ask("tools/list").message["result"]["tools"]) == 1000
        assert not narrow.call("tool_999").message["result"]["isError"]

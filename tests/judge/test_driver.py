"""The driver asks politely, keeps secrets, and never sends a charged call twice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from judge_support import FakeServer, FakeTokens, Reply, Sent, budget, result, target, world

from quenchz.driver import Limits, UnreachableError, _ExampleTokens
from quenchz.transport import (
    AnswerTimedOutError,
    CannotConnectError,
    ConnectionClosedError,
    MalformedAnswerError,
    Received,
    Transport,
    TransportError,
)
from quenchz_spec.outcomes import NoAnswerError, UntestableError, VoidError
from quenchz_spec.vocabulary import Ask, Claim, Role, SecondsFromNow, TokenRecipe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BROAD = TokenRecipe(caller="broad")
LIST = Ask(method="tools/list", token=BROAD)
CALL = Ask(method="tools/call", params={"name": "read", "arguments": {}}, token=BROAD)


def constantly(reply: Reply) -> Any:
    return lambda tokens: lambda sent: reply


def failing(error: type[TransportError], sent: float | None, times: int = 99, **members: Any) -> Any:
    """Return a server of which the first `times` requests get no answer."""

    def answer(tokens: FakeTokens) -> Any:
        honest, left = FakeServer(tokens), [times]

        def answering(request: Sent) -> Reply:
            left[0] -= 1
            if left[0] >= 0:
                raise error(origin="http://127.0.0.1:9", ended=1.0, sent=sent, **members)
            return honest(request)

        return answering

    return answer


# --- connecting -----------------------------------------------------------------------------------------------------


def test_connecting_reads_what_both_callers_list() -> None:
    of = world()
    of.subject.connect("auto")
    assert of.subject.server == "fake 1"
    assert of.subject.catalogue.names("broad", "tools") == ["read", "write"]
    assert of.subject.catalogue.names("narrow", "tools") == ["read"]
    assert of.subject.catalogue.declared == {"tools"}


@pytest.mark.parametrize("status", [200, 302, 401, 403, 404, 429, 500])
def test_connecting_to_a_useless_server_says_what_came(status: int) -> None:
    of = world(constantly(Reply(status)))
    with pytest.raises(UnreachableError, match=f"HTTP {status}"):
        of.subject.connect("auto")


@pytest.mark.parametrize("protocol", ["auto", "2026-07-28", "2025-11-25"])
def test_connecting_to_a_server_that_dies_after_the_greeting_says_so(protocol: str) -> None:
    def answer(tokens: FakeTokens) -> Any:
        def answering(sent: Sent) -> Reply:
            if sent.method in ("server/discover", "initialize", "notifications/initialized"):
                return result(sent, serverInfo={"name": "brief"})
            raise AnswerTimedOutError(origin="http://127.0.0.1:9", ended=1.0, sent=0.0, timeout=1.0)

        return answering

    with pytest.raises(UnreachableError, match="no complete answer"):
        world(answer).subject.connect(protocol)


def test_a_request_limit_met_while_connecting_is_a_reason_and_no_crash() -> None:
    with pytest.raises(UnreachableError, match="limit of 3 requests"):
        world(limits=Limits(requests=3)).subject.connect("2026-07-28")


# --- budget refusals ------------------------------------------------------------------------------------------------


def test_a_budget_refusal_voids_an_example_of_another_invariant() -> None:
    of = world(constantly(Reply(429, (("retry-after", "3"),))), target(budget()))
    with of.subject.channel("QZ-AUD-1", 1, voids_refusals=True), pytest.raises(VoidError) as void:
        of.subject.ask(CALL)
    assert void.value.wait == 3.0


def test_a_budget_refusal_is_an_answer_where_budgets_are_the_subject() -> None:
    of = world(constantly(Reply(429)), target(budget()))
    with of.subject.channel("QZ-RSV-1", 1, voids_refusals=False):
        assert of.subject.ask(CALL).status == 429


def test_a_declared_refusal_status_replaces_429() -> None:
    of = world(constantly(Reply(503)), target(budget(refusal_status=503)))
    with of.subject.channel("QZ-AUD-1", 1, voids_refusals=True), pytest.raises(VoidError):
        of.subject.ask(CALL)
    of = world(constantly(Reply(429)), target(budget(refusal_status=503)))
    with of.subject.channel("QZ-AUD-1", 1, voids_refusals=True):
        assert of.subject.ask(CALL).status == 429


def test_a_void_moves_to_an_untouched_budget_where_there_is_one() -> None:
    of = world(constantly(Reply(429, (("retry-after", "3"),))), target(budget(), fresh_budgets=True))
    with of.subject.channel("QZ-AUD-1", 1, voids_refusals=True), pytest.raises(VoidError) as void:
        of.subject.ask(CALL)
    assert void.value.wait == 0.0
    with of.subject.channel("QZ-AUD-1", 2, voids_refusals=False):
        of.subject.ask(CALL)
    assert of.tokens.domains == [0, 1]


@pytest.mark.parametrize("told", ["99999", "86400", "²", "-1", "1.5", "nan", "Wed, 21 Oct 2026 07:28:00 GMT", ""])
def test_a_void_never_waits_much_longer_than_the_declared_window(told: str) -> None:
    """The server chooses the header; the wait is ours."""
    of = world(constantly(Reply(429, (("retry-after", told),))), target(budget(window=60.0)))
    with of.subject.channel("QZ-AUD-1", 1, voids_refusals=True), pytest.raises(VoidError) as void:
        of.subject.ask(CALL)
    assert 0 < void.value.wait <= 120


def test_a_second_void_of_a_requirement_waits_for_the_whole_window_whatever_was_told() -> None:
    of = world(constantly(Reply(429, (("retry-after", "0"),))), target(budget(window=60.0)))
    waits: list[float] = []
    for example, channel in ((1, "QZ-DEN-1"), (2, "QZ-DEN-1"), (3, "QZ-DEN-2")):
        with of.subject.channel(channel, example, voids_refusals=True), pytest.raises(VoidError) as void:
            of.subject.ask(CALL)
        waits.append(void.value.wait)
    assert waits == [0.0, pytest.approx(61.2), 0.0]


def test_an_untouched_budget_is_waited_for_at_most_one_window() -> None:
    of = world(of=target(budget(window=60.0)))
    of.subject.fresh_budget()
    assert of.clock.slept == []  # nothing was charged yet
    of.subject.ask(CALL)
    of.clock.now += 20
    of.subject.fresh_budget()
    assert of.clock.slept == [pytest.approx(60 * 1.02 - 20)]
    of.subject.fresh_budget()
    assert len(of.clock.slept) == 1


def test_free_methods_refused_tokens_and_other_verbs_are_not_counted_as_charged() -> None:
    of = world(of=target(budget()))
    of.subject.ask(LIST)
    of.subject.ask(Ask(method="tools/call", params=CALL.params, token=TokenRecipe(caller="broad", issuer="stranger")))
    of.subject.ask(Ask(method="", verb="DELETE", token=BROAD))
    assert of.subject.spent.charged == 0
    of.subject.ask(CALL)
    assert of.subject.spent.charged == 1


# --- sending again --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", [True, False])
def test_a_call_that_may_have_been_charged_is_never_sent_again(declared: bool) -> None:
    """Undeclared, a budget may exist all the same, and a tool may have run."""
    of = world(failing(ConnectionClosedError, sent=0.5), target(budget() if declared else None))
    with pytest.raises(UntestableError, match="QZ_E_CONNECTION_CLOSED"):
        of.subject.ask(CALL)
    assert len(of.transport.sent) == 1
    assert of.subject.spent.retried == 0


def test_a_charged_call_of_which_nothing_was_sent_is_sent_once_more() -> None:
    of = world(failing(ConnectionClosedError, sent=None, times=1), target(budget()))
    of.subject.ask(LIST)
    assert len(of.transport.sent) == 2
    assert of.subject.spent.retried == 1


def test_a_listing_is_sent_once_more_and_no_more() -> None:
    of = world(failing(MalformedAnswerError, sent=0.5, reason="bad"), target(budget()))
    with pytest.raises(UntestableError, match="QZ_E_MALFORMED"):
        of.subject.ask(LIST)
    assert len(of.transport.sent) == 2


@pytest.mark.parametrize(
    ("error", "members"), [(AnswerTimedOutError, {"timeout": 1.0}), (CannotConnectError, {"reason": "refused"})]
)
def test_what_waiting_would_not_mend_is_not_sent_again(error: type[TransportError], members: dict[str, Any]) -> None:
    of = world(failing(error, sent=None, **members))
    with pytest.raises(UntestableError):
        of.subject.ask(LIST)
    assert len(of.transport.sent) == 1


def test_a_request_without_an_answer_says_in_which_way_there_is_none() -> None:
    """A property may be about just that: a token that breaks the server."""
    of = world(failing(ConnectionClosedError, sent=0.5, reset=True))
    with pytest.raises(NoAnswerError) as none:
        of.subject.ask(LIST)
    assert none.value.code == "QZ_E_CONNECTION_CLOSED"


def test_no_more_requests_are_sent_than_allowed() -> None:
    of = world(limits=Limits(requests=2))
    of.subject.ask(LIST)
    of.subject.ask(LIST)
    with pytest.raises(UntestableError, match="--max-requests"):
        of.subject.ask(LIST)
    assert len(of.transport.sent) == 2


def test_a_rate_is_kept_by_sleeping() -> None:
    of = world(limits=Limits(rate=4.0))
    for _ in range(3):
        of.subject.ask(LIST)
    assert sum(of.clock.slept) >= 0.5


# --- secrets and origins --------------------------------------------------------------------------------------------


def echoing(tokens: FakeTokens) -> Any:
    """A server that says the token again wherever an answer has room."""

    def answering(sent: Sent) -> Reply:
        headers = (("x-echo", f"got {sent.token}"), (f"x-{sent.token}", "1"))
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": sent.token}})
        return Reply(400, headers, body, start=f"HTTP/1.1 400 no {sent.token}")

    return answering


def test_an_echoed_token_is_nowhere_in_an_exchange_or_a_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    of = world(echoing, history=path)
    of.history.header(target=None)
    exchange = of.subject.ask(LIST)
    of.history.close()
    (token,) = of.tokens.recipes
    pieces = [token, *token.split(".")[1:]]
    written = path.read_text(encoding="utf-8") + repr(exchange)
    assert [piece for piece in pieces if piece in written] == []
    assert of.subject.spent.redacted == 1
    assert len(exchange.response.header("x-echo") or "") == len(f"got {token}")
    assert of.transport.sent[0].token == token  # it was sent all the same


def test_a_document_is_fetched_without_credentials() -> None:
    of = world(constantly(Reply(200, (), "{}")))
    exchange = of.subject.fetch("http://127.0.0.1:9/.well-known/oauth-protected-resource?a=b")
    (sent,) = of.transport.sent
    assert (sent.verb, sent.target, sent.token) == ("GET", "/.well-known/oauth-protected-resource?a=b", "")
    assert exchange.status == 200


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:10/doc",
        "https://127.0.0.1:9/doc",
        "http://user@127.0.0.1:9/doc",
        "http://127.0.0.1.evil.example:9/doc",
        "//127.0.0.1:9/doc",
        "/doc",
        "file:///etc/passwd",
        "http://[::1",
        "http://127.0.0.1:9@evil.example/doc",
        "",
    ],
)
def test_a_document_of_another_origin_is_never_fetched(url: str) -> None:
    """The URL stands in a challenge, so the server chooses it: whatever it is, it is no fault of the judge."""
    of = world()
    with pytest.raises(UntestableError):
        of.subject.fetch(url)
    assert of.transport.sent == []


def test_a_redirect_is_not_followed() -> None:
    of = world(constantly(Reply(307, (("location", "http://127.0.0.1:9/elsewhere"),))))
    assert of.subject.ask(LIST).status == 307
    assert len(of.transport.sent) == 1


# --- sessions and ids -----------------------------------------------------------------------------------------------


def with_sessions(tokens: FakeTokens) -> Any:
    honest, opened = FakeServer(tokens), [0]

    def answering(sent: Sent) -> Reply:
        if sent.method == "initialize":
            opened[0] += 1
            greeting = result(sent, serverInfo={"name": "old"})
            return Reply(200, (*greeting.headers, ("Mcp-Session-Id", f"session-{opened[0]}")), greeting.body)
        return Reply(202) if sent.method.startswith("notifications/") else honest(sent)

    return answering


def header(sent: Sent, name: str) -> str | None:
    return next((value for key, value in sent.headers if key == name), None)


def test_each_caller_has_a_session_of_its_own_on_the_stateful_wire() -> None:
    of = world(with_sessions)
    of.subject.connect("2025-11-25")
    used = {
        (of.tokens.recipes[s.token].caller, header(s, "Mcp-Session-Id"))
        for s in of.transport.sent
        if s.method == "tools/list"
    }
    assert len(used) == 2
    assert len({session for _, session in used}) == 2


def test_a_session_that_cannot_be_opened_leaves_the_example_untestable() -> None:
    of = world(constantly(Reply(500)))
    of.subject.wire = "2025-11-25"
    with pytest.raises(UntestableError, match="a good token of broad opens no session"):
        of.subject.ask(LIST)


def test_request_ids_are_never_used_twice_and_have_the_same_length() -> None:
    of = world(with_sessions)
    of.subject.connect("auto")
    for _ in range(20):
        of.subject.ask(CALL)
    ids = [sent.message["id"] for sent in of.transport.sent if "id" in sent.message]
    assert len(set(ids)) == len(ids)
    assert {len(str(one)) for one in ids} == {6}


def test_roles_are_counted_for_each_example_and_for_the_run() -> None:
    of = world()
    with of.subject.channel("QZ-AUD-1", 1) as counts:
        of.subject.ask(LIST, Role.CONTROL)
        of.subject.ask(LIST, Role.PROBE)
        of.subject.ask(LIST)
    assert (counts.requests, counts.by_role) == (3, {"control": 1, "probe": 2})
    assert of.subject.spent.by_role == counts.by_role


def test_the_sanity_probe_tells_a_dead_server_from_a_live_one() -> None:
    assert world().subject.is_alive()
    assert not world(constantly(Reply(500))).subject.is_alive()
    assert not world(failing(AnswerTimedOutError, sent=0.0, timeout=1.0)).subject.is_alive()


# --- short tokens and open streams ----------------------------------------------------------------------------------


class Numbering(FakeTokens):
    """A source whose tokens are all different."""

    def token(self, recipe: TokenRecipe, domain: int) -> str:
        self.domains.append(domain)
        return f"token-number-{len(self.domains)}"


def test_a_token_with_a_moment_of_its_own_is_the_same_within_an_example_alone() -> None:
    of = world(constantly(Reply(401)))
    of.subject._tokens = _ExampleTokens(Numbering())
    soon = TokenRecipe(caller="broad", claims=(Claim("exp", SecondsFromNow(2)),))
    sent: list[str] = []
    for _ in range(2):
        of.subject.begin_example()
        for recipe in (soon, soon, soon.fresh(1)):
            of.subject.ask(Ask(method="tools/list", token=recipe))
            sent.append(of.transport.sent[-1].token)
    assert [text.removeprefix("token-number-") for text in sent] == ["1", "1", "2", "3", "3", "4"]


class Streaming(Transport):
    """Opens a stream that says one thing, and then nothing until the caller has waited long enough."""

    def __init__(self, error: type[TransportError], started: bool = True, **members: Any) -> None:
        super().__init__("http", "127.0.0.1", 9, lambda: 0.0)
        self.timeouts: list[float] = []
        self.error, self.started, self.members = error, started, members

    def exchange(
        self,
        method: str,
        target: str,
        headers: Any,
        body: bytes,
        *,
        timeout: float,
        size_cap: int,
        done: Callable[[bytes], bool] | None = None,
    ) -> Received:
        self.timeouts.append(timeout)
        assert done is None
        head = (("content-type", "text/event-stream"),)
        partial = Received("HTTP/1.1 200 OK", head, b": ping\n\n", 1.0, 1.1, 1.2) if self.started else None
        raise self.error(origin="http://127.0.0.1:9", sent=1.0, ended=5.0, partial=partial, **self.members)


@pytest.mark.parametrize(("error", "members"), [(AnswerTimedOutError, {"timeout": 4.0}), (ConnectionClosedError, {})])
def test_a_stream_is_listened_to_until_its_end_or_for_so_many_seconds(
    error: type[TransportError], members: dict[str, Any]
) -> None:
    of = world()
    transport = of.subject._transport = Streaming(error, **members)
    answer = of.subject.ask(Ask(method="", verb="GET", token=BROAD, listen=4.0))
    assert (answer.status, answer.response.body) == (200, ": ping\n\n")
    assert (answer.at.first - answer.at.sent, answer.at.last - answer.at.sent) == pytest.approx((0.1, 4.0))
    assert transport.timeouts == [4.0]


def test_a_stream_that_never_began_is_no_answer() -> None:
    of = world()
    of.subject._transport = Streaming(AnswerTimedOutError, started=False, timeout=4.0)
    with pytest.raises(UntestableError, match="QZ_E_TIMED_OUT"):
        of.subject.ask(Ask(method="", verb="GET", token=BROAD, listen=4.0))

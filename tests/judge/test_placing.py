"""A token stands where its place says, byte for byte, and in no recording."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from judge_support import FakeTokens, Reply, Sent, World, world

from quenchz.history import read_history
from quenchz.mint import secrets_in
from quenchz_spec.codec import encode
from quenchz_spec.vocabulary import Ask, Credential, Place, Role, Shape, TokenRecipe

if TYPE_CHECKING:
    from pathlib import Path

BROAD, NARROW = TokenRecipe(caller="broad"), TokenRecipe(caller="narrow")
SHOWN = "(the token of broad; see ask.token)"


def constantly(tokens: FakeTokens) -> Any:
    return lambda sent: Reply(401)


def asked(wire: str = "2026-07-28", **members: Any) -> tuple[World, Sent, Any]:
    """Ask once; return the world, what was sent and the request as it is recorded."""
    of = world(constantly)
    of.subject.wire = wire
    exchange = of.subject.ask(Ask(method="tools/list", session="", **members))
    (sent,) = of.transport.sent
    return of, sent, exchange.request


def token_of(of: World, recipe: TokenRecipe = BROAD) -> str:
    return next(token for token, known in of.tokens.recipes.items() if known == recipe)


def fields(message: Any, *names: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value in message.headers if name.lower() in names]


FIELDS = {
    Place.FIELD: ("Authorization", "Bearer %s"),
    Place.SMALL_SCHEME: ("Authorization", "bearer %s"),
    Place.MIXED_SCHEME: ("Authorization", "bEARER %s"),
    Place.NO_SCHEME: ("Authorization", "%s"),
    Place.OTHER_SCHEME: ("Authorization", "Token %s"),
    Place.BASIC: ("Authorization", "Basic %s"),
    Place.JOINED: ("Authorization", ", Bearer %s"),
    Place.COOKIE: ("Cookie", "access_token=%s"),
    Place.X_FIELD: ("X-Access-Token", "%s"),
    Place.FORWARDED_FIELD: ("X-Forwarded-Authorization", "Bearer %s"),
    Place.PROXY_FIELD: ("Proxy-Authorization", "Bearer %s"),
}


@pytest.mark.parametrize("place", list(FIELDS), ids=lambda place: place.name)
def test_a_token_stands_in_one_more_field_and_nowhere_else(place: Place) -> None:
    _, bare, _ = asked()
    of, sent, recorded = asked(token=BROAD, place=place)
    name, value = FIELDS[place]
    token = token_of(of)
    text = base64.b64encode(f":{token}".encode()).decode() if place is Place.BASIC else token
    assert sent.headers == (*bare.headers, (name, value % text))
    assert (sent.target, sent.body) == (bare.target, bare.body)
    assert recorded.headers == (*bare.headers, (name, value % SHOWN))
    assert (recorded.start, recorded.body) == ("POST /mcp HTTP/1.1", bare.body.decode())


def test_a_token_in_the_query_is_appended_to_the_target() -> None:
    _, bare, _ = asked()
    of, sent, recorded = asked(token=BROAD, place=Place.QUERY)
    assert sent.target == f"/mcp?access_token={token_of(of)}"
    assert recorded.start == f"POST /mcp?access_token={SHOWN} HTTP/1.1"
    assert (sent.headers, sent.body) == (bare.headers, bare.body)


def test_a_token_in_a_form_is_the_whole_body() -> None:
    of, sent, recorded = asked(token=BROAD, place=Place.FORM)
    assert sent.body == f"access_token={token_of(of)}".encode()
    assert fields(sent, "content-type") == [("Content-Type", "application/x-www-form-urlencoded")]
    assert recorded.body == f"access_token={SHOWN}"


@pytest.mark.parametrize("wire", ["2026-07-28", "2025-11-25"])
def test_a_token_in_the_message_stands_beside_the_method_or_among_the_metadata(wire: str) -> None:
    _, bare, _ = asked(wire)
    for place in (Place.BODY, Place.META):
        of, sent, recorded = asked(wire, token=BROAD, place=place)
        for text, body in ((token_of(of), sent.body), (SHOWN, recorded.body)):
            message = json.loads(body)
            inside = message if place is Place.BODY else message["params"]["_meta"]
            assert inside.pop("access_token") == text
            usual = json.loads(bare.body)
            if place is Place.META:
                usual.setdefault("params", {}).setdefault("_meta", {})
            assert message == usual
        assert sent.headers == bare.headers


def test_letters_that_a_query_or_a_form_may_not_hold_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeTokens, "token", lambda *_: '{"payload":"cGF5bG9hZA==&x"}')
    for place in (Place.QUERY, Place.FORM):
        of = world(constantly)
        of.subject.ask(Ask(method="tools/list", token=BROAD, place=place))
        (sent,) = of.transport.sent
        written = "access_token=%7B%22payload%22%3A%22cGF5bG9hZA%3D%3D%26x%22%7D"
        assert written in (sent.target.partition("?")[2], sent.body.decode())


def test_a_second_token_has_a_field_of_its_own_or_stands_after_a_comma() -> None:
    of, sent, recorded = asked(token=BROAD, also=(Credential(NARROW),))
    tokens = [token_of(of), token_of(of, NARROW)]
    assert fields(sent, "authorization") == [("Authorization", f"Bearer {token}") for token in tokens]
    assert [value for _, value in fields(recorded, "authorization")] == [
        f"Bearer {SHOWN}",
        "Bearer (the token of narrow; see ask.token)",
    ]
    of, sent, recorded = asked(token=BROAD, also=(Credential(NARROW, Place.JOINED), Credential(BROAD, Place.QUERY)))
    tokens = [token_of(of), token_of(of, NARROW)]
    assert fields(sent, "authorization") == [("Authorization", f"Bearer {tokens[0]}, Bearer {tokens[1]}")]
    assert sent.target == f"/mcp?access_token={tokens[0]}"
    assert fields(recorded, "authorization") == [
        ("Authorization", f"Bearer {SHOWN}, Bearer (the token of narrow; see ask.token)")
    ]


def test_an_empty_token_leaves_the_scheme_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeTokens, "token", lambda *_: "")
    of = world(constantly)
    of.subject.ask(Ask(method="tools/list", token=TokenRecipe(caller="broad", shape=Shape.EMPTY)))
    assert fields(of.transport.sent[0], "authorization") == [("Authorization", "Bearer")]


def test_extra_fields_replace_those_of_the_same_name_in_any_case() -> None:
    extra = (("hOST", "evil.example"), ("accept", "*/*"), ("X-More", "1"), ("X-More", "2"))
    of, sent, recorded = asked(token=BROAD, headers=extra)
    assert fields(sent, "host", "accept", "x-more") == list(extra)
    assert fields(sent, "authorization") == [("Authorization", f"Bearer {token_of(of)}")]
    assert fields(recorded, "host", "accept", "x-more") == list(extra)
    written = of.transport.headers_sent("POST", sent.headers, sent.body)
    assert [value for name, value in written if name.lower() == "host"] == ["evil.example"]


def test_a_document_is_fetched_with_extra_fields() -> None:
    of = world(constantly)
    extra = (("Host", "evil.example"), ("X-Forwarded-Host", "evil.example"))
    exchange = of.subject.fetch("http://127.0.0.1:9/doc", Role.PROBE, extra)
    (sent,) = of.transport.sent
    assert fields(sent, "host", "x-forwarded-host") == list(extra)
    assert exchange.ask == Ask(method="", verb="GET", params={"url": "/doc"}, headers=extra)


# --- secrets --------------------------------------------------------------------------------------------------------


def echoing_everything(tokens: FakeTokens) -> Any:
    """A server that repeats the whole request."""

    def answering(sent: Sent) -> Reply:
        said = "\n".join([sent.target, *(": ".join(field) for field in sent.headers), sent.body.decode("latin-1")])
        return Reply(400, (("x-target", sent.target),), said)

    return answering


@pytest.mark.parametrize("place", list(Place), ids=lambda place: place.name)
def test_a_token_in_any_place_is_in_no_recording(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    of = world(echoing_everything, history=path)
    of.history.header(
        target=encode(of.subject.target), url="u", wire="w", seed=1, profile="p", level="must", ids=[], allowed=[]
    )
    with of.subject.channel("QZ-AUD-21", 1):
        exchange = of.subject.ask(Ask(method="tools/list", token=BROAD, place=place, also=(Credential(NARROW, place),)))
    of.history.close()
    written = path.read_text(encoding="utf-8") + repr(exchange)
    for token in of.tokens.recipes:
        basic = base64.b64encode(f":{token}".encode())
        assert [piece for piece in [*secrets_in(token), basic] if piece.decode() in written] == []
        # It was sent all the same, except where the body of one form replaces that of another.
        sent = repr(of.transport.sent)
        assert token in sent or basic.decode() in sent or place in (Place.FORM, Place.BODY, Place.META)
    assert exchange.echoed
    (read,) = read_history(path).exchanges["QZ-AUD-21", 1]
    assert read.echoed
    assert read.ask == exchange.ask


def test_an_answer_without_a_token_is_not_called_an_echo(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    of = world(constantly, history=path)
    assert not of.subject.ask(Ask(method="tools/list", token=BROAD)).echoed
    of.history.header()
    of.history.close()
    assert '"echoed"' not in path.read_text(encoding="utf-8")

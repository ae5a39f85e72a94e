"""A history read back is what was written, and what is no history is refused by file and line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_support import budget, target, world

from quenchz.history import ExampleRecord, HistoryError, HistoryWriter, read_history
from quenchz_spec.codec import encode
from quenchz_spec.vocabulary import Ask, Exchange, Message, Moments, Role, TokenRecipe

if TYPE_CHECKING:
    from pathlib import Path

ASK = Ask(
    method="tools/call",
    params={"name": "read", "arguments": {"!": 1, "deep": [None, 1.5]}},
    token=TokenRecipe(caller="broad"),
)
HEADER: dict[str, Any] = {
    "law": "quenchz-1",
    "url": "http://127.0.0.1:9/mcp",
    "wire": "2026-07-28",
    "seed": 7,
    "profile": "smoke",
    "level": "quenchz",
    "ids": ["QZ-AUD-1"],
    "allowed": [],
    "target": encode(target(budget())),
}
BYTES = st.binary(max_size=40).map(lambda data: data.decode("latin-1"))
MESSAGES = st.builds(
    Message,
    st.just("HTTP/1.1 200 OK"),
    st.lists(st.tuples(st.sampled_from(["X-A", "x-a", "ETag"]), BYTES)).map(tuple),
    BYTES,
)
EXCHANGES = st.builds(
    Exchange,
    st.just(ASK),
    st.sampled_from(Role),
    MESSAGES,
    MESSAGES,
    st.builds(Moments, *[st.integers(0, 10**9).map(lambda us: us / 10**6)] * 3),
    st.none() | st.integers(100_000, 999_999),
)


def example(**members: Any) -> ExampleRecord:
    defaults = {"requirement": "QZ-AUD-1", "number": 3, "phase": "table", "row": "a", "arguments": 1, "outcome": "held"}
    return ExampleRecord(**{**defaults, **members})


def written(path: Path, *lines: object) -> Path:
    path.write_text(
        "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), encoding="utf-8"
    )
    return path


@settings(max_examples=50, deadline=None)
@given(st.lists(EXCHANGES, max_size=4))
def test_every_byte_of_every_exchange_comes_back(
    tmp_path_factory: pytest.TempPathFactory, exchanges: list[Exchange]
) -> None:
    path = tmp_path_factory.mktemp("history") / "history.jsonl"
    writer = HistoryWriter(path)
    writer.header(**HEADER)
    for exchange in exchanges:
        writer.exchange("QZ-AUD-1", 3, exchange)
    writer.example(example())
    writer.close()
    history = read_history(path)
    assert history.exchanges["QZ-AUD-1", 3] == exchanges
    assert history.target == target(budget())
    assert history.examples == [example()]
    assert {key: history.header[key] for key in HEADER} == HEADER


def test_what_happened_before_the_header_stands_after_it(tmp_path: Path) -> None:
    """The wire is known only once the target has been asked, and asking it is part of the history."""
    path = tmp_path / "history.jsonl"
    of = world(history=path)
    of.subject.connect("auto")
    of.history.header(**HEADER)
    of.history.example(example())
    of.history.close()
    kinds = [json.loads(line)["kind"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert kinds[0] == "header"
    assert kinds[-1] == "example"
    assert set(kinds[1:-1]) == {"exchange"}
    setup = read_history(path).exchanges["setup", 1]
    assert {exchange.ask.method for exchange in setup} >= {"tools/list", "prompts/list"}


def test_a_history_is_plain_ascii_whatever_a_server_says(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    writer = HistoryWriter(path)
    writer.header(**HEADER, note="\ud800 \u2028 é")
    writer.close()
    assert path.read_bytes().isascii()
    assert read_history(path).header["note"] == "\ud800 \u2028 é"


def test_a_run_without_a_history_writes_none(tmp_path: Path) -> None:
    writer = HistoryWriter(None)
    writer.header(**HEADER)
    writer.example(example())
    writer.close()
    assert list(tmp_path.iterdir()) == []


EXCHANGE: dict[str, Any] = {
    "kind": "exchange",
    "channel": "QZ-AUD-1",
    "example": 3,
    "role": "probe",
    "ask": encode(ASK),
    "request": {"start": "POST /mcp HTTP/1.1", "headers": [], "body": ""},
    "response": {"start": "HTTP/1.1 200 OK", "headers": [], "body": ""},
    "at": [0, 1, 2],
    "rpc_id": 1,
}
EXAMPLE: dict[str, Any] = {
    "kind": "example",
    **{k: v for k, v in vars(example()).items() if k not in ("seconds", "violation", "recipes")},
}
HEADER_LINE = {"kind": "header", "quenchz_history": 1, **HEADER}


def without(line: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != key}


def test_the_lines_that_the_next_test_breaks_are_good(tmp_path: Path) -> None:
    history = read_history(written(tmp_path / "h", HEADER_LINE, "", EXCHANGE, EXAMPLE))
    assert (len(history.exchanges), len(history.examples)) == (1, 1)


BROKEN: dict[str, object] = {
    "no JSON": "{",
    "an array": [],
    "a number": 5,
    "null": None,
    "no kind": {},
    "an exchange without a role": without(EXCHANGE, "role"),
    "an exchange without an ask": without(EXCHANGE, "ask"),
    "an exchange without moments": without(EXCHANGE, "at"),
    "an exchange of an unknown role": {**EXCHANGE, "role": "spectator"},
    "an exchange that asks a text": {**EXCHANGE, "ask": "tools/list"},
    "an exchange that asks an unknown kind": {**EXCHANGE, "ask": {"!": "Question", "method": "x"}},
    "an exchange with two moments": {**EXCHANGE, "at": [0, 1]},
    "an exchange with a lame header": {**EXCHANGE, "response": {"start": "", "headers": [["a"]], "body": ""}},
    "an exchange without a response": {**EXCHANGE, "response": None},
    "an exchange of a listed channel": {**EXCHANGE, "channel": ["QZ-AUD-1"]},
    "an example with a stranger": {**EXAMPLE, "colour": "blue"},
    "an example without an outcome": without(EXAMPLE, "outcome"),
    "an example of unknown arguments": {**EXAMPLE, "arguments": {"!": "Question"}},
    "JSON nested deeply": "[" * 100_000,
}


@pytest.mark.parametrize("line", list(BROKEN.values()), ids=list(BROKEN))
def test_a_malformed_line_is_named_by_file_and_number(line: object, tmp_path: Path) -> None:
    path = written(tmp_path / "h.jsonl", HEADER_LINE, EXCHANGE, line, EXAMPLE)
    with pytest.raises(HistoryError, match=r"h\.jsonl: line 3 "):
        read_history(path)


BROKEN_HEADERS: dict[str, object] = {
    "another format": {**HEADER_LINE, "quenchz_history": 2},
    "no format": without(HEADER_LINE, "quenchz_history"),
    "no target": without(HEADER_LINE, "target"),
    "a target of another kind": {**HEADER_LINE, "target": encode(ASK)},
    "a target that is text": {**HEADER_LINE, "target": "http://127.0.0.1:9/mcp"},
    "no ids": without(HEADER_LINE, "ids"),
    "no level": without(HEADER_LINE, "level"),
    "an unknown level": {**HEADER_LINE, "level": "perhaps"},
    "a seed that is text": {**HEADER_LINE, "seed": "seven"},
    "an exchange first": EXCHANGE,
}


@pytest.mark.parametrize("line", list(BROKEN_HEADERS.values()), ids=list(BROKEN_HEADERS))
def test_a_malformed_header_is_named_by_its_file(line: object, tmp_path: Path) -> None:
    path = written(tmp_path / "h.jsonl", line, EXAMPLE)
    with pytest.raises(HistoryError, match=r"h\.jsonl"):
        read_history(path)


@pytest.mark.parametrize("lines", [(), ("", "")])
def test_an_empty_file_is_no_history(lines: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"h\.jsonl: the file is empty"):
        read_history(written(tmp_path / "h.jsonl", *lines))


def test_a_missing_file_a_folder_and_bytes_that_are_no_text_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("missing", "", "binary"):
        with pytest.raises(HistoryError, match=str(tmp_path)):
            read_history(tmp_path / name)

"""A run as JSON Lines: a header, then every exchange and every example, in order.

Line kinds: `header` (target, law, wire, seed), `exchange` (channel, example, role, ask, request, response, times) and
`example` (requirement, number, phase, arguments, outcome). A channel is a requirement's id, or `setup`, `session`,
`mask:KIND` for what the driver does around the properties. Tokens appear as recipes only.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from quenchz_spec.codec import NotPlainDataError, decode, encode
from quenchz_spec.requirement import law
from quenchz_spec.subject import Target
from quenchz_spec.vocabulary import Ask, Exchange, Message, Moments, Role

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator
    from pathlib import Path


FORMAT = 1


class HistoryError(ValueError):
    """The file is no history that this release can judge; the text names the line and the reason."""


@dataclass(frozen=True)
class ExampleRecord:
    """What happened in one example of one requirement.

    `phase` is `table`, `generate`, `shrink` or `confirm`; `outcome` is `held`, `violated`, `control-failed`,
    `untestable`, `not-declared`, `void` or `harness-error`; `detail` explains it in words. `recipes` are those of the
    tokens that its probes held.
    """

    requirement: str
    number: int
    phase: str
    row: str
    arguments: Any
    outcome: str
    detail: str = ""
    controls: int = 0
    probes: int = 0
    requests: int = 0
    seconds: float = 0.0
    violation: dict[str, Any] | None = None
    recipes: frozenset[Hashable] = frozenset()


class HistoryWriter:
    """Writes a history line by line; without a path it writes nothing."""

    def __init__(self, path: Path | None) -> None:
        self._file: IO[str] | None = None if path is None else path.open("w", encoding="utf-8", newline="\n")
        self._waiting: list[str] | None = []

    def header(self, **members: Any) -> None:
        """Write the header, and after it what came before it was known."""
        waiting, self._waiting = self._waiting or [], None
        self._write({"kind": "header", "quenchz_history": FORMAT, **members})
        if self._file is not None:
            self._file.writelines(waiting)

    def exchange(self, channel: str, example: int, exchange: Exchange) -> None:
        """Write one exchange."""
        if self._file is None:
            return
        line = {
            "kind": "exchange",
            "channel": channel,
            "example": example,
            "role": exchange.role.name.lower(),
            "ask": encode(exchange.ask),
            "request": _message(exchange.request),
            "response": _message(exchange.response),
            "at": [round(t, 6) for t in (exchange.at.sent, exchange.at.first, exchange.at.last)],
            "rpc_id": exchange.rpc_id,
        }
        self._write({**line, "echoed": True} if exchange.echoed else line)

    def example(self, record: ExampleRecord) -> None:
        """Write how an example ended."""
        if self._file is not None:
            members = {k: v for k, v in vars(record).items() if k not in ("seconds", "violation", "recipes")}
            self._write({"kind": "example", **members})

    def close(self) -> None:
        """Finish the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, ensure_ascii=True, separators=(",", ":")) + "\n"
        if self._waiting is not None:
            self._waiting.append(text)
        elif self._file is not None:
            self._file.write(text)


def _message(message: Message) -> dict[str, Any]:
    return {"start": message.start, "headers": [list(h) for h in message.headers], "body": message.body}


@dataclass
class History:
    """A history in memory."""

    target: Target
    header: dict[str, Any]
    exchanges: dict[tuple[str, int], list[Exchange]] = field(
        default_factory=lambda: defaultdict[tuple[str, int], list[Exchange]](list)
    )
    examples: list[ExampleRecord] = field(default_factory=list[ExampleRecord])


def read_history(path: Path) -> History:
    """Read a history.

    Raises:
        HistoryError: the file is missing, or a line is not what this release writes.
    """
    law()  # brings the kinds of plain data that its examples hold
    history: History | None = None
    for number, line in _lines(path):
        try:
            data = json.loads(line)
            kind = data["kind"]
            if kind == "header":
                if data.get("quenchz_history") != FORMAT:
                    raise HistoryError(f"{path}: format {data.get('quenchz_history')!r}; this release reads {FORMAT}")
                history = History(_target(data), data)
            elif history is None:
                raise HistoryError(f"{path}: line {number} comes before the header")
            elif kind == "exchange":
                history.exchanges[data["channel"], data["example"]].append(_exchange(data))
            elif kind == "example":
                members = {k: v for k, v in data.items() if k != "kind"}
                decode(members["arguments"])
                history.examples.append(ExampleRecord(**members))
        except (KeyError, TypeError, ValueError, NotPlainDataError, RecursionError) as error:
            if isinstance(error, HistoryError):
                raise
            raise HistoryError(f"{path}: line {number} is not a line of a history ({error})") from None
    if history is None:
        raise HistoryError(f"{path}: the file is empty; a history begins with a header line")
    return history


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except FileNotFoundError:
        raise HistoryError(f"{path}: no such history; `quenchz check --history FILE` writes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HistoryError(f"{path}: cannot be read ({error})") from None


_HEADER = {"url": str, "wire": str, "seed": int, "profile": str, "level": str, "ids": list, "allowed": list}


def _target(header: dict[str, Any]) -> Target:
    """Return the target of a header line, after a look at the members that a judge needs."""
    target = decode(header["target"])
    if not isinstance(target, Target):
        raise NotPlainDataError("its target is no description of a target")
    misfit = next((name for name, kind in _HEADER.items() if not isinstance(header[name], kind)), None)
    if misfit is not None or header["level"] not in ("must", "quenchz", "should", "observe"):
        raise NotPlainDataError(f"its {misfit or 'level'} is {header[misfit or 'level']!r}")
    return target


def _exchange(data: dict[str, Any]) -> Exchange:
    ask = decode(data["ask"])
    if not isinstance(ask, Ask):
        raise NotPlainDataError(f"an exchange asks {data['ask']!r}")
    sent, first, last = data["at"]
    messages = [
        Message(m["start"], tuple((str(k), str(v)) for k, v in m["headers"]), m["body"])
        for m in (data["request"], data["response"])
    ]
    role, at = Role[data["role"].upper()], Moments(sent, first, last)
    return Exchange(ask, role, messages[0], messages[1], at, data["rpc_id"], data.get("echoed") is True)

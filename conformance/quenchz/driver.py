"""Performs what a property asks for over raw HTTP, and records every exchange."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Hashable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from quenchz import wire as wires
from quenchz.mint import Redactor
from quenchz.placing import Draft, placed, spelled, with_headers
from quenchz.target_file import DEFAULT_FREE
from quenchz.transport import AnswerTimedOutError, CannotConnectError, Received, Transport, TransportError
from quenchz_spec.discovery import discover, learn_mask
from quenchz_spec.masks import Mask
from quenchz_spec.outcomes import ControlError, NoAnswerError, UntestableError, VoidError
from quenchz_spec.shapes import members
from quenchz_spec.subject import Budget, Catalogue, Target
from quenchz_spec.vocabulary import Ask, Exchange, Message, Moments, Role, TokenRecipe

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from quenchz.history import HistoryWriter
    from quenchz.tokens import TokenSource

SIZE_CAP = 40 * 1024 * 1024
ROOM = 8
"""Charged calls that one example of another invariant than the reserves may make."""
LONG_WAIT = 2.0
"""Seconds of waiting that are announced."""


class UnreachableError(Exception):
    """The target answers in no way that a run could begin with; the text says what came."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Manners: at most so many requests in all and per second; seconds to wait for one answer and in all."""

    requests: int = 100_000
    rate: float | None = None
    timeout: float = 15.0


@dataclass
class Spent:
    """What the run has cost so far."""

    requests: int = 0
    charged: int = 0
    waited: float = 0.0
    retried: int = 0
    redacted: int = 0
    by_role: dict[str, int] = field(default_factory=dict[str, int])
    recipes: set[Hashable] = field(default_factory=set[Hashable])  # of the tokens that probes held


@dataclass(frozen=True)
class _Place:
    """Where in the run an exchange belongs, and what a budget refusal means there."""

    channel: str
    example: int
    voids_refusals: bool
    counts: Spent


class _ExampleTokens:
    """The tokens of a source; one with moments of its own is the same within an example, and new in the next."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._kept: list[tuple[TokenRecipe, int, str]] = []

    def forget(self) -> None:
        self._kept.clear()

    def order(self, order: Mapping[str, Any], domain: int) -> dict[str, Any]:
        return self._source.order(order, domain)

    def token(self, recipe: TokenRecipe, domain: int) -> str:
        if not recipe.has_moments:
            return self._source.token(recipe, domain)
        for of, at, token in self._kept:
            if (of, at) == (recipe, domain):
                return token
        self._kept.append((recipe, domain, self._source.token(recipe, domain)))
        return self._kept[-1][2]


class HttpSubject:
    """A server at a URL, as the properties see it (implements `quenchz_spec.subject.Subject`)."""

    def __init__(
        self,
        url: str,
        target: Target,
        tokens: TokenSource,
        history: HistoryWriter,
        *,
        transport: Transport | None = None,
        limits: Limits | None = None,
        sleep: Callable[[float], None] = time.sleep,
        announce: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(url)
        self.url = url
        self.wire = wires.STATELESS
        self.spent = Spent()
        self.server = ""
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._target = target
        self._tokens = _ExampleTokens(tokens)
        self._history = history
        self._limits = limits or Limits()
        self._sleep = sleep
        self._announce = announce
        self._zero = clock()
        self._now: Callable[[], float] = lambda: clock() - self._zero
        self._transport = transport or open_transport(url, clock=clock)
        self._redactor = Redactor()
        self._catalogue = Catalogue()
        self._masks: dict[str, Mask | Exception] = {}
        self._rpc_id = 100_000
        self._domain = 0
        self._domains = 0
        self._charged: dict[str, int] = {}
        self._voided = ""  # the channel of the last example that a budget refusal voided
        self._last_charge = float("-inf")
        self._sessions: dict[tuple[int, str], str | None] = {}
        self._place = _Place("setup", 0, voids_refusals=False, counts=Spent())

    def close(self) -> None:
        """Close the kept connections."""
        self._transport.close()

    # --- the run ----------------------------------------------------------------------------------------------------

    def connect(self, protocol: str) -> None:
        """Find the protocol revision, and read what the callers list.

        Raises:
            UnreachableError: the target speaks neither revision, or lists nothing.
        """
        tried: list[str] = []
        if not self._target.broad:
            raise UnreachableError(self._without_tokens())
        with self.channel("setup", 0, voids_refusals=False):
            for wire in wires.PROTOCOLS if protocol == "auto" else (protocol,):
                self.wire = wire
                try:
                    problem = self._greet()
                except (UntestableError, ControlError) as error:
                    problem = str(error)
                if not problem:
                    break
                tried.append(f"{wire}: {problem}")
            else:
                raise UnreachableError("; ".join(dict.fromkeys(tried)))
        try:
            self._read_listings()
        except (UntestableError, ControlError) as error:
            raise UnreachableError(f"{self.wire}: {error}") from None
        if not self._catalogue.entries.get(self._target.broad):
            raise UnreachableError("; ".join(self._catalogue.problems) or "nothing is listed")

    def _without_tokens(self) -> str:
        """Return why a target without any caller cannot be judged: what it answers, and what to provide."""
        with self.channel("setup", 0, voids_refusals=False):
            try:
                answer = self.ask(Ask(method="server/discover"), Role.SETUP)
            except UntestableError as error:
                return error.missing
        return (
            f"without credentials the server answers {answer.words}, and there is no token to go on with: give "
            "--tokens-file, or tokens.source and callers in a target file (--target)"
        )

    def _greet(self) -> str:
        """Return an empty string if the server speaks the current wire to the broad caller, else what came."""
        token = self.token(self._target.broad)
        if self.wire == wires.STATELESS:
            exchange = self.ask(Ask(method="server/discover", token=token), Role.SETUP)
        else:
            exchange = self._initialize(self._target.broad)
        result = exchange.result
        if result is None:
            return f"{exchange.ask.method} answered {exchange.words}"
        meta = members(result.get("_meta"))
        info = members(result.get("serverInfo")) or members(meta.get("io.modelcontextprotocol/serverInfo"))
        self.server = " ".join(str(info.get(key, "")) for key in ("name", "version")).strip()[:80]
        return ""

    def _read_listings(self) -> None:
        with self.channel("setup", 1, voids_refusals=False):
            self._catalogue = discover(self.ask, self._target)

    def is_alive(self) -> bool:
        """The sanity probe at the end of a run: whether the broad caller still lists tools."""
        with self.channel("setup", 2, voids_refusals=False):
            try:
                token = self.token(self._target.broad)
                return self.ask(Ask(method="tools/list", token=token), Role.SETUP).status == 200
            except (UntestableError, ControlError, VoidError):
                return False

    @contextmanager
    def channel(self, channel: str, example: int, *, voids_refusals: bool = True) -> Generator[Spent, None, None]:
        """Record what happens inside as part of `channel` and `example`; yields the counts of it."""
        kept = self._place
        self._place = _Place(channel, example, voids_refusals, Spent())
        try:
            yield self._place.counts
        finally:
            self._place = kept

    def begin_example(self) -> None:
        """Make room for the charged calls of one example, where a fresh budget costs nothing; forget short tokens."""
        self._tokens.forget()
        budget = self._target.budget
        if budget is None or not self._target.fresh_budgets:
            return
        reserves = {c.name: c.reserve or 0 for c in self._target.callers}
        room = min((r for r in reserves.values() if r), default=0) + budget.pool - ROOM
        if sum(self._charged.values()) > room:
            self._next_domain()

    # --- the verbs of a property ------------------------------------------------------------------------------------

    @property
    def target(self) -> Target:
        """What is known of the server beforehand."""
        return self._target

    @property
    def catalogue(self) -> Catalogue:
        """What the callers list."""
        return self._catalogue

    @property
    def masks(self) -> dict[str, Mask]:
        """The masks learned so far, by kind."""
        return {kind: mask for kind, mask in self._masks.items() if isinstance(mask, Mask)}

    def mask(self, kind: str) -> Mask:
        """Return the mask of a kind, learned on first use on a budget of its own."""
        if kind not in self._masks:
            try:
                self._masks[kind] = self.learn(f"mask:{kind}", kind)
            except (UntestableError, ControlError) as error:
                self._masks[kind] = error
            self.begin_example()
        found = self._masks[kind]
        if isinstance(found, Exception):
            raise found
        return found

    def learn(self, channel: str, kind: str) -> Mask:
        """Learn the mask of a kind now, recorded under `channel`."""
        self.fresh_budget_if_free()
        with self.channel(channel, 0, voids_refusals=False):
            mask = learn_mask(self._paced(), self._target, self._catalogue, kind)
        self.fresh_budget_if_free()
        return mask

    def _paced(self) -> Callable[[Ask, Role], Exchange]:
        """Return `ask`, asking once more after the wait where the budget refuses."""

        def asking(ask: Ask, role: Role) -> Exchange:
            exchange = self.ask(ask, role, record=False)
            budget = self._target.budget
            if budget is not None and exchange.status == budget.refusal_status:
                self.wait(budget.window * 1.02)
                exchange = self.ask(ask, role, record=False)
            self._history.exchange(self._place.channel, self._place.example, exchange)
            return exchange

        return asking

    def token(self, caller: str) -> TokenRecipe:
        """Return the recipe of the good token of a caller."""
        return TokenRecipe(caller=caller)

    def fresh_budget_if_free(self) -> None:
        """Change to an untouched budget, where that costs no wait."""
        if self._target.fresh_budgets:
            self._next_domain()

    def fresh_budget(self) -> None:
        """Change to an untouched budget, or wait until the window of everything charged so far has passed."""
        budget = self._target.budget
        if self._target.fresh_budgets:
            self._next_domain()
        elif budget is not None:
            since = self._now() - self._last_charge
            if since < budget.window:
                self.wait(1.02 * budget.window - since)

    def _next_domain(self) -> None:
        self._domains += 1
        self._domain = self._domains
        self._charged.clear()

    def wait(self, seconds: float) -> None:
        """Sleep, and say so beforehand where a person would wonder."""
        if seconds > 0:
            if seconds >= LONG_WAIT:
                self._announce(f"waiting {seconds:.0f} s")
            self.spent.waited += seconds
            self._sleep(seconds)

    def issuer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Give the issuer an order about the tenant of the current budget, recorded like a request to the target."""
        began = self._now()
        told = self._tokens.order(order, self._domain)
        ended = self._now()
        request = Message("POST /order HTTP/1.1", (), json.dumps(order))
        response = Message("HTTP/1.1 200 OK", (), json.dumps(told))
        ask = Ask(method="", params={"issuer": order})
        exchange = Exchange(ask, Role.SETUP, request, response, Moments(began, ended, ended))
        self._count(exchange, charged=False)
        self._history.exchange(self._place.channel, self._place.example, exchange)
        return told

    def fetch(self, url: str, role: Role = Role.CONTROL, headers: tuple[tuple[str, str], ...] = ()) -> Exchange:
        """GET a document of the target's own origin without credentials."""
        here = urlsplit(self.url)
        try:
            there = urlsplit(url)
        except ValueError:  # no URL at all; the server chose it
            there = urlsplit("")
        if (there.scheme, there.netloc) != (here.scheme, here.netloc):
            raise UntestableError(
                f"the document {url[:120]!r} is not of the origin that was dialled ({here.scheme}://{here.netloc})",
                "dial the server under the origin that it advertises",
            )
        path = (there.path or "/") + (f"?{there.query}" if there.query else "")
        ask = Ask(method="", verb="GET", params={"url": path}, headers=headers)
        usual = [("User-Agent", "quenchz"), ("Accept-Encoding", "identity"), ("Accept", "application/json")]
        return self._perform(ask, role, Draft(path, usual, ""), None, record=True)

    def ask(self, ask: Ask, role: Role = Role.PROBE, *, record: bool = True) -> Exchange:
        """Send one request and return the exchange."""
        self._target.require_declared(ask)
        session = self._session(ask) if self.wire == wires.SESSIONS else None
        self._rpc_id += 1
        headers, body, rpc_id = wires.request(ask, self.wire, self._rpc_id, session)
        return self._perform(ask, role, Draft(self._path, headers, body), rpc_id, record=record)

    # --- sessions of the stateful wire ------------------------------------------------------------------------------

    def _session(self, ask: Ask) -> str | None:
        """Return the session that a request belongs to, opening it with its owner's good token; None for none."""
        tag = ask.session
        if tag is None:
            tag = ask.token.caller if ask.token is not None else ""
        if tag == "" or ask.method == "initialize":
            return None
        key = (self._domain, tag)
        if key not in self._sessions:
            opened = self._initialize(tag.split("/", 1)[0])
            if opened.result is None:
                raise UntestableError(
                    f"a good token of {tag.split('/', 1)[0]} opens no session: {opened.words}",
                    "see whether the server is up, and how many sessions it keeps",
                )
            self._sessions[key] = opened.response.header("mcp-session-id")
        return self._sessions[key]

    def _initialize(self, caller: str) -> Exchange:
        token = self.token(caller)
        with self.channel("session", 0, voids_refusals=self._place.voids_refusals):
            opened = self.ask(Ask(method="initialize", token=token, session=""), Role.SETUP)
            session = opened.response.header("mcp-session-id")
            if opened.result is not None:
                ready = Ask(method="notifications/initialized", token=token)
                headers, body, rpc_id = wires.request(ready, self.wire, self._rpc_id, session)
                self._perform(ready, Role.SETUP, Draft(self._path, headers, body), rpc_id, record=True)
        return opened

    # --- bytes ------------------------------------------------------------------------------------------------------

    def _perform(self, ask: Ask, role: Role, draft: Draft, rpc_id: int | None, *, record: bool) -> Exchange:
        if self.spent.requests >= self._limits.requests:
            raise UntestableError(f"the limit of {self._limits.requests} requests is reached", "raise --max-requests")
        if self._limits.rate:
            self._sleep(1 / self._limits.rate)
        sent, shown = self._with_credentials(ask, draft)
        budget = self._target.budget
        # Where no budget is declared a call may be charged all the same, and a tool may have run.
        costs = ask.verb == "POST" and (_UNDECLARED if budget is None else budget).charges(ask.method)
        charged = budget is not None and costs
        content = shown.body.encode("utf-8", "surrogatepass")
        request = Message(f"{ask.verb} {shown.target} HTTP/1.1", tuple(shown.headers), content.decode("latin-1"))
        if sent.body is not shown.body:
            content = sent.body.encode("utf-8", "surrogatepass")
        received = self._sent(ask, sent.target, sent.headers, content, charged=costs)
        response, at, echoed = self._response(received)
        exchange = Exchange(ask, role, request, response, at, rpc_id, echoed)
        self._count(exchange, charged=charged)
        if record:
            self._history.exchange(self._place.channel, self._place.example, exchange)
        if isinstance(received, TransportError):
            raise transport_failure(exchange)
        self._void_if_refused(exchange)
        return exchange

    def _with_credentials(self, ask: Ask, draft: Draft) -> tuple[Draft, Draft]:
        """Return the request as it is sent, and as a history shows it: without any token."""
        if ask.headers:
            draft = draft._replace(headers=with_headers(draft.headers, ask.headers))
        sent = shown = draft
        asked = [] if ask.token is None else [(ask.token, ask.place)]
        for recipe, place in [*asked, *((one.token, one.place) for one in ask.also)] if ask.also else asked:
            token = self._tokens.token(recipe, self._domain)
            self._redactor.remember(token)
            text = spelled(token, place)
            if text is not token:
                self._redactor.remember(text)
            sent = placed(sent, place, text)
            shown = placed(shown, place, f"(the token of {recipe.caller}; see ask.token)")
        return sent, shown

    def _sent(
        self, ask: Ask, path: str, headers: wires.Headers, content: bytes, *, charged: bool
    ) -> Received | TransportError:
        """Send, and once more after a transport error if that cannot have been charged."""
        for last in (False, True):
            try:
                return self._transport.exchange(
                    ask.verb,
                    path,
                    headers,
                    content,
                    timeout=ask.listen or self._limits.timeout,
                    size_cap=SIZE_CAP,
                    done=None if ask.listen else wires.is_answered if ask.verb == "POST" else _at_once,
                )
            except TransportError as error:
                if ask.listen and error.partial is not None:
                    # However a stream came to its end, this is what was heard until then.
                    return replace(error.partial, last=error.ended)
                if isinstance(error, (AnswerTimedOutError, CannotConnectError)):
                    return error
                if last or (charged and error.sent is not None):
                    return error
                self.spent.retried += 1
        raise AssertionError("unreachable: the second attempt returns")

    def _response(self, received: Received | TransportError) -> tuple[Message, Moments, bool]:
        """Return an answer without any token, its moments, and whether there was one in it."""
        if isinstance(received, TransportError):
            sent = received.ended if received.sent is None else received.sent
            text = f"{received.code}: {received}"
            return Message("", (), text), self._moments(sent, received.ended, received.ended), False
        body, redacted = self._redactor.redact(received.body)
        # The whole head at once: line feeds stand in neither a start line nor a field, so the pieces come apart again.
        pieces = [received.start, *(text for field in received.headers for text in field)]
        head, hit = self._redactor.redact("\n".join(pieces).encode("latin-1"))
        start, *texts = head.decode("latin-1").split("\n") if hit else pieces
        echoed = redacted or hit
        self.spent.redacted += echoed
        message = Message(start, tuple(zip(texts[::2], texts[1::2], strict=True)), body.decode("latin-1"))
        return message, self._moments(received.sent, received.first, received.last), echoed

    def _moments(self, sent: float, first: float, last: float) -> Moments:
        """Return moments of the transport's clock as seconds since the run began."""
        return Moments(sent - self._zero, first - self._zero, last - self._zero)

    def _count(self, exchange: Exchange, *, charged: bool) -> None:
        for counts in (self.spent, self._place.counts):
            counts.requests += 1
            role = exchange.role.name.lower()
            counts.by_role[role] = counts.by_role.get(role, 0) + 1
        if exchange.role is Role.PROBE:
            self._place.counts.recipes.update(recipes_of(exchange.ask))
        if charged and exchange.status != 401:
            self.spent.charged += 1
            caller = exchange.ask.token.caller if exchange.ask.token else ""
            self._charged[caller] = self._charged.get(caller, 0) + 1
            self._last_charge = exchange.at.last

    def _void_if_refused(self, exchange: Exchange) -> None:
        """A budget refusal in an example of another invariant says nothing about it."""
        budget = self._target.budget
        refusal = 429 if budget is None else budget.refusal_status
        if not self._place.voids_refusals or exchange.status != refusal:
            return
        told = exchange.response.header("retry-after") or ""
        # The server chooses the header, but not how long we wait for it; and if what it told was too little (which is
        # what QZ-RSV-8 is about), the whole window is waited for from then on.
        window = budget.window if budget else 1.0
        believed = self._place.channel != self._voided and re.fullmatch(r"[0-9]{1,9}", told)
        wait = min(float(told), 1.02 * window + 1) if believed else 1.02 * window
        self._voided = self._place.channel
        self.fresh_budget_if_free()
        raise VoidError("a budget refusal", 0.0 if self._target.fresh_budgets else wait)


def recipes_of(ask: Ask) -> list[Hashable]:
    """Return the recipes of the tokens that a request holds, as something that can be counted."""
    found = [credential.token for credential in ask.also]
    if ask.token is not None:
        found.append(ask.token)
    return [recipe if _is_hashable(recipe) else repr(recipe) for recipe in found]


def _is_hashable(recipe: TokenRecipe) -> bool:
    try:
        hash(recipe)
    except TypeError:  # a claim holds a list or an object
        return False
    return True


def transport_failure(exchange: Exchange) -> NoAnswerError:
    """Return what an exchange without an answer means for its example."""
    code, _, text = exchange.response.body.partition(": ")
    waited = exchange.at.last - exchange.at.sent
    missing = f"no answer to {exchange.ask.words} ({code}): {text}"
    return NoAnswerError(missing, "see whether the server is up", code, waited)


_UNDECLARED = Budget(limiter="none", budget=0, window=1.0, pool=0, free=DEFAULT_FREE)


def _at_once(_: bytes) -> bool:
    return True


def open_transport(
    url: str, *, clock: Callable[[], float], ca_file: str | None = None, insecure: bool = False
) -> Transport:
    """Return a transport to the origin of `url`."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return Transport(parts.scheme, parts.hostname or "", port, clock=clock, ca_file=ca_file, insecure=insecure)

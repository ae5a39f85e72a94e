"""Byte-identical denials: what a caller may not use and what never existed are the same bytes.

Each property asks, as the narrow caller, for a hidden thing and for a name invented beside it (same length, same
alphabet, same arguments, same framing) and compares the two answers byte for byte under the printed mask.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from quenchz_spec import norms
from quenchz_spec.claims import bearer
from quenchz_spec.discovery import LISTINGS, all_names, concrete, invented, use
from quenchz_spec.masks import Mask, difference
from quenchz_spec.outcomes import ControlError, NotDeclaredError, UntestableError, ViolationError
from quenchz_spec.requirement import Level, Row, requirement
from quenchz_spec.schemas import accepts_anything, arguments_for, only_reads, valid_arguments
from quenchz_spec.shapes import items, members
from quenchz_spec.strategies.denials import ArgumentsForm, Denial, denials, rows
from quenchz_spec.subject import KINDS, Subject
from quenchz_spec.vocabulary import Ask, Exchange, Role, TokenRecipe, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COST = (
    "A caller is never told which scope would have let it in, so a client cannot step up by itself; its operator must "
    "know the scope from elsewhere."
)
CONTROL = "the narrow caller uses a granted thing of the same kind (or lists it, where using it is not read-only)"
CLAIM = norms.ours("For a caller, a thing it may not use and a thing that never existed are the same bytes.")


def hidden_things(subject: Subject, kind: str) -> list[str]:
    """Return what is hidden of `kind`; with nothing hidden the requirement has no object."""
    found = subject.catalogue.hidden(subject.target, kind)
    if not found:
        raise NotDeclaredError(f"any hidden {kind.replace('_', ' ')}")
    return found


def a_granted_thing_works(subject: Subject, kind: str) -> None:
    """The control: the narrow caller gets a result for something of the same kind."""
    target, catalogue = subject.target, subject.catalogue
    token = subject.token(target.narrow)
    for name in catalogue.granted(target, kind):
        if kind == "tools":
            entry = catalogue.entry(target.narrow, kind, name)
            known = next((o for o in target.observations if o.tool == name), None)
            if known is None and not _may_run(subject, name, entry):
                continue
            window = {known.since: "2026-04-01", known.until: "2026-04-02"} if known else {}
            arguments = {**(known.arguments if known else valid_arguments(members(entry.get("inputSchema")))), **window}
            method, params = use(kind, name, arguments)
        elif kind == "prompts":
            listed = map(members, items(catalogue.entry(target.narrow, kind, name).get("arguments")))
            method, params = use(kind, name, {str(argument.get("name")): "USD" for argument in listed})
        else:
            method, params = use(kind, concrete(kind, name))
        answer = subject.ask(Ask(method=method, params=params, token=token), Role.CONTROL)
        if answer.result is not None:
            return
        raise ControlError(f"{target.narrow} uses {name!r}, which it is granted", answer.words)
    answer = subject.ask(Ask(method=LISTINGS[kind][0], token=token), Role.CONTROL)
    if answer.result is None:
        raise ControlError(f"{target.narrow} lists {kind}", answer.words)


def _may_run(subject: Subject, name: str, entry: Mapping[str, Any]) -> bool:
    """Whether a tool may be called with arguments its schema accepts: it only reads, or the target allows it."""
    return only_reads(entry) or name in subject.target.may_call


def a_hidden_thing_is_nonexistent(subject: Subject, kind: str, row: Denial) -> None:
    """Ask for the hidden thing and for an invented one; state that both answers are the same bytes."""
    target, catalogue = subject.target, subject.catalogue
    hidden = hidden_things(subject, kind)
    thing = hidden[row.thing % len(hidden)]
    if kind == "tools" and thing in target.challengeable:
        raise NotDeclaredError(f"{thing!r} as hidden (the target declares it challengeable)")
    mask = subject.mask(kind)
    a_granted_thing_works(subject, kind)
    if row.after_use:
        broad = Ask(method=LISTINGS[kind][0], token=subject.token(target.broad))
        if subject.ask(broad, Role.CONTROL).result is None:
            raise ControlError(f"{target.broad} lists {kind}", "no result")
    entry = catalogue.entry(target.broad, kind, thing)
    schema = members(entry.get("inputSchema")) if kind == "tools" else {}
    if kind == "tools" and not _may_run(subject, thing, entry):
        if accepts_anything(schema):
            raise UntestableError(
                f"the hidden tool {thing!r} accepts any arguments and nothing says that it only reads",
                "allow it under may_call in the target file if running it once would do no harm",
            )
        row = dataclasses.replace(row, form=ArgumentsForm.MISSING)
    arguments = arguments_for(schema, row.form, row.arguments)
    name = concrete(kind, thing)
    taken = all_names(catalogue, kind) | frozenset(hidden)
    other = row.invented or invented(name, row.serial, taken)
    token = subject.token(target.narrow)

    def asked(what: str) -> Exchange:
        method, params = use(kind, what, arguments)
        return subject.ask(Ask(method=method, params=params, token=token))

    absent, present = asked(other), asked(name)
    held = (
        f"a token of {target.narrow}, whose listing lacks {thing!r} while {target.broad} has it; "
        f"{other!r} is invented. Mask: {mask.words}."
    )
    _denied_properly(absent, held)
    found = difference(absent, present, mask, (other, name))
    if found is None:
        return
    _not_noise(subject, kind, (absent, other), arguments, taken | {other}, mask, row.serial + 1)
    granted = present.result is not None and present.result.get("isError") is not True
    grade = "not denied" if granted else "denied but distinguishable"
    raise ViolationError(
        held=held,
        sent=f"{absent.ask.words}, then {present.ask.words}, with the arguments {arguments!r}.",
        received=f"{absent.words} for the invented name, {present.words} for the hidden one: {grade}.",
        expected="the same bytes.",
        signature=f"{grade} by {found.part}",
        compared=(absent, present),
        difference=found.words,
    )


def _not_noise(
    subject: Subject,
    kind: str,
    absent: tuple[Exchange, str],
    arguments: dict[str, Any],
    taken: frozenset[str],
    mask: Mask,
    serial: int,
) -> None:
    """Before anything is claimed, ask for another invented name: noise that the mask missed would show here too."""
    second = invented(absent[1], serial, taken)
    method, params = use(kind, second, arguments)
    try:
        again = subject.ask(Ask(method=method, params=params, token=absent[0].ask.token), Role.NOISE)
    except UntestableError:
        return  # a recorded run that held has no such leg; the pairs before and after it are then the evidence
    if difference(absent[0], again, mask, (absent[1], second)) is not None:
        raise UntestableError(
            "noisy: two invented names are told apart as well", "name the varying header in the target file's mask"
        )


def _denied_properly(absent: Exchange, held: str) -> None:
    """A nonexistent name is denied by a JSON-RPC error or a tool error; a 5xx is no denial."""
    denied = absent.error_code is not None or (absent.result or {}).get("isError") is True
    if absent.status < 500 and denied:
        return
    raise ViolationError(
        held=held,
        sent=f"{absent.ask.words}.",
        received=f"{absent.words}.",
        expected="a denial: a JSON-RPC error or a result with isError, never a server error.",
        signature="an invented name is not denied" if absent.status < 500 else "a server error in place of a denial",
    )


@requirement(
    "QZ-DEN-1",
    level=Level.QUENCHZ,
    claim="A hidden tool is answered as a tool that never existed, byte for byte.",
    norm=CLAIM,
    contrary=norms.MCP_INSUFFICIENT_SCOPE,
    cost=COST,
    control=CONTROL,
    rows=rows(2, ArgumentsForm.NONE, ArgumentsForm.VALID, ArgumentsForm.MISSING, ArgumentsForm.WRONG_TYPE),
    drawn=denials(),
)
def test_a_hidden_tool_is_answered_as_a_nonexistent_one(subject: Subject, row: Denial) -> None:
    """Names and arguments drawn; validation, prices and header checks that come before the denial show here."""
    a_hidden_thing_is_nonexistent(subject, "tools", row)


@requirement(
    "QZ-DEN-2",
    level=Level.QUENCHZ,
    claim="A hidden prompt is answered as a prompt that never existed, byte for byte.",
    norm=CLAIM,
    contrary=norms.MCP_INSUFFICIENT_SCOPE,
    cost=COST,
    control=CONTROL,
    rows=rows(1, ArgumentsForm.NONE, ArgumentsForm.GIVEN),
    drawn=denials(),
)
def test_a_hidden_prompt_is_answered_as_a_nonexistent_one(subject: Subject, row: Denial) -> None:
    """Prompts are found by name, so their names leak the same way."""
    a_hidden_thing_is_nonexistent(subject, "prompts", row)


@requirement(
    "QZ-DEN-3",
    level=Level.QUENCHZ,
    claim="A hidden resource is answered as a resource that never existed, byte for byte.",
    norm=norms.MCP_UNKNOWN_RESOURCE,
    contrary=norms.MCP_INSUFFICIENT_SCOPE,
    cost=COST,
    control=CONTROL,
    rows={
        f"{kind}, {name}": Row(f"{kind.replace('_', ' ')}: {row.words}", (kind, row.value), row.must, row.quenchz)
        for kind in ("resources", "resource_templates")
        for name, row in rows(1, ArgumentsForm.NONE).items()
    },
    drawn=st.tuples(st.sampled_from(("resources", "resource_templates")), denials()),
)
def test_a_hidden_resource_is_answered_as_a_nonexistent_one(subject: Subject, row: tuple[str, Denial]) -> None:
    """Direct resources, and URIs that a hidden template would match."""
    a_hidden_thing_is_nonexistent(subject, *row)


@requirement(
    "QZ-DEN-4",
    level=Level.MUST,
    claim="A hidden thing is on no page of the narrow caller's listings, also when they are asked again.",
    norm=norms.MCP_ACCESS_CONTROL,
    cost="None.",
    control="the broad caller lists the hidden thing, and the narrow caller's listing has a page",
    rows={kind: Row(f"the listing of {kind.replace('_', ' ')}", kind) for kind in KINDS},
    drawn=st.sampled_from(KINDS),
)
def test_a_hidden_thing_is_on_no_page(subject: Subject, row: str) -> None:
    """Asked after the broad caller has listed, so that a cache shared between callers shows."""
    target = subject.target
    declared = {name for kind, name in target.hidden if kind == row}
    if not declared:
        raise NotDeclaredError(f"names of hidden {row.replace('_', ' ')} in its target file")
    method = LISTINGS[row][0]
    seen = {caller: list(_pages(subject, caller, row)) for caller in (target.broad, target.narrow)}
    seen[target.narrow] += _pages(subject, target.narrow, row)
    if not declared <= {name for page in seen[target.broad] for name in _listed(page, row)}:
        raise ControlError(f"{target.broad} lists {sorted(declared)}", "a listing without them")
    for page in seen[target.narrow]:
        if leaked := sorted(_listed(page, row) & declared):
            raise ViolationError(
                held=f"a token of {target.narrow}, from which the target hides {sorted(declared)}.",
                sent=f"{page.ask.words}.",
                received=f"{leaked} in the listing.",
                expected=f"{method} without them.",
                signature="hidden things listed",
            )


def _listed(page: Exchange, kind: str) -> set[str]:
    _, member, key = LISTINGS[kind]
    return {str(members(entry).get(key)) for entry in items((page.result or {}).get(member))}


def _pages(subject: Subject, caller: str, kind: str) -> Iterator[Exchange]:
    cursor: object = None
    for number in range(50):
        params = {"cursor": cursor} if number else {}
        role = Role.PROBE if caller == subject.target.narrow else Role.CONTROL
        page = subject.ask(Ask(method=LISTINGS[kind][0], params=params, token=subject.token(caller)), role)
        if not isinstance((page.result or {}).get(LISTINGS[kind][1]), list):
            raise ControlError(f"{caller} lists {kind}", page.words)
        yield page
        cursor = (page.result or {}).get("nextCursor")
        if not isinstance(cursor, str):
            return


SILENT = {
    "discovery": Row("discovery and initialization", "discovery", "either", "silent"),
    "listings": Row("every listing", "listings", "either", "silent"),
    "denials": Row("denials of invented names", "denials", "either", "silent"),
    "results": Row("results of granted things", "results", "either", "silent"),
    "errors": Row("errors about other things", "errors", "either", "silent"),
    "refusals": Row("refusals and the metadata they point to", "refusals", "either", "silent"),
}


@requirement(
    "QZ-DEN-5",
    level=Level.QUENCHZ,
    claim="No hidden name appears in anything the narrow caller receives.",
    norm=norms.ours("What is hidden is named nowhere: not in listings, errors, instructions, challenges or headers."),
    cost="Error texts cannot list what else there is.",
    control="the broad caller's listing names the hidden things",
    rows=SILENT,
    drawn=st.sampled_from(sorted(SILENT)),
)
def test_no_hidden_name_is_received(subject: Subject, row: str) -> None:
    """Names that are ordinary words are matched only as whole JSON strings."""
    target = subject.target
    hidden = [
        (kind, name)
        for kind in KINDS
        for name in subject.catalogue.hidden(target, kind)
        if name in subject.catalogue.names(target.broad, kind)
    ]
    names = list(dict.fromkeys(written for kind, name in hidden for written in (name, concrete(kind, name))))
    if not names:
        raise NotDeclaredError("any hidden thing that the broad caller lists")
    token = subject.token(target.narrow)
    control = subject.ask(Ask(method="tools/list", token=subject.token(target.broad)), Role.CONTROL)
    if control.result is None:
        raise ControlError(f"{target.broad} lists tools", control.words)
    for exchange in _received(subject, row, token):
        for name in names:
            if (where := _named(exchange, name)) is not None:
                raise ViolationError(
                    held=f"a token of {target.narrow}, from which {name!r} is hidden.",
                    sent=f"{exchange.ask.words}.",
                    received=f"{name!r} in {where}.",
                    expected="an answer that does not name it.",
                    signature=f"a hidden name in {where.split(' ')[0]}",
                )


def _received(subject: Subject, row: str, token: TokenRecipe) -> Iterator[Exchange]:
    asks: list[Ask] = []
    if row == "discovery":
        asks = [Ask(method="server/discover", token=token), Ask(method="initialize", token=token, session="")]
    elif row == "listings":
        asks = [Ask(method=LISTINGS[kind][0], token=token) for kind in KINDS if kind in subject.catalogue.declared]
    elif row == "denials":
        for kind in KINDS:
            for like in subject.catalogue.hidden(subject.target, kind):
                name = invented(concrete(kind, like), 41, all_names(subject.catalogue, kind))
                method, params = use(kind, name)
                asks.append(Ask(method=method, params=params, token=token))
    elif row == "results":
        asks = _granted_uses(subject, token)
    elif row == "errors":
        asks = [
            Ask(method="no/such/method", token=token),
            Ask(method="tools/list", params={"cursor": "quenchz-no-such-cursor"}, token=token),
            Ask(method="tools/call", params={}, token=token),
        ]
    else:
        yield from _refusals(subject, token)
    for ask in asks:
        exchange = subject.ask(ask)
        if exchange.status >= 500:
            raise ControlError(f"{ask.words} is answered", exchange.words)
        yield exchange


def _granted_uses(subject: Subject, token: TokenRecipe) -> list[Ask]:
    """Return requests for what the narrow caller may use without doing anything: prompts and resources."""
    asks: list[Ask] = []
    for kind in ("prompts", "resources", "resource_templates"):
        for name in subject.catalogue.granted(subject.target, kind):
            listed = items(subject.catalogue.entry(subject.target.narrow, kind, name).get("arguments"))
            arguments = {str(members(argument).get("name")): "USD" for argument in listed}
            method, params = use(kind, concrete(kind, name), arguments)
            asks.append(Ask(method=method, params=params, token=token))
    return asks


def _refusals(subject: Subject, token: TokenRecipe) -> Iterator[Exchange]:
    answer = subject.ask(Ask(method="tools/list", session=token.caller))
    if answer.status != 401:
        raise ControlError("a request without credentials is refused with 401", answer.words)
    yield answer
    challenge = bearer(answer)
    url = challenge.parameters.get("resource_metadata") if challenge else None
    if url is None:
        return
    try:
        yield subject.fetch(url, Role.PROBE)
    except UntestableError:
        return  # a document at another origin is not this server's answer; QZ-AUD-9 says that it was not read


def _named(exchange: Exchange, name: str) -> str | None:
    """Return where `name` stands in an answer, or None."""
    ordinary = re.fullmatch(r"[a-z]+", name) is not None
    pattern = re.compile(re.escape(f'"{name}"' if ordinary else name))
    # A name may also be written with JSON escapes, which a reader undoes.
    message = parse_json(exchange.response.body.encode("latin-1")) if "\\" in exchange.response.body else None
    if pattern.search(exchange.response.body) or pattern.search(json.dumps(message, ensure_ascii=False)):
        return "the body"
    found = next((key for key, value in exchange.response.headers if not ordinary and pattern.search(value)), None)
    return None if found is None else f"the header {found}"


@requirement(
    "QZ-DEN-6",
    level=Level.MUST,
    claim="A listing that depends on the caller is private on every page.",
    norm=norms.MCP_PUBLIC_SHARED,
    cost="A shared cache cannot serve the listing.",
    control="the two callers' listings differ",
    rows={kind: Row(f"the listing of {kind.replace('_', ' ')}", kind) for kind in KINDS},
    drawn=st.sampled_from(KINDS),
)
def test_a_caller_dependent_listing_is_private(subject: Subject, row: str) -> None:
    """MCP's `cacheScope`, and HTTP's own Cache-Control, which a proxy reads."""
    target, catalogue = subject.target, subject.catalogue
    if catalogue.names(target.broad, row) == catalogue.names(target.narrow, row):
        raise NotDeclaredError(f"{row.replace('_', ' ')} that depend on the caller")
    for caller in (target.broad, target.narrow):
        for page in _pages(subject, caller, row):
            scope = (page.result or {}).get("cacheScope")
            shared = [v for v in page.response.all("cache-control") if re.search(r"\bpublic\b|\bs-maxage\b", v)]
            if scope == "public" or shared:
                raise ViolationError(
                    held=f"listings of {target.broad} and {target.narrow} that differ.",
                    sent=f"{page.ask.words}.",
                    received=f"cacheScope {scope!r}, Cache-Control {shared}.",
                    expected="cacheScope private (or none), and no shared-cache header.",
                    signature="a caller-dependent listing is public",
                )

"""Audience equality, refusals: what a caller without a good token is told, and what not."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hypothesis import strategies as st

from quenchz_spec import norms
from quenchz_spec.admissions import REFUSALS, control_refused, the_refusal
from quenchz_spec.claims import bearer, parse_challenges
from quenchz_spec.masks import Mask, difference, learn
from quenchz_spec.outcomes import ControlError, UntestableError, ViolationError
from quenchz_spec.requirement import Level, Row, requirement
from quenchz_spec.resources import Edit
from quenchz_spec.shapes import members
from quenchz_spec.strategies.audiences import OTHER_SERVER, one, other_resources, unnamed_audiences
from quenchz_spec.strategies.requests import Fields, hostile_fields, words
from quenchz_spec.vocabulary import Ask, Claim, Exchange, Role, TokenRecipe, parse_json

if TYPE_CHECKING:
    from quenchz_spec.subject import Subject


@requirement(
    "QZ-AUD-8",
    level=Level.MUST,
    claim="Every refusal of a token, and of none, carries a Bearer challenge that parses.",
    norm=norms.RFC6750_CHALLENGE,
    cost="None.",
    control="the good token is admitted, and what must be refused is refused with 401",
    rows=REFUSALS,
    drawn=st.sampled_from([row.value for row in REFUSALS.values()]),
)
def test_a_refusal_carries_a_bearer_challenge(subject: Subject, row: TokenRecipe | None) -> None:
    """A 401 without a challenge, or with one that a client cannot read, leaves it with nowhere to go."""
    answer = the_refusal(subject, row)
    received = answer.response.all("www-authenticate")
    unread = [value for value in received if parse_challenges(value) is None]
    if unread or bearer(answer) is None:
        raise ViolationError(
            held="no token that must be admitted.",
            sent=f"{answer.ask.words}.",
            received=f"HTTP 401 with WWW-Authenticate {received}." if received else "HTTP 401 and no WWW-Authenticate.",
            expected="a Bearer challenge, and only fields that follow the grammar of RFC 9110 §11.6.1.",
            signature="a challenge that does not parse" if unread else "no Bearer challenge",
        )


@requirement(
    "QZ-AUD-9",
    level=Level.MUST,
    claim="The metadata that a challenge points to can be fetched without a token and names this resource.",
    norm=norms.RFC9728_RESOURCE,
    cost="None: a client that follows RFC 9728 must discard metadata that names another resource.",
    control="the good token is admitted, and what must be refused is refused with 401",
    rows={name: REFUSALS[name] for name in ("no credentials", "another resource")},
    drawn=st.sampled_from([REFUSALS[name].value for name in ("no credentials", "another resource")]),
)
def test_the_challenge_points_to_metadata_of_this_resource(subject: Subject, row: TokenRecipe | None) -> None:
    """The challenge, the document it names, and the resource in that document."""
    answer = the_refusal(subject, row)
    url = _pointed_to(answer)
    if url is None:
        _metadata_violation(answer, "no resource_metadata in the challenge", "a challenge with resource_metadata")
        return
    document = subject.fetch(url, Role.PROBE)
    named = named_by(document)
    if named != subject.target.resource:
        found = f"{url} answered HTTP {document.status}, resource {named!r}"
        _metadata_violation(document, found, f"HTTP 200 with the resource {subject.target.resource!r}")


def named_by(document: Exchange) -> Any:
    """Return the resource that a metadata document names (RFC 9728 §2), or None."""
    metadata = parse_json(document.response.body.encode("latin-1")) if document.status == 200 else None
    return members(metadata).get("resource")


def _metadata_violation(exchange: Exchange, found: str, expected: str) -> None:
    raise ViolationError(
        held="the challenge of a refusal.",
        sent=f"{exchange.ask.words}.",
        received=f"{found}.",
        expected=f"{expected}.",
        signature="metadata does not name this resource" if "answered" in found else "no resource_metadata",
    )


@requirement(
    "QZ-AUD-10",
    level=Level.SHOULD,
    claim="A request without credentials is challenged without an error code.",
    norm=norms.RFC6750_NO_CODE,
    cost="None.",
    control="the good token is admitted, and a request without credentials is refused with 401",
    rows={"no credentials": REFUSALS["no credentials"]},
    drawn=st.none(),
)
def test_a_request_without_credentials_is_challenged_without_a_code(subject: Subject, row: None) -> None:
    """A client that sent no token did not send a bad one."""
    answer = the_refusal(subject, row)
    challenge = bearer(answer)
    if challenge is None:
        raise ControlError("the refusal carries a Bearer challenge", answer.words)
    code = challenge.parameters.get("error")
    if code is not None:
        raise ViolationError(
            held="no credentials.",
            sent=f"{answer.ask.words}.",
            received=f"a challenge with the error code {code!r}.",
            expected="a challenge without an error code.",
            signature="an error code without credentials",
        )


# --- what a refusal gives away --------------------------------------------------------------------------------------

PAIRS_AT_MOST = 4
ALIKE = {
    name: dataclasses.replace(row, must="either")
    for name, row in REFUSALS.items()
    if name not in ("no credentials", "another resource")
}


@requirement(
    "QZ-AUD-25",
    level=Level.QUENCHZ,
    claim="Every refusal of a presented token of up to 8 kB has the same bytes, whatever was wrong with the token.",
    norm=norms.ours("Who holds a token that is no good here learns that, and not how much of it would have been good."),
    contrary=norms.RFC6750_DESCRIPTION,
    cost="A client's developer reads in the server's log, not in the answer, why a token was refused.",
    control="the good token is admitted; a token for another resource, refused twice, gets the same bytes twice",
    rows=ALIKE,
    drawn=st.sampled_from([row.value for row in ALIKE.values()])
    | (other_resources() | unnamed_audiences()).map(lambda aud: TokenRecipe(caller="", audience=aud)),
)
def test_every_refusal_has_the_same_bytes_whatever_was_wrong(subject: Subject, row: TokenRecipe) -> None:
    """A text that tells an expired token from a forged one is an oracle for whoever found one of the two."""
    foreign = REFUSALS["another resource"].value
    usual = the_refusal(subject, foreign, Role.NOISE)
    mask = _noise(subject, usual, 1)
    answer = the_refusal(subject, row)
    found = difference(usual, answer, mask)
    if found is not None:
        # Before anything is claimed: what a header counts, or says every now and then, shows in more pairs.
        mask = _noise(subject, usual, PAIRS_AT_MOST)
        found = difference(usual, answer, mask)
    if found is not None:
        raise ViolationError(
            held=f"a token for another resource, and one that is bad in another way. Mask: {mask.words}.",
            sent=f"{usual.ask.words}, with either token.",
            received=f"{usual.words}, and {answer.words}: refusals that differ.",
            expected="the same bytes.",
            signature=f"refusals differ by {found.part}",
            compared=(usual, answer),
            difference=found.words,
        )


def _noise(subject: Subject, usual: Exchange, pairs: int) -> Mask:
    """Ask again for a refusal, and return what may differ between any two.

    Raises:
        UntestableError: the same request is answered in ways that no mask may hide.
    """
    again = [control_refused(subject.ask(usual.ask, Role.NOISE)) for _ in range(pairs)]
    mask, unmasked = learn([(usual, other, ("", "")) for other in again], subject.target.mask_headers)
    if unmasked is not None:
        raise UntestableError(f"noisy: the same refusal varies. {unmasked.words}", "make refusals constant")
    return mask


Marked = tuple[str, str]
"""A member of a token, and a word that stands in it and nowhere else."""

MARK = "zqxjkvwpfmgybh"
ECHOES = {
    "audience": Row("a word in the audience", ("aud", MARK), "either"),
    "issuer": Row("a word in the issuer", ("iss", MARK), "either"),
    "subject": Row("a word as the subject", ("sub", MARK), "either"),
    "client": Row("a word as the client", ("client_id", MARK), "either"),
    "scope": Row("a word as the scope", ("scope", MARK), "either"),
    "token id": Row("a word as the token's id", ("jti", MARK), "either"),
    "key id": Row("a word as the key's id", ("kid", MARK), "either"),
}


def marked(caller: str, row: Marked) -> TokenRecipe:
    """Return the recipe of a bad token with a word in it; where the word makes it bad, nothing else does."""
    member, word = row
    far = f"https://{word}.example/mcp"
    match member:
        case "aud":
            return TokenRecipe(caller=caller, audience=one(Edit.LITERAL, far))
        case "iss":
            return TokenRecipe(caller=caller, claims=(Claim("iss", far),))
        case "kid":
            return TokenRecipe(caller=caller, header=(Claim("kid", word),))
        case _:
            return TokenRecipe(caller=caller, audience=OTHER_SERVER, claims=(Claim(member, word),))


@requirement(
    "QZ-AUD-26",
    level=Level.QUENCHZ,
    claim="No answer repeats anything of the token: not a piece of it, and of a bad one not what it claims.",
    norm=norms.ours("An answer is logged, cached and shown where a token never is, so nothing of a token is in it."),
    contrary=norms.RFC6750_DESCRIPTION,
    cost="A client's developer decodes the token, which is at hand, to see what it claims.",
    control="the good token is admitted, and the bad one is refused with 401",
    rows=ECHOES,
    drawn=st.tuples(st.sampled_from([row.value[0] for row in ECHOES.values()]), words()),
)
def test_no_answer_repeats_anything_of_a_token(subject: Subject, row: Marked) -> None:
    """Echoed claims of an unverified token are an attacker's text in the server's name."""
    caller, (member, word) = subject.target.broad, row
    good = Ask(method="tools/list", token=subject.token(caller), session=caller)
    answers = [subject.ask(good, Role.CONTROL)]
    if answers[0].result is None:
        raise ControlError("the good token is admitted", answers[0].words)
    answers.append(control_refused(subject.ask(Ask(method="tools/list", token=marked(caller, row), session=caller))))
    for answer in answers:
        response = answer.response
        said = [response.start, *(text for field in response.headers for text in field), response.body]
        repeated = any(word in text.lower() for text in said)
        if repeated or answer.echoed:
            what = f"what the token has as {member}" if repeated else "a piece of the token"
            raise ViolationError(
                held=f"a good token, and a bad one with the word {word!r} as {member}.",
                sent=f"{answer.ask.words}.",
                received=f"{answer.words}, in which {what} stands.",
                expected="an answer in which nothing of the token stands.",
                signature=f"{what} is echoed",
            )


# --- whose name the metadata bears ----------------------------------------------------------------------------------

HOSTILE = {
    "host": Row("another host", (("Host", "evil.example"),)),
    "forwarded host": Row("another host, forwarded", (("X-Forwarded-Host", "evil.example"),)),
    "forwarded": Row(
        "another host, forwarded by RFC 7239", (("Forwarded", "for=192.0.2.1;host=evil.example;proto=https"),)
    ),
    "forwarded http": Row("the scheme http, forwarded", (("X-Forwarded-Proto", "http"),)),
    "forwarded https": Row("the scheme https, forwarded", (("X-Forwarded-Proto", "https"),)),
    "forwarded port": Row("another port, forwarded", (("X-Forwarded-Port", "8443"),)),
    "forwarded prefix": Row("a path before ours, forwarded", (("X-Forwarded-Prefix", "/evil"),)),
    "original host": Row("another host, as it was", (("X-Original-Host", "evil.example"), ("X-Host", "evil.example"))),
    "original URL": Row("another path, as it was", (("X-Original-URL", "/evil"), ("X-Rewrite-URL", "/evil"))),
}


@requirement(
    "QZ-AUD-27",
    level=Level.MUST,
    claim="The metadata names this resource, and the challenge this server, whatever host the client's fields name.",
    norm=norms.RFC9728_RESOURCE,
    cost="None: a resource has one identifier, which its operator knows and no request decides.",
    control="without such fields the challenge points to metadata that names this resource",
    rows=HOSTILE,
    drawn=hostile_fields(),
)
def test_the_metadata_is_not_the_clients_to_choose(subject: Subject, row: Fields) -> None:
    """A document or a challenge that a cache has kept is served to others, who then ask another's server for tokens."""
    url = _pointed_to(the_refusal(subject, None, Role.CONTROL))
    if url is None:
        raise ControlError("the challenge points to metadata", "no resource_metadata in it")
    document = subject.fetch(url)
    if named_by(document) != subject.target.resource:
        raise ControlError("the metadata names this resource", f"{document.words}, resource {named_by(document)!r}")
    challenged = subject.ask(Ask(method="tools/list", session=subject.target.broad, headers=row))
    other = _pointed_to(challenged)
    if challenged.status >= 500 or (other is not None and _authority(other) != _authority(url)):
        raise _chosen(challenged, f"a challenge that points to {other}")
    document = subject.fetch(url, Role.PROBE, row)
    named = named_by(document)
    if document.status >= 500 or (named is not None and named != subject.target.resource):
        raise _chosen(document, f"metadata of the resource {named!r}")


def _pointed_to(exchange: Exchange) -> str | None:
    challenge = bearer(exchange)
    return None if challenge is None else challenge.parameters.get("resource_metadata")


def _authority(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:  # no URL at all; the server chose it
        return url


def _chosen(exchange: Exchange, what: str) -> ViolationError:
    how = "a server error" if exchange.status >= 500 else what
    return ViolationError(
        held="no credentials.",
        sent=f"{exchange.ask.words}.",
        received=f"HTTP {exchange.status}: {how}.",
        expected="what is answered without those fields, or a refusal.",
        signature="a server error" if exchange.status >= 500 else how.partition(" of ")[0].partition(" that ")[0],
    )

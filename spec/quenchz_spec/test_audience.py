"""Audience equality: a token is admitted if and only if its audience is this resource.

Each property changes one thing about a token that was just admitted and states that the changed one reaches nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from quenchz_spec import norms
from quenchz_spec.claims import bearer, control_admitted, control_past_the_gate, refused
from quenchz_spec.outcomes import ControlError, NotDeclaredError, ViolationError
from quenchz_spec.requirement import Level, Row, requirement
from quenchz_spec.resources import Edit, Uri
from quenchz_spec.shapes import members
from quenchz_spec.strategies.audiences import (
    OTHER,
    OTHER_SERVER,
    listed,
    lists_with_us,
    literal,
    one,
    other_resources,
    unnamed_audiences,
)
from quenchz_spec.vocabulary import (
    Ask,
    Audience,
    AudienceForm,
    Claim,
    Exchange,
    RawJson,
    Role,
    SecondsFromNow,
    Signature,
    TokenRecipe,
    parse_json,
)

if TYPE_CHECKING:
    from quenchz_spec.subject import Subject

ADMITTED = "a token whose audience is exactly this resource lists the tools"
EXACT_COST = (
    "A client whose authorization server writes another spelling, or a list, is refused until the server's operator "
    "makes it write the resource identifier as one string."
)
NO_COST = "None: no conforming client holds such a token for this resource."


def a_changed_token_is_refused(subject: Subject, changed: TokenRecipe, held: str) -> None:
    """Show that the good token is admitted, then that the same request with `changed` gets HTTP 401."""
    good = Ask(method="tools/list", token=subject.token(changed.caller))
    control_admitted(subject.ask(good, Role.CONTROL), ADMITTED)
    probe = Ask(method="tools/list", token=changed)
    refused(subject.ask(probe), held)


def with_audience(subject: Subject, audience: Audience) -> tuple[TokenRecipe, str]:
    """Return the recipe with `audience`, and what is held, in words; rows that write ours do not apply."""
    written = audience.json(subject.target.resource)
    if audience.form is AudienceForm.STRING and written == json.dumps(subject.target.resource):
        raise NotDeclaredError("a resource identifier that this row can be written for")
    caller = subject.target.broad
    held = f"a token of {caller}, signed by the trusted issuer and unexpired, whose aud is {written or 'absent'}."
    return TokenRecipe(caller=caller, audience=audience), held


OTHER_RESOURCES = {
    "another server": Row("another server's resource", OTHER_SERVER),
    "longer path": Row("our URI plus a longer path", one(Edit.SUFFIX, "/admin")),
    "longer segment": Row("our URI plus more letters", one(Edit.SUFFIX, "x")),
    "shorter": Row("our URI without its last character", one(Edit.CUT)),
    "origin": Row("our origin without a path", one(Edit.ORIGIN)),
    "sibling": Row("a sibling path on our origin", one(Edit.SIBLING, "/other")),
    "host suffix": Row("a host that begins with ours", one(Edit.HOST_SUFFIX, ".evil.example")),
    "host prefix": Row("a host that ends with ours", one(Edit.HOST_PREFIX, "evil-")),
    "subdomain": Row("a subdomain of our host", one(Edit.HOST_PREFIX, "sub.")),
    "user information": Row("our host behind user information", one(Edit.USERINFO, "evil.example")),
    "inside a query": Row("our URI inside another's query", one(Edit.PREFIX, "https://evil.example/?for=")),
    "query": Row("our URI with a query", one(Edit.SUFFIX, "?tenant=1")),
    "fragment": Row("our URI with a fragment", one(Edit.SUFFIX, "#part")),
    "other port": Row("our host on another port", one(Edit.OTHER_PORT, "8443")),
    "other scheme": Row("our URI under another scheme", one(Edit.OTHER_SCHEME, "ftp")),
    "path in capitals": Row("our path in capitals", one(Edit.UPPER_PATH)),
    "leading space": Row("our URI after a space", one(Edit.PREFIX, " ")),
    "trailing newline": Row("our URI before a newline", one(Edit.SUFFIX, "\n")),
    "wildcard": Row("a wildcard", one(Edit.LITERAL, "*")),
    "everything below our origin": Row("a wildcard for our origin", one(Edit.SIBLING, "/*")),
    "two in one string": Row("our URI and another in one string", one(Edit.SUFFIX, " https://other.example/mcp")),
}
"""Resources that are not ours by any reading of RFC 3986 §6.2."""


@requirement(
    "QZ-AUD-1",
    level=Level.MUST,
    claim="A token whose audience is another resource reaches nothing.",
    norm=norms.MCP_AUDIENCE,
    cost=NO_COST,
    control=ADMITTED,
    rows=OTHER_RESOURCES,
    drawn=other_resources(),
)
def test_a_token_for_another_resource_reaches_nothing(subject: Subject, row: Audience) -> None:
    """Near misses of our identifier and resources far from it."""
    a_changed_token_is_refused(subject, *with_audience(subject, row))


RESPELLINGS = {
    "host in capitals": Row("our host in capitals", one(Edit.UPPER_HOST), "either"),
    "scheme in capitals": Row("our scheme in capitals", one(Edit.UPPER_SCHEME), "either"),
    "trailing slash": Row("our URI with its trailing slash added or taken away", one(Edit.SLASH), "either"),
    "default port": Row("our host with its default port written out", one(Edit.DEFAULT_PORT), "either"),
    "dot segment": Row("our path with a dot segment that removes itself", one(Edit.DOT_SEGMENT), "either"),
    "percent-encoding": Row("our path with an unreserved character encoded", one(Edit.PERCENT), "either"),
}
"""Respellings of ours that RFC 3986 §6.2.2 and §6.2.3 call equivalent."""


@requirement(
    "QZ-AUD-2",
    level=Level.QUENCHZ,
    claim="A token whose audience is a respelling of this resource reaches nothing: audiences are equal as strings.",
    norm=norms.ours("An audience is compared as one string with the resource identifier; no byte is normalised."),
    contrary=norms.MCP_UPPERCASE,
    cost=EXACT_COST,
    control=ADMITTED,
    rows=RESPELLINGS,
    drawn=st.sampled_from([row.value for row in RESPELLINGS.values()]) | st.just(one(Edit.SUFFIX, "//")),
)
def test_a_respelling_of_this_resource_reaches_nothing(subject: Subject, row: Audience) -> None:
    """Spellings that RFC 3986 §6.2 calls equivalent; comparing parsed URLs admits them."""
    a_changed_token_is_refused(subject, *with_audience(subject, row))


LISTS_WITH_US = {
    "list of us alone": Row("a list that holds only us", listed(Uri()), "either"),
    "us, then another": Row("a list with us first", listed(Uri(), OTHER), "either"),
    "another, then us": Row("a list with us last", listed(OTHER, Uri()), "either"),
    "us twice": Row("a list that holds us twice", listed(Uri(), Uri()), "either"),
}


@requirement(
    "QZ-AUD-3",
    level=Level.QUENCHZ,
    claim="A token whose audience is a list reaches nothing, even if the list holds this resource.",
    norm=norms.ours("An audience is one string. A token that is good at two resources can be replayed between them."),
    contrary=norms.RFC7519_AUDIENCE,
    cost=EXACT_COST,
    control=ADMITTED,
    rows=LISTS_WITH_US,
    drawn=lists_with_us(),
)
def test_a_list_that_holds_this_resource_reaches_nothing(subject: Subject, row: Audience) -> None:
    """Membership is the common bug: every framework that asks "are we in it" admits these."""
    a_changed_token_is_refused(subject, *with_audience(subject, row))


UNNAMED = {
    "absent": Row("no audience at all", Audience(AudienceForm.ABSENT, ())),
    "null": Row("the audience null", literal("null")),
    "empty string": Row("an empty string", literal('""')),
    "empty list": Row("an empty list", literal("[]")),
    "list of an empty string": Row("a list that holds an empty string", literal('[""]')),
    "list without us": Row("a list that omits us", listed(OTHER)),
    "object": Row("an object whose key is ours", literal('{"%us%": 1}')),
    "nested list": Row("a list inside a list", literal('[["%us%"]]')),
    "number": Row("the number 0", literal("0")),
    "true": Row("the value true", literal("true")),
}


@requirement(
    "QZ-AUD-4",
    level=Level.MUST,
    claim="A token whose audience does not name this resource, or is no audience at all, reaches nothing.",
    norm=norms.MCP_IN_AUDIENCE,
    cost=NO_COST,
    control=ADMITTED,
    rows=UNNAMED,
    drawn=unnamed_audiences(),
)
def test_a_token_that_names_no_resource_of_ours_reaches_nothing(subject: Subject, row: Audience) -> None:
    """Absent, null, empty and ill-typed audiences: "present" and "equal" are one check, not two."""
    a_changed_token_is_refused(subject, *with_audience(subject, row))


FORGERIES = {kind.name.lower(): Row(kind.value, kind) for kind in Signature if kind is not Signature.OWN}


@requirement(
    "QZ-AUD-5",
    level=Level.MUST,
    claim="A token that the trusted issuer did not sign with an offered algorithm reaches nothing.",
    norm=norms.RFC9068_SIGNATURE,
    cost=NO_COST,
    control=ADMITTED,
    rows=FORGERIES,
    drawn=st.sampled_from([row.value for row in FORGERIES.values()]),
)
def test_a_forged_signature_reaches_nothing(subject: Subject, row: Signature) -> None:
    """Right claims, wrong signature."""
    caller = subject.target.broad
    held = f"a token of {caller} with the right claims, signed with {row.value}."
    a_changed_token_is_refused(subject, TokenRecipe(caller=caller, signature=row), held)


LIFETIMES = {
    "expired": Row("expired an hour ago", Claim("exp", SecondsFromNow(-3600))),
    "not yet valid": Row("not valid before an hour from now", Claim("nbf", SecondsFromNow(3600))),
    "expiry zero": Row("expiring in 1970", Claim("exp", 0)),
    "expiry a word": Row("expiring at a word", Claim("exp", "tomorrow")),
    "expiry infinite": Row("expiring at 1e400", Claim("exp", RawJson("1e400"))),
    "expiry null": Row("expiring at null", Claim("exp", None)),
    "nbf a word": Row("not valid before a word", Claim("nbf", "yesterday")),
}


@requirement(
    "QZ-AUD-6",
    level=Level.MUST,
    claim="A token outside its lifetime, or with a lifetime that is no NumericDate, reaches nothing.",
    norm=norms.RFC7519_LIFETIME,
    cost="None beyond clock skew: the rows lie an hour or more away from now.",
    control=ADMITTED,
    rows=LIFETIMES,
    drawn=st.integers(3600, 10**9).map(lambda ago: Claim("exp", SecondsFromNow(-ago))),
)
def test_a_token_outside_its_lifetime_reaches_nothing(subject: Subject, row: Claim) -> None:
    """Some verifiers raise on these, and answer 500."""
    caller = subject.target.broad
    shown = json.dumps(row.value) if not isinstance(row.value, (SecondsFromNow, RawJson)) else row.value.words
    held = f"a token of {caller}, rightly signed, whose {row.name} is {shown}."
    a_changed_token_is_refused(subject, TokenRecipe(caller=caller, claims=(row,)), held)


@requirement(
    "QZ-AUD-7",
    level=Level.MUST,
    claim="A token of an issuer that this resource does not trust reaches nothing.",
    norm=norms.RFC9068_ISSUER,
    cost=NO_COST,
    control=ADMITTED,
    rows={
        "stranger": Row("a stranger's token under the stranger's name", TokenRecipe(caller="", issuer="stranger")),
        "renamed": Row(
            "the trusted key under another issuer's name",
            TokenRecipe(caller="", claims=(Claim("iss", "https://stranger.example"),)),
        ),
        "absent": Row(
            "the trusted key under no issuer's name",
            TokenRecipe(caller="", without=("iss",)),
        ),
    },
    drawn=st.text("abcdefghijklmnopqrstuvwxyz", min_size=3, max_size=12).map(
        lambda iss: TokenRecipe(caller="", claims=(Claim("iss", f"https://{iss}.example"),))
    ),
)
def test_a_token_of_another_issuer_reaches_nothing(subject: Subject, row: TokenRecipe) -> None:
    """The key alone decides nothing: the issuer's name is compared as well."""
    caller = subject.target.broad
    changed = TokenRecipe(caller=caller, issuer=row.issuer, claims=row.claims, without=row.without)
    issuer = row.claims[0].value if row.claims else ("absent" if row.without else "a stranger, who signed it")
    a_changed_token_is_refused(subject, changed, f"a token for this resource whose iss is {issuer}.")


REFUSALS = {
    "no credentials": Row("no credentials", None),
    "another resource": Row("a token for another resource", TokenRecipe(caller="", audience=OTHER_SERVER)),
    "forged": Row("a forged token", TokenRecipe(caller="", signature=Signature.STRANGER)),
    "expired": Row("an expired token", TokenRecipe(caller="", claims=(Claim("exp", SecondsFromNow(-3600)),))),
}


def the_refusal(subject: Subject, row: TokenRecipe | None) -> Exchange:
    """Return the answer to a request that must be refused, after its control; what is not refused is a violation."""
    caller = subject.target.broad
    control_admitted(subject.ask(Ask(method="tools/list", token=subject.token(caller)), Role.CONTROL), ADMITTED)
    token = None
    if row is not None:
        token = TokenRecipe(caller=caller, audience=row.audience, signature=row.signature, claims=row.claims)
    answer = subject.ask(Ask(method="tools/list", token=token, session=caller))
    if answer.status != 401:
        raise ControlError("what must be refused is refused with 401", answer.words)
    return answer


@requirement(
    "QZ-AUD-8",
    level=Level.MUST,
    claim="Every refusal of a token, and of none, carries a Bearer challenge.",
    norm=norms.RFC6750_CHALLENGE,
    cost="None.",
    control="the good token is admitted, and what must be refused is refused with 401",
    rows=REFUSALS,
    drawn=st.sampled_from([row.value for row in REFUSALS.values()]),
)
def test_a_refusal_carries_a_bearer_challenge(subject: Subject, row: TokenRecipe | None) -> None:
    """A 401 without a challenge leaves a client with nowhere to go."""
    answer = the_refusal(subject, row)
    if bearer(answer) is None:
        received = answer.response.all("www-authenticate")
        raise ViolationError(
            held="no token that must be admitted.",
            sent=f"{answer.ask.words}.",
            received=f"HTTP 401 with WWW-Authenticate {received}." if received else "HTTP 401 and no WWW-Authenticate.",
            expected="a WWW-Authenticate field with a Bearer challenge.",
            signature="no Bearer challenge",
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
    challenge = bearer(answer)
    url = challenge.parameters.get("resource_metadata") if challenge else None
    if url is None:
        _metadata_violation(answer, "no resource_metadata in the challenge", "a challenge with resource_metadata")
        return
    document = subject.fetch(url, Role.PROBE)
    metadata = parse_json(document.response.body.encode("latin-1")) if document.status == 200 else None
    named = members(metadata).get("resource")
    if named != subject.target.resource:
        found = f"{url} answered HTTP {document.status}, resource {named!r}"
        _metadata_violation(document, found, f"HTTP 200 with the resource {subject.target.resource!r}")


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


EVERY_REQUEST = {
    f"{verb} {method}".strip(): Row(f"the HTTP method {verb} with {method or 'no body'}", (verb, method))
    for verb, method in (
        ("POST", "initialize"),
        ("POST", "server/discover"),
        ("POST", "ping"),
        ("POST", "tools/list"),
        ("POST", "tools/call"),
        ("POST", "prompts/list"),
        ("POST", "resources/list"),
        ("POST", "notifications/initialized"),
        ("POST", "no/such/method"),
        ("GET", ""),
        ("DELETE", ""),
        ("PUT", ""),
    )
}


def the_gate_refuses(subject: Subject, row: tuple[str, str], bad: TokenRecipe | None, held: str) -> None:
    """Show that a request passes the gate with a good token, and state that it gets 401 with `bad` or none."""
    verb, method = row
    caller = subject.target.broad
    params: dict[str, Any] = {"name": "quenchz_no_such_tool", "arguments": {}} if method == "tools/call" else {}
    # A server that has died answers everything alike, which is no sign that it looked at a token.
    control_admitted(subject.ask(Ask(method="tools/list", token=subject.token(caller)), Role.CONTROL), ADMITTED)
    # DELETE ends a session, so the probe has one to itself, which it must not be able to end.
    session = f"{caller}/{verb}" if verb != "POST" else caller
    answers = {
        role: subject.ask(Ask(method=method, params=params, token=token, verb=verb, session=session), role)
        for role, token in ((Role.PROBE, bad), (Role.CONTROL, subject.token(caller)))
    }
    control_past_the_gate(answers[Role.CONTROL], f"{verb} {method} with a token for this resource passes the gate")
    if {answer.status for answer in answers.values()} == {405}:
        raise NotDeclaredError(f"the HTTP method {verb}")  # nobody reaches anything by it, whatever the token
    refused(answers[Role.PROBE], held)


@requirement(
    "QZ-AUD-11",
    level=Level.MUST,
    claim="The audience is checked on every request and every HTTP method of the endpoint.",
    norm=norms.MCP_NO_DATA,
    cost="None.",
    control="the same request with a token for this resource is let past authentication",
    rows=EVERY_REQUEST,
    drawn=st.sampled_from([row.value for row in EVERY_REQUEST.values()]),
)
def test_the_audience_is_checked_on_every_request(subject: Subject, row: tuple[str, str]) -> None:
    """Also in the middle of a session that a good token opened."""
    caller = subject.target.broad
    foreign = TokenRecipe(caller=caller, audience=OTHER_SERVER)
    the_gate_refuses(subject, row, foreign, f"a token of {caller} for {OTHER.text}.")


@requirement(
    "QZ-AUD-12",
    level=Level.MUST,
    claim="A request without credentials reaches nothing, whatever it asks and in whichever session.",
    norm=norms.MCP_EVERY_REQUEST,
    cost="None: discovery of the authorization server needs no token and stands elsewhere.",
    control="the same request with a token for this resource is let past authentication",
    rows=EVERY_REQUEST,
    drawn=st.sampled_from([row.value for row in EVERY_REQUEST.values()]),
)
def test_a_request_without_credentials_reaches_nothing(subject: Subject, row: tuple[str, str]) -> None:
    """A session id is no credential."""
    the_gate_refuses(subject, row, None, "no credentials.")

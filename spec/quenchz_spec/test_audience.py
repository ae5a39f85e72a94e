"""Audience equality: a token is admitted if and only if its audience is this resource.

Each property changes one thing about a token that was just admitted and states that the changed one reaches nothing.
This page is about the audience itself; test_forgeries, test_lifetimes, test_refusals and test_placement are about the
rest of what a token can almost be.

A target may declare `audience = "member"`, which RFC 7519 §4.1.3 permits: then QZ-AUD-3 does not apply, and nobody
checks here what a token that is good at two resources can do at the other one. Under "exact", the default, nobody
checks that a list is understood at all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from quenchz_spec import norms
from quenchz_spec.admissions import ADMITTED, NO_COST, a_changed_token_is_refused, of_broad
from quenchz_spec.claims import control_admitted, control_past_the_gate
from quenchz_spec.outcomes import NotDeclaredError, ViolationError
from quenchz_spec.requirement import Level, Row, requirement
from quenchz_spec.resources import Edit, Uri
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
from quenchz_spec.vocabulary import OURS, Ask, Audience, AudienceForm, Claim, Exchange, Role, TokenRecipe

if TYPE_CHECKING:
    from quenchz_spec.subject import Subject

EXACT_COST = (
    "A client whose authorization server writes another spelling, or a list, is refused until the server's operator "
    "makes it write the resource identifier as one string."
)


def with_audience(subject: Subject, row: Audience | TokenRecipe) -> tuple[TokenRecipe, str]:
    """Return the recipe of a row, and what is held, in words; rows that write ours do not apply."""
    recipe = of_broad(subject, row if isinstance(row, TokenRecipe) else TokenRecipe(caller="", audience=row))
    written = recipe.audience.json(subject.target.resource)
    if recipe.audience.form is AudienceForm.STRING and written == json.dumps(subject.target.resource):
        raise NotDeclaredError("a resource identifier that this row can be written for")
    shown = written or "absent"
    if len(shown) > 300:
        shown = f"{shown[:200]}… ({len(shown)} characters)"
    held = f"a token of {recipe.caller}, signed by the trusted issuer and unexpired, whose aud is {shown}"
    beside = "".join(f", and whose {claim.name} is this resource" for claim in recipe.claims)
    return recipe, f"{held}{beside}."


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
    "dots to a sibling": Row("our URI and dots that lead to a sibling", one(Edit.SUFFIX, "/../other")),
    "query": Row("our URI with a query", one(Edit.SUFFIX, "?tenant=1")),
    "fragment": Row("our URI with a fragment", one(Edit.SUFFIX, "#part")),
    "other port": Row("our host on another port", one(Edit.OTHER_PORT, "8443")),
    "other scheme": Row("our URI under another scheme", one(Edit.OTHER_SCHEME, "ftp")),
    "plain http": Row("ours under the scheme http", one(Edit.OTHER_SCHEME, "http")),
    "no scheme": Row("ours without its scheme", one(Edit.RELATIVE)),
    "parent": Row("our parent", one(Edit.PARENT)),
    "path in capitals": Row("our path in capitals", one(Edit.UPPER_PATH)),
    "empty query": Row("our URI with an empty query", one(Edit.SUFFIX, "?")),
    "empty fragment": Row("our URI with an empty fragment", one(Edit.SUFFIX, "#")),
    "path parameter": Row("our URI with a parameter of its last segment", one(Edit.SUFFIX, ";v=1")),
    "double slash": Row("our path after two slashes", one(Edit.DOUBLE_SLASH)),
    "backslash": Row("our path after a backslash", one(Edit.BACKSLASH)),
    "encoded slash": Row("our path with its last slash percent-encoded", one(Edit.ENCODED_SLASH)),
    "encoded query": Row("our URI and a percent-encoded query", one(Edit.SUFFIX, "%3Ftenant=1")),
    "backslash before the host": Row(
        "our host behind user information and a backslash", one(Edit.USERINFO, "evil.example\\")
    ),
    "lookalike host": Row("our host with a letter that looks the same", one(Edit.LOOKALIKE)),
    "punycode host": Row("our host with a letter that looks the same, in punycode", one(Edit.PUNYCODE)),
    "fullwidth host": Row("our host in fullwidth letters", one(Edit.WIDE_HOST)),
    "leading space": Row("our URI after a space", one(Edit.PREFIX, " ")),
    "trailing space": Row("our URI before a space", one(Edit.SUFFIX, " ")),
    "trailing newline": Row("our URI before a newline", one(Edit.SUFFIX, "\n")),
    "tab inside": Row("our URI with a tab after the host", one(Edit.HOST_SUFFIX, "\t")),
    "no-break space": Row("our URI before a no-break space", one(Edit.SUFFIX, "\u00a0")),
    "byte order mark": Row("our URI after a byte order mark", one(Edit.PREFIX, "\ufeff")),
    "zero width space": Row("our URI before a zero width space", one(Edit.SUFFIX, "\u200b")),
    "soft hyphen": Row("our host with a soft hyphen after it", one(Edit.HOST_SUFFIX, "\u00ad")),
    "after a NUL": Row("our URI, a NUL and more letters", one(Edit.SUFFIX, "\x00x")),
    "very long": Row("our URI and 3,000 letters", one(Edit.SUFFIX, "/" + 3000 * "a")),
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
    "percent-encoded host": Row("our host with its first letter encoded", one(Edit.PERCENT_HOST), "either"),
    "empty port": Row("our host with a colon and no port", one(Edit.EMPTY_PORT), "either"),
    "dot segment at the end": Row("our URI with a dot segment at its end", one(Edit.SUFFIX, "/."), "either"),
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
    "among fifty": Row(
        "a list with us in the middle of fifty",
        listed(*(Uri(Edit.LITERAL, f"https://{n}.example/mcp") for n in range(25)), Uri(), *24 * (OTHER,)),
        "either",
    ),
    "beside a number": Row("a list with us beside a number", literal('[1, "%us%"]'), "either"),
    "beside null": Row("a list with us beside null", literal('["%us%", null]'), "either"),
    "written twice, us last": Row(
        "an audience written twice, ours last", literal('"https://other.example/mcp","aud":"%us%"'), "either"
    ),
    "written twice, both us": Row(
        "an audience written twice, ours both times", literal('"%us%","aud":"%us%"'), "either"
    ),
}


@requirement(
    "QZ-AUD-3",
    level=Level.QUENCHZ,
    claim="A token that names this resource and more reaches nothing: in a list, or in an audience written twice.",
    norm=norms.ours("An audience is one string. A token that is good at two resources can be replayed between them."),
    contrary=norms.RFC7519_AUDIENCE,
    cost=f'{EXACT_COST} A target that declares audience = "member" is not judged by it.',
    control=ADMITTED,
    rows=LISTS_WITH_US,
    drawn=lists_with_us(),
)
def test_a_list_that_holds_this_resource_reaches_nothing(subject: Subject, row: Audience) -> None:
    """Membership is the common bug: every framework that asks "are we in it" admits these."""
    if subject.target.audience == "member":
        raise NotDeclaredError(
            "audiences that are one string; what a token can do at its other resources stays unknown"
        )
    a_changed_token_is_refused(subject, *with_audience(subject, row))


ABSENT = Audience(AudienceForm.ABSENT, ())


def beside(*names: str, audience: Audience = ABSENT) -> TokenRecipe:
    """Return the recipe of a token that names this resource in other claims than its audience."""
    return TokenRecipe(caller="", audience=audience, claims=tuple(Claim(name, OURS) for name in names))


UNNAMED = {
    "absent": Row("no audience at all", ABSENT),
    "null": Row("the audience null", literal("null")),
    "empty string": Row("an empty string", literal('""')),
    "empty list": Row("an empty list", literal("[]")),
    "list of an empty string": Row("a list that holds an empty string", literal('[""]')),
    "list without us": Row("a list that omits us", listed(OTHER)),
    "object": Row("an object whose key is ours", literal('{"%us%": 1}')),
    "nested list": Row("a list inside a list", literal('[["%us%"]]')),
    "number": Row("the number 0", literal("0")),
    "true": Row("the value true", literal("true")),
    "false": Row("the value false", literal("false")),
    "fraction": Row("the number 1.5", literal("1.5")),
    "list without us, with a number": Row(
        "a list of another resource and a number", literal('[1, "https://x.example"]')
    ),
    "list of a longer path": Row("a list of our URI plus a longer path", listed(Uri(Edit.SUFFIX, "/admin"))),
    "written twice, ours first": Row(
        "an audience written twice, ours first", literal('"%us%","aud":"https://other.example/mcp"')
    ),
    "escaped, ours first": Row(
        "an audience written twice, the second time with an escape in its name",
        literal('"%us%","\\u0061ud":"https://other.example/mcp"'),
    ),
    "resource": Row("no audience, and a claim resource that is ours", beside("resource")),
    "audience": Row("no audience, and a claim audience that is ours", beside("audience")),
    "Aud": Row("no audience, and a claim Aud that is ours", beside("Aud")),
    "azp": Row("no audience, and an authorized party that is ours", beside("azp")),
    "every other claim": Row(
        "another audience, and claims of every other name that are ours",
        beside("resource", "resources", "audience", "audiences", "azp", "rs", audience=OTHER_SERVER),
    ),
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
def test_a_token_that_names_no_resource_of_ours_reaches_nothing(subject: Subject, row: Audience | TokenRecipe) -> None:
    """Absent, null, empty and ill-typed audiences: "present" and "equal" are one check, not two.

    Of two members of one name the last counts, if any does (RFC 7519 §4).
    """
    a_changed_token_is_refused(subject, *with_audience(subject, row))


REQUESTS = (
    ("POST", "tools/list"),
    ("POST", "tools/call"),
    ("POST", "prompts/list"),
    ("POST", "resources/list"),
    ("POST", "notifications/initialized"),
    ("POST", "no/such/method"),
    ("GET", ""),
)


@requirement(
    "QZ-AUD-13",
    level=Level.QUENCHZ,
    claim="Whatever is decided about a respelling of this resource, it is decided alike on every request.",
    norm=norms.ours("One comparison decides about an audience: what is ours on one route is ours on all of them."),
    cost="None: a server may take a respelling for ours or not. One run sees the routes of one protocol revision.",
    control="the same request with a token for this resource is let past authentication",
    rows=RESPELLINGS,
    drawn=st.sampled_from([row.value for row in RESPELLINGS.values()]),
)
def test_a_respelling_is_decided_alike_on_every_request(subject: Subject, row: Audience) -> None:
    """Two comparisons in one server, say in a proxy and behind it, disagree about spellings first."""
    respelled, held = with_audience(subject, row)
    # A server that answers everything alike has decided nothing.
    good = Ask(method="tools/list", token=subject.token(respelled.caller))
    control_admitted(subject.ask(good, Role.CONTROL), ADMITTED)
    decided: dict[str, Exchange] = {}
    for verb, method in REQUESTS:
        params: dict[str, Any] = {"name": "quenchz_no_such_tool", "arguments": {}} if method == "tools/call" else {}
        session = f"{respelled.caller}/{verb}" if verb != "POST" else respelled.caller
        control, probe = (
            subject.ask(Ask(method=method, params=params, token=token, verb=verb, session=session), role)
            for token, role in ((subject.token(respelled.caller), Role.CONTROL), (respelled, Role.PROBE))
        )
        control_past_the_gate(control, f"{verb} {method} with a token for this resource passes the gate")
        if control.status == probe.status == 405:
            continue  # nobody reaches anything by it, whatever the token
        decided.setdefault(_decision(probe, held), probe)
    if len(decided) > 1:
        one_way, another = list(decided)[:2]
        raise ViolationError(
            held=held,
            sent=f"{decided[one_way].ask.words}, and {decided[another].ask.words}.",
            received=f"{decided[one_way].words}: {one_way}; and {decided[another].words}: {another}.",
            expected="one decision about one audience.",
            signature=f"{one_way} here and {another} there",
        )


def _decision(probe: Exchange, held: str) -> str:
    """Return whether a token was admitted or refused; an answer that says neither is a violation."""
    if probe.status in (0, 403) or probe.status >= 500 or 300 <= probe.status < 400:
        raise ViolationError(
            held=held,
            sent=f"{probe.ask.words}.",
            received=f"{probe.words}.",
            expected="HTTP 401, or what a token for this resource gets.",
            signature="neither admitted nor refused",
        )
    return "refused" if probe.status == 401 else "admitted"

"""URIs of other resources, near ours and far from it."""

from __future__ import annotations

from hypothesis import strategies as st

from quenchz_spec.requirement import Row
from quenchz_spec.resources import Edit, Uri
from quenchz_spec.vocabulary import Audience, AudienceForm

# st.text and not st.from_regex: it draws a string as one choice, not as a tree of characters, at a fifth of the cost.
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_LABELS = st.text(_LETTERS + "0123456789-", min_size=2, max_size=12).filter(lambda s: s.strip("-") == s)
_SEGMENTS = st.text(_LETTERS + _LETTERS.upper() + "0123456789._~-", min_size=1, max_size=12).filter(
    lambda s: s not in (".", "..")
)


def one(edit: Edit, text: str = "") -> Audience:
    """Return the audience that is one URI, written relative to ours."""
    return Audience(AudienceForm.STRING, (Uri(edit, text),))


def literal(text: str) -> Audience:
    """Return the audience that is a JSON text; `%us%` in it stands for ours."""
    return Audience(AudienceForm.LITERAL, (), text)


def listed(*uris: Uri) -> Audience:
    """Return the audience that is a list of URIs."""
    return Audience(AudienceForm.LIST, uris)


OTHER = Uri(Edit.LITERAL, "https://other.example/mcp")
OTHER_SERVER = Audience(AudienceForm.STRING, (OTHER,))

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

RESPELLINGS = {
    "host in capitals": Row("our host in capitals", one(Edit.UPPER_HOST), "either"),
    "scheme in capitals": Row("our scheme in capitals", one(Edit.UPPER_SCHEME), "either"),
    "trailing slash": Row("our URI with its trailing slash added or taken away", one(Edit.SLASH), "either"),
    "default port": Row("our host with its default port written out", one(Edit.DEFAULT_PORT), "either"),
    "dot segment": Row("our path with a dot segment that removes itself", one(Edit.DOT_SEGMENT), "either"),
    "percent-encoding": Row("our path with an unreserved character encoded", one(Edit.PERCENT), "either"),
}
"""Respellings of ours that RFC 3986 §6.2.2 and §6.2.3 call equivalent."""

LISTS_WITH_US = {
    "list of us alone": Row("a list that holds only us", listed(Uri()), "either"),
    "us, then another": Row("a list with us first", listed(Uri(), OTHER), "either"),
    "another, then us": Row("a list with us last", listed(OTHER, Uri()), "either"),
    "us twice": Row("a list that holds us twice", listed(Uri(), Uri()), "either"),
}

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


def other_resources() -> st.SearchStrategy[Audience]:
    """Return audiences that name one resource which is not ours: near ours or drawn freely."""
    near = st.one_of(
        _SEGMENTS.map(lambda s: one(Edit.SUFFIX, "/" + s)),
        _SEGMENTS.map(lambda s: one(Edit.SUFFIX, s)),
        _SEGMENTS.map(lambda s: one(Edit.SIBLING, "/" + s + "/x")),
        _LABELS.map(lambda s: one(Edit.HOST_SUFFIX, "." + s)),
        _LABELS.map(lambda s: one(Edit.HOST_PREFIX, s + ".")),
        _LABELS.map(lambda s: one(Edit.USERINFO, s)),
        st.integers(1, 65535).filter(lambda p: p not in (80, 443)).map(lambda p: one(Edit.OTHER_PORT, str(p))),
        st.sampled_from(["?", "#"]).flatmap(lambda c: _SEGMENTS.map(lambda s: one(Edit.SUFFIX, c + s))),
    )
    return near | st.builds(_far, _LABELS, st.just("") | _SEGMENTS)


def _far(host: str, path: str) -> Audience:
    return one(Edit.LITERAL, f"https://{host}.example/{path}")


def unnamed_audiences() -> st.SearchStrategy[Audience]:
    """Return audiences in which we are not named: lists of other resources and JSON that is no audience at all."""
    others = st.lists(_LABELS.map(lambda h: Uri(Edit.LITERAL, f"https://{h}.example/")), max_size=4)
    junk = st.sampled_from(["null", "false", "0", "-1", "1.5", "{}", "[null]", '[{"%us%": true}]', '[["%us%"]]'])
    return others.map(lambda uris: listed(*uris)) | junk.map(literal) | st.just(Audience(AudienceForm.ABSENT, ()))


def lists_with_us() -> st.SearchStrategy[Audience]:
    """Return lists that hold our URI among others, at any place."""
    others = st.lists(_LABELS.map(lambda h: Uri(Edit.LITERAL, f"https://{h}.example/mcp")), max_size=6)
    return st.builds(_around_us, others, others)


def _around_us(left: list[Uri], right: list[Uri]) -> Audience:
    return listed(*left, Uri(), *right)

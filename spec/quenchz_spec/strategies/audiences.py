"""Audiences near ours and far from it, drawn; the written tables stand with the properties."""

from __future__ import annotations

from hypothesis import strategies as st

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


_UNSEEN = " \t\n\x00\x7f\u00a0\u00ad\u180e\u200b\u200d\u202e\u2028\u2060\u3000\ufeff\U000e0041"
REWRITTEN = (
    *(Edit.PARENT, Edit.RELATIVE, Edit.DOUBLE_SLASH, Edit.BACKSLASH, Edit.ENCODED_SLASH),
    *(Edit.LOOKALIKE, Edit.PUNYCODE, Edit.WIDE_HOST),
)
"""Edits without a text of their own that make another resource of ours."""


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
        st.sampled_from(_UNSEEN).map(lambda c: one(Edit.SUFFIX, c)),
        st.sampled_from(_UNSEEN).map(lambda c: one(Edit.PREFIX, c)),
        st.sampled_from(REWRITTEN).map(one),
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

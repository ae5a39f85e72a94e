"""URIs near the resource under test, as recipes.

A recipe says how to write a URI relative to the resource identifier (RFC 8707 §2), so that an example shrinks to a
phrase ("ours plus '/admin'") and can be replayed against another resource.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from urllib.parse import urlsplit

from quenchz_spec.codec import plain


@plain
class Edit(enum.Enum):
    """One way to write a URI that is near another."""

    SAME = "exactly ours"
    LITERAL = "the text itself"
    SUFFIX = "ours followed by the text"
    PREFIX = "the text followed by ours"
    HOST_SUFFIX = "our host followed by the text"
    HOST_PREFIX = "the text followed by our host"
    SIBLING = "our origin with the text as its path"
    ORIGIN = "our origin without a path"
    UPPER_HOST = "our host in capitals"
    UPPER_SCHEME = "our scheme in capitals"
    UPPER_PATH = "our path in capitals"
    SLASH = "ours with a trailing slash added, or taken away if it has one"
    DEFAULT_PORT = "our host with its scheme's default port written out"
    OTHER_PORT = "our host with the text as its port"
    OTHER_SCHEME = "ours with the text as its scheme"
    USERINFO = "our host with the text as its user information"
    DOT_SEGMENT = "our path with a dot segment that removes itself"
    PERCENT = "our path with an unreserved character percent-encoded"
    CUT = "ours without its last character"
    PARENT = "ours without its last segment"
    RELATIVE = "ours without its scheme"
    DOUBLE_SLASH = "our path after one slash more"
    BACKSLASH = "our path after a backslash in place of its first slash"
    ENCODED_SLASH = "our path with its last slash percent-encoded"
    EMPTY_PORT = "our host with a colon and no port"
    PERCENT_HOST = "our host with its first letter percent-encoded"
    LOOKALIKE = "our host with a letter of another alphabet that looks the same"
    PUNYCODE = "the same host in punycode"
    WIDE_HOST = "our host in fullwidth letters"


@plain
@dataclass(frozen=True)
class Uri:
    """A URI written relative to the resource; `of` writes it out."""

    edit: Edit = Edit.SAME
    text: str = ""

    def of(self, resource: str) -> str:
        """Return the URI for `resource`.

        Raises:
            ValueError: `resource` cannot be split as a URI.
        """
        parts = urlsplit(resource)
        host, text = parts.netloc, self.text
        default_port = {"https": ":443", "http": ":80"}.get(parts.scheme, ":443")
        path = parts.path
        # The standard library would tidy what an attack needs untidy, so each row is written by hand.
        origin = f"{parts.scheme}://{host}"
        tail = resource[len(origin) :]
        match self.edit:
            case Edit.SAME:
                return resource
            case Edit.LITERAL:
                return text
            case Edit.SUFFIX:
                return resource + text
            case Edit.PREFIX:
                return text + resource
            case Edit.HOST_SUFFIX:
                return f"{origin}{text}{tail}"
            case Edit.HOST_PREFIX:
                return f"{parts.scheme}://{text}{host}{tail}"
            case Edit.SIBLING:
                return f"{origin}{text}"
            case Edit.ORIGIN:
                return resource if path in ("", "/") else origin
            case Edit.UPPER_HOST:
                return f"{parts.scheme}://{host.upper()}{tail}"
            case Edit.UPPER_SCHEME:
                return f"{parts.scheme.upper()}://{host}{tail}"
            case Edit.UPPER_PATH:
                return f"{origin}{path.upper()}"
            case Edit.SLASH:
                return resource.rstrip("/") if resource.endswith("/") else resource + "/"
            case Edit.DEFAULT_PORT:
                return f"{origin}{default_port}{tail}" if parts.port is None else resource
            case Edit.OTHER_PORT:
                return f"{parts.scheme}://{parts.hostname}:{text}{tail}"
            case Edit.OTHER_SCHEME:
                return f"{text}://{host}{tail}"
            case Edit.USERINFO:
                return f"{parts.scheme}://{text}@{host}{tail}"
            case Edit.DOT_SEGMENT:
                return f"{origin}/x/..{tail}"
            case Edit.PERCENT:
                return f"{origin}{path[:1]}%{ord(path[1]):02X}{path[2:]}" if len(path) > 1 else f"{origin}/%2E"
            # A trailing slash alone would make it a respelling.
            case Edit.CUT:
                return resource.rstrip("/")[:-1]
            case Edit.EMPTY_PORT:
                return f"{origin}:{tail}" if parts.port is None else resource
            case Edit.PERCENT_HOST:
                return resource if host.startswith("[") else f"{parts.scheme}://%{ord(host[0]):02X}{host[1:]}{tail}"
            case Edit.LOOKALIKE:
                return f"{parts.scheme}://{_lookalike(host)}{tail}"
            case Edit.PUNYCODE:
                return f"{parts.scheme}://{'.'.join(map(_punycode, _lookalike(host).split('.')))}{tail}"
            case Edit.WIDE_HOST:
                return f"{parts.scheme}://{''.join(map(_wide, host))}{tail}"
            case Edit.RELATIVE:
                return resource.partition(":")[2]
            case _:
                return resource if path in ("", "/") else origin + _other_path(self.edit, tail)


def _other_path(edit: Edit, tail: str) -> str:
    """Return an edit of a path that is more than a slash."""
    head, _, last = tail.rstrip("/").rpartition("/")
    match edit:
        case Edit.PARENT:
            return f"{head}/"
        case Edit.DOUBLE_SLASH:
            return f"/{tail}"
        case Edit.BACKSLASH:
            return f"\\{tail[1:]}"
        case Edit.ENCODED_SLASH:
            return f"{head}%2F{last}"
        case _:
            raise AssertionError(f"{edit} is written elsewhere")


_CYRILLIC = {"a": "\u0430", "e": "\u0435", "o": "\u043e", "c": "\u0441", "p": "\u0440", "x": "\u0445"}


def _lookalike(host: str) -> str:
    """Return a host with its first letter that has a twin in Cyrillic replaced by it; unchanged if there is none."""
    at = next((i for i, letter in enumerate(host) if letter in _CYRILLIC), None)
    return host if at is None else host[:at] + _CYRILLIC[host[at]] + host[at + 1 :]


def _punycode(label: str) -> str:
    """Return a label as an A-label (RFC 5890 §2.3.2.1)."""
    return label if label.isascii() else "xn--" + label.encode("punycode").decode("ascii")


def _wide(letter: str) -> str:
    """Return the fullwidth form of a letter, which UTS #46 maps back to it."""
    return chr(ord(letter) - ord("a") + ord("\uff41")) if "a" <= letter <= "z" else letter

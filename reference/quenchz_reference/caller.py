"""Who asks: the authenticated principal that gate 1 hands to the gates behind it."""

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated principal: issuer and subject, kept apart so that no two pairs can read the same.

    Attributes:
        issuer: the `iss` claim, a budget domain.
        subject: the `sub` claim, unique within the issuer.
        client_id: the OAuth client, or "" if the token names none.
        scopes: the members of the `scope` claim.
    """

    issuer: str
    subject: str
    client_id: str
    scopes: frozenset[str]

    def __str__(self) -> str:
        # ascii() so that a line feed in a claim cannot write a log line of its own.
        return f"{self.subject!a} of {self.issuer!a}"


_current: ContextVar[Caller] = ContextVar("quenchz_caller")


def current_caller() -> Caller:
    """The caller of the request being served.

    Raises:
        LookupError: outside a request that passed gate 1.
    """
    return _current.get()


def enter(caller: Caller) -> None:
    """Make `caller` the current one for the rest of this request's task and whatever it starts."""
    _current.set(caller)

"""How one example of a property ends.

Only a violation travels through Hypothesis (so that it shrinks); whoever runs the property stops the other three at
its boundary and records them. A property that returns has *held*.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quenchz_spec.vocabulary import Exchange

if TYPE_CHECKING:
    from quenchz_spec.requirement import Norm


@dataclass
class ViolationError(AssertionError):
    """The server did what the requirement forbids: what was held, sent, received, expected.

    `held` is what the judge held or knew beforehand, `sent` and `received` describe the probe, `expected` says what
    the requirement demands. `signature` is the way of failing without this run's values. `compared` holds two
    exchanges whose bytes were compared, where that is the evidence.
    """

    held: str
    sent: str
    received: str
    expected: str
    signature: str
    compared: tuple[Exchange, Exchange] | None = None
    difference: str = ""
    norm: Norm | None = None

    def __str__(self) -> str:
        """The violation as one paragraph."""
        more = f" {self.difference}" if self.difference else ""
        return f"Held: {self.held} Sent: {self.sent} Received: {self.received} Expected: {self.expected}{more}"


@dataclass
class ControlError(Exception):
    """The positive control of an example did not hold, so the example says nothing about its probe."""

    control: str
    received: str

    def __str__(self) -> str:
        """The failed control as one sentence."""
        return f"the control failed: {self.control}; received {self.received}"


@dataclass
class UntestableError(Exception):
    """Something the example needs is missing; `provide` says how a user can supply it."""

    missing: str
    provide: str

    def __str__(self) -> str:
        """What is missing and how to provide it, as one sentence."""
        return f"{self.missing}; {self.provide}"


@dataclass
class NoAnswerError(UntestableError):
    """No complete answer came within `waited` seconds; `code` names the way, as a history has it (`QZ_E_TIMED_OUT`)."""

    code: str = ""
    waited: float = 0.0


@dataclass
class NotDeclaredError(Exception):
    """The server never declared the thing that the requirement is about."""

    thing: str

    def __str__(self) -> str:
        """What was not declared, as one sentence."""
        return f"the server does not declare {self.thing}"


@dataclass
class VoidError(Exception):
    """The example met something that has nothing to do with its claim, and is to be run again after `wait` seconds."""

    reason: str
    wait: float = 0.0
    evidence: list[Exchange] = field(default_factory=list[Exchange])

    def __str__(self) -> str:
        """Why the example is void."""
        return self.reason

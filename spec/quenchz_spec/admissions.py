"""What the pages of the first invariant share: the control, and how a changed token is tried."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from quenchz_spec.claims import control_admitted, refused
from quenchz_spec.outcomes import ControlError
from quenchz_spec.requirement import Row
from quenchz_spec.strategies.audiences import OTHER_SERVER
from quenchz_spec.vocabulary import (
    Ask,
    Audience,
    AudienceForm,
    Claim,
    Exchange,
    Role,
    SecondsFromNow,
    Shape,
    Signature,
    TokenRecipe,
)

if TYPE_CHECKING:
    from quenchz_spec.subject import Subject

ADMITTED = "a token whose audience is exactly this resource lists the tools"
NO_COST = "None: no conforming client holds such a token for this resource."


def of_broad(subject: Subject, recipe: TokenRecipe) -> TokenRecipe:
    """Return a recipe of a table, which names no caller, as one of the broad caller."""
    return dataclasses.replace(recipe, caller=subject.target.broad)


def a_changed_token_is_refused(
    subject: Subject, changed: TokenRecipe, held: str, statuses: tuple[int, ...] = (401,)
) -> None:
    """Show that the good token is admitted, then that the same request with `changed` gets one of `statuses`."""
    good = Ask(method="tools/list", token=subject.token(changed.caller))
    control_admitted(subject.ask(good, Role.CONTROL), ADMITTED)
    probe = Ask(method="tools/list", token=changed)
    refused(subject.ask(probe), held, statuses)


REFUSALS = {
    "no credentials": Row("no credentials", None),
    "another resource": Row("a token for another resource", TokenRecipe(caller="", audience=OTHER_SERVER)),
    "forged": Row("a forged token", TokenRecipe(caller="", signature=Signature.STRANGER)),
    "expired": Row("an expired token", TokenRecipe(caller="", claims=(Claim("exp", SecondsFromNow(-3600)),))),
    "not yet valid": Row(
        "a token from an hour on", TokenRecipe(caller="", claims=(Claim("nbf", SecondsFromNow(3600)),))
    ),
    "no audience": Row("a token for nobody", TokenRecipe(caller="", audience=Audience(AudienceForm.ABSENT, ()))),
    "another issuer": Row("a stranger's token", TokenRecipe(caller="", issuer="stranger")),
    "unknown key": Row("a key that is nowhere", TokenRecipe(caller="", header=(Claim("kid", "quenchz-none"),))),
    "no JSON": Row("a payload that is no JSON", TokenRecipe(caller="", shape=Shape.NO_JSON)),
}
"""What must be refused, in every way that a verifier can find out."""


def the_refusal(subject: Subject, row: TokenRecipe | None, role: Role = Role.PROBE) -> Exchange:
    """Return the answer to a request that must be refused, after its control; what is not refused is no refusal.

    Raises:
        ControlError: the good token is not admitted, or the answer is no 401.
    """
    caller = subject.target.broad
    control_admitted(subject.ask(Ask(method="tools/list", token=subject.token(caller)), Role.CONTROL), ADMITTED)
    token = None if row is None else of_broad(subject, row)
    return control_refused(subject.ask(Ask(method="tools/list", token=token, session=caller), role))


def control_refused(exchange: Exchange) -> Exchange:
    """Return `exchange` if it is a refusal; whether it is one is for other requirements to say.

    Raises:
        ControlError: it is anything else than HTTP 401.
    """
    if exchange.status != 401:
        raise ControlError("what must be refused is refused with 401", exchange.words)
    return exchange

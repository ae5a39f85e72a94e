"""The server under test, as a property sees it: a description, what it lists, and a few verbs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from quenchz_spec.codec import plain
from quenchz_spec.outcomes import NotDeclaredError
from quenchz_spec.vocabulary import Ask, Exchange, Role, TokenRecipe

if TYPE_CHECKING:
    from quenchz_spec.masks import Mask


@plain
@dataclass(frozen=True, kw_only=True)
class CallerSpec:
    """One caller of the target: the name used in recipes, the scopes of its tokens, its declared reserve."""

    name: str
    scopes: tuple[str, ...] = ()
    reserve: int | None = None


@plain
@dataclass(frozen=True, kw_only=True)
class Budget:
    """The budget a target declares: `budget` units in every window of `window` seconds, over all callers.

    `pool` is what no reserve claims. `free` names the methods that cost nothing; a name that ends in `*` stands for
    every method that begins so. `exclusive` says that the judge has the budget to itself.
    """

    limiter: str
    budget: int
    window: float
    pool: int
    free: tuple[str, ...]
    refusal_status: int = 429
    exclusive: bool = True

    def charges(self, method: str) -> bool:
        """Whether a request with this JSON-RPC method costs a unit."""
        return not any(method == name or (name.endswith("*") and method.startswith(name[:-1])) for name in self.free)


@plain
@dataclass(frozen=True, kw_only=True)
class ObservationTool:
    """A tool that returns observations: how to ask it for a window, and where its certificate stands.

    `since` and `until` are the names of the arguments that bound the window, both inclusive, as ISO 8601 dates.
    `observations`, `certificate` and the members of `fields` are JSON Pointers into the structured content and into
    the certificate. `gap_causes` are the causes that count as expected but missing, `open_causes` those that keep the
    window open.
    """

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    since: str = "from"
    until: str = "to"
    observations: str = "/observations"
    certificate: str = "/coverage"
    gap_causes: tuple[str, ...] = ()
    open_causes: tuple[str, ...] = ()


@plain
@dataclass(frozen=True, kw_only=True)
class Target:
    """What is known of a server before the first request (design of the target file: spec/schemas/target.json).

    `broad` and `narrow` name the two callers whose listings define what is hidden. `fresh_budgets` says that the
    judge can have an untouched budget for an example. `hidden`
    holds pairs of a kind and a name that the target declares hidden from the narrow caller; what the listings show
    hidden is added to it. `may_call` names tools that may be run for real although nothing says they only read.

    `audience` is how the target compares audiences: "exact", or "member" as RFC 7519 §4.1.3 has it. `leeway` is how
    many seconds after its expiry a token is still admitted, None if nobody says. `profiles` names what else the
    target keeps to: "rfc9068" of the type of its tokens; "introspection" if they are opaque, and then each recipe is
    minted as a reference that the issuer is asked about. `refetch` and `patience` are what it declares of its issuers:
    how many seconds lie at least between two fetches of a key set for unknown keys, and within how many a token is
    refused about which nothing can be had, neither a key set nor an answer. `withdrawal` is how many seconds after a
    key has left its issuer's key set a token of it that was not seen before may still be admitted.
    """

    resource: str
    callers: tuple[CallerSpec, ...] = ()
    broad: str = ""
    narrow: str = ""
    budget: Budget | None = None
    observations: tuple[ObservationTool, ...] = ()
    hidden: tuple[tuple[str, str], ...] = ()
    may_call: tuple[str, ...] = ()
    challengeable: tuple[str, ...] = ()
    mask_headers: tuple[str, ...] = ()
    fresh_budgets: bool = False
    audience: str = "exact"
    leeway: float | None = None
    profiles: tuple[str, ...] = ()
    refetch: float | None = None
    patience: float | None = None
    withdrawal: float | None = None

    def require_declared(self, ask: Ask) -> None:
        """State that the tokens of a request are of a kind that this target declares.

        Raises:
            NotDeclaredError: its tokens are opaque, and one of these is about what only a JWT has.
        """
        tokens = [credential.token for credential in ask.also] + ([] if ask.token is None else [ask.token])
        if "introspection" in self.profiles and not all(token.can_be_opaque for token in tokens):
            raise NotDeclaredError("tokens that it reads itself: the header, signature and size of a JWT")

    def caller(self, name: str) -> CallerSpec:
        """Return a caller by its name.

        Raises:
            KeyError: no caller has that name.
        """
        found = next((caller for caller in self.callers if caller.name == name), None)
        if found is None:
            raise KeyError(f"the target has no caller {name!r}; it has {[c.name for c in self.callers]}")
        return found


KINDS = ("tools", "prompts", "resources", "resource_templates")
"""The kinds of things a caller can list, in the order of the catalogue."""


@dataclass(frozen=True)
class Catalogue:
    """What the callers list: for each caller and kind, the listed entries by name (or URI, or URI template)."""

    entries: Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]] = field(
        default_factory=dict[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]
    )
    declared: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()

    def names(self, caller: str, kind: str) -> list[str]:
        """Return what `caller` lists of `kind`, sorted."""
        return sorted(self.entries.get(caller, {}).get(kind, {}))

    def entry(self, caller: str, kind: str, name: str) -> Mapping[str, Any]:
        """Return one listed entry; an empty mapping when it is not listed."""
        return self.entries.get(caller, {}).get(kind, {}).get(name, {})

    def hidden(self, target: Target, kind: str) -> list[str]:
        """Return what the target declares hidden, and what the broad caller lists of `kind` and the narrow one not."""
        narrow = set(self.names(target.narrow, kind))
        derived = {name for name in self.names(target.broad, kind) if name not in narrow}
        return sorted(derived | {name for of, name in target.hidden if of == kind})

    def granted(self, target: Target, kind: str) -> list[str]:
        """Return what the narrow caller lists of `kind` and the target does not declare hidden."""
        declared = {name for of, name in target.hidden if of == kind}
        return [name for name in self.names(target.narrow, kind) if name not in declared]


class Subject(Protocol):
    """The few verbs a property may use on a server."""

    @property
    def target(self) -> Target:
        """What is known of the server beforehand."""
        ...

    @property
    def catalogue(self) -> Catalogue:
        """What the callers list, read once per run."""
        ...

    def mask(self, kind: str) -> Mask:
        """Return what may differ between two denials of `kind`: learned from pairs of invented names.

        Raises:
            UntestableError: the server's own noise is more than a mask may hide.
        """
        ...

    def token(self, caller: str) -> TokenRecipe:
        """Return the recipe of a token of `caller` that must be admitted; the same one within an example."""
        ...

    def ask(self, ask: Ask, role: Role = Role.PROBE) -> Exchange:
        """Send one request and return the exchange.

        Raises:
            UntestableError: the token cannot be minted, or the transport failed.
        """
        ...

    def fresh_budget(self) -> None:
        """Make the rest of the example start on a budget that nobody has touched, waiting for a window if need be."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass for the server."""
        ...

    def issuer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Give the suite's issuer an order about the tenant whose tokens are in use, and return what it says of it.

        {} asks only: how often the key set of the tenant and the canary were fetched. See `quenchz.issuer` for orders.

        Raises:
            UntestableError: the tokens come from elsewhere, or the tenant is not the judge's alone.
        """
        ...

    def fetch(self, url: str, role: Role = Role.CONTROL, headers: tuple[tuple[str, str], ...] = ()) -> Exchange:
        """GET a document of the same origin without credentials; `headers` as in `Ask`.

        Raises:
            UntestableError: `url` is not of the target's origin, or the transport failed.
        """
        ...

"""Properties about tokens, judged over scripted answers: what no server at hand does, or does only after a wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from quenchz_spec.outcomes import ControlError, NotDeclaredError, UntestableError, ViolationError, VoidError
from quenchz_spec.requirement import law
from quenchz_spec.subject import CallerSpec, Catalogue, Target
from quenchz_spec.test_audience import LISTS_WITH_US, OTHER_RESOURCES, RESPELLINGS, UNNAMED
from quenchz_spec.test_forgeries import KEY_IDS, NO_JWS, OWN_KEYS
from quenchz_spec.test_lifetimes import LEEWAYS, LIFE, RUNS
from quenchz_spec.vocabulary import Ask, Exchange, Message, Moments, Role, SecondsFromNow, TokenRecipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from quenchz_spec.masks import Mask

LAW = {requirement.id: requirement for requirement in law()}
LISTED = '{"jsonrpc":"2.0","id":1,"result":{"tools":[],"prompts":[]}}'
RESULT = Message("HTTP/1.1 200 OK", (("content-type", "application/json"),), LISTED)
STREAM = Message("HTTP/1.1 200 OK", (("content-type", "text/event-stream"),), ": ping\n\n")


def status(code: int) -> Message:
    return Message(f"HTTP/1.1 {code} X")


class Scripted:
    """A subject whose answers and seconds a function says; time passes in `wait` and while an answer is waited for."""

    def __init__(self, answer: Callable[[Ask, float], tuple[Message, float]], **members: Any) -> None:
        members = {"leeway": 0.0} | members
        self.target = Target(
            resource="https://fake.invalid/mcp", callers=(CallerSpec(name="broad"),), broad="broad", **members
        )
        self.catalogue = Catalogue()
        self.now = 0.0
        self.asked: list[Ask] = []
        self.canary = 0
        self._answer = answer

    def mask(self, kind: str) -> Mask:
        raise AssertionError("no property here compares denials")

    def token(self, caller: str) -> TokenRecipe:
        return TokenRecipe(caller=caller)

    def ask(self, ask: Ask, role: Role = Role.PROBE) -> Exchange:
        self.asked.append(ask)
        sent = self.now
        message, seconds = self._answer(ask, sent)
        self.now += seconds
        return Exchange(ask, role, Message("POST /mcp HTTP/1.1"), message, Moments(sent, self.now, self.now))

    def fresh_budget(self) -> None:
        raise AssertionError("no property here spends")

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def issuer(self, order: dict[str, Any]) -> dict[str, Any]:
        assert order == {}
        return {"canary": self.canary}

    def fetch(self, url: str, role: Role = Role.CONTROL, headers: tuple[tuple[str, str], ...] = ()) -> Exchange:
        raise AssertionError("no property here fetches")


def judge(name: str, row: Any, subject: Scripted) -> None:
    LAW[name].check(subject, row)


def admitting(is_good: Callable[[TokenRecipe], bool], bad: int = 401, seconds: float = 0.01) -> Any:
    def answer(ask: Ask, _: float) -> tuple[Message, float]:
        return (RESULT if ask.token is not None and is_good(ask.token) else status(bad)), seconds

    return answer


def honest(recipe: TokenRecipe) -> bool:
    return recipe.plainly_valid


# --- audiences ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LISTS_WITH_US)
def test_a_list_with_us_is_not_judged_where_membership_is_declared(name: str) -> None:
    with pytest.raises(NotDeclaredError, match="one string"):
        judge("QZ-AUD-3", LISTS_WITH_US[name].value, Scripted(admitting(lambda _: True), audience="member"))


def test_lists_without_us_and_respellings_are_refused_where_membership_is_declared() -> None:
    for table, name in ((UNNAMED, "QZ-AUD-4"), (RESPELLINGS, "QZ-AUD-2"), (OTHER_RESOURCES, "QZ-AUD-1")):
        for row in table.values():
            judge(name, row.value, Scripted(admitting(honest), audience="member"))
            with pytest.raises(ViolationError):
                judge(name, row.value, Scripted(admitting(lambda _: True), audience="member"))


def test_a_very_long_audience_is_not_spelled_out_in_a_finding() -> None:
    with pytest.raises(ViolationError) as found:
        judge("QZ-AUD-1", OTHER_RESOURCES["very long"].value, Scripted(admitting(lambda _: True)))
    assert len(found.value.held) < 400


@pytest.mark.parametrize("admitted", [(), ("tools/list", "tools/call"), None])
def test_respellings_are_judged_by_whether_they_are_decided_alike(admitted: tuple[str, ...] | None) -> None:
    def answer(ask: Ask, _: float) -> tuple[Message, float]:
        assert ask.token is not None
        good = honest(ask.token) or admitted is None or ask.method in admitted
        if ask.verb == "GET":
            return status(405), 0.01
        return (RESULT if good else status(401)), 0.01

    subject = Scripted(answer)
    if admitted:
        with pytest.raises(ViolationError, match="one decision about one audience"):
            judge("QZ-AUD-13", RESPELLINGS["default port"].value, subject)
    else:
        judge("QZ-AUD-13", RESPELLINGS["default port"].value, subject)
    assert {(ask.verb, ask.method) for ask in subject.asked} >= {("GET", ""), ("POST", "tools/call")}


@pytest.mark.parametrize("code", [302, 403, 500])
def test_a_respelling_is_neither_admitted_nor_refused_by_another_answer(code: int) -> None:
    with pytest.raises(ViolationError, match="HTTP 401, or what"):
        judge("QZ-AUD-13", RESPELLINGS["default port"].value, Scripted(admitting(honest, bad=code)))


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OWN_KEYS)
def test_a_fetch_of_what_a_token_names_is_a_violation_though_the_token_is_refused(name: str) -> None:
    subject = Scripted(admitting(honest))
    judge("QZ-AUD-14", OWN_KEYS[name].value, subject)

    def fetching(ask: Ask, _: float) -> tuple[Message, float]:
        fetched.canary += bool(ask.token is not None and ask.token.header)
        return (RESULT if ask.token is not None and honest(ask.token) else status(401)), 0.01

    fetched = Scripted(fetching)
    if "jwk" in name or "x5c" in name:  # nothing there can be fetched
        judge("QZ-AUD-14", OWN_KEYS[name].value, fetched)
        return
    with pytest.raises(ViolationError, match="a request for the URL") as found:
        judge("QZ-AUD-14", OWN_KEYS[name].value, fetched)
    assert found.value.norm is not None
    assert found.value.norm.source == "RFC 8725 §3.10"


def test_a_row_with_a_url_is_untestable_without_an_issuer_of_our_own() -> None:
    class Elsewhere(Scripted):
        def issuer(self, order: dict[str, Any]) -> dict[str, Any]:
            raise UntestableError("the tokens come from elsewhere", "use the suite's issuer")

    with pytest.raises(UntestableError):
        judge("QZ-AUD-14", OWN_KEYS["jku"].value, Elsewhere(admitting(honest)))
    judge("QZ-AUD-14", OWN_KEYS["jwk"].value, Elsewhere(admitting(honest)))


@pytest.mark.parametrize(
    ("requirement", "row", "allowed"),
    [
        ("QZ-AUD-15", NO_JWS["empty"], {400, 401}),
        ("QZ-AUD-15", NO_JWS["json"], {400, 401}),
        ("QZ-AUD-15", NO_JWS["four"], {401}),
        ("QZ-AUD-16", KEY_IDS["10,000 letters"], {400, 401, 413, 431}),
        ("QZ-AUD-16", KEY_IDS["a lone quote"], {401}),
    ],
)
def test_what_is_no_token_or_too_large_may_be_turned_away_otherwise(
    requirement: str, row: Any, allowed: set[int]
) -> None:
    for code in (200, 400, 401, 403, 404, 413, 431, 500):
        if code in allowed:
            judge(requirement, row.value, Scripted(admitting(honest, bad=code)))
        else:
            with pytest.raises(ViolationError):
                judge(requirement, row.value, Scripted(admitting(honest, bad=code)))


# --- time -----------------------------------------------------------------------------------------------------------


def living(leeway: float = 0.0, seconds: float = 0.01, remembering: bool = False) -> Any:
    """Answer as a server with this leeway; each recipe is minted when it is first sent, at the start of a second."""
    minted: dict[str, float] = {}

    def answer(ask: Ask, now: float) -> tuple[Message, float]:
        assert ask.token is not None
        at = minted.setdefault(repr(ask.token), now)
        moments = {c.name: int(at) + c.value.seconds for c in ask.token.claims if isinstance(c.value, SecondsFromNow)}
        decided = at if remembering else now
        good = decided < moments.get("exp", 10**9) + leeway and decided >= moments.get("nbf", 0) - leeway
        return (RESULT if good else status(401)), seconds

    return answer


@pytest.mark.parametrize("name", LEEWAYS)
@pytest.mark.parametrize("leeway", [0.0, 3.0, 60.0])
def test_a_leeway_is_kept_by_who_keeps_it(name: str, leeway: float) -> None:
    subject = Scripted(living(leeway), leeway=leeway)
    subject.now = 1000.0
    if leeway == 0 and name.endswith("within it"):
        with pytest.raises(NotDeclaredError, match="three seconds"):
            judge("QZ-AUD-18", LEEWAYS[name].value, subject)
    else:
        judge("QZ-AUD-18", LEEWAYS[name].value, subject)


@pytest.mark.parametrize(
    ("kept", "name"),
    [
        (63.0, "expired beyond it"),
        (63.0, "expired at its end"),
        (57.0, "expired within it"),
        (63.0, "valid beyond it"),
        (57.0, "valid at its end"),
        (57.0, "valid within it"),
    ],
)
def test_another_leeway_than_the_declared_one_is_found(kept: float, name: str) -> None:
    subject = Scripted(living(kept), leeway=60.0)
    subject.now = 1000.0
    with pytest.raises(ViolationError, match="a leeway of 60 s"):
        judge("QZ-AUD-18", LEEWAYS[name].value, subject)


@pytest.mark.parametrize("name", [name for name, row in LEEWAYS.items() if row.value[1] != 0])
def test_a_slow_answer_proves_nothing_about_a_leeway(name: str) -> None:
    with pytest.raises(VoidError, match="longer than a second"):
        judge("QZ-AUD-18", LEEWAYS[name].value, Scripted(living(60.0, seconds=1.5), leeway=60.0))


@pytest.mark.parametrize("requirement", ["QZ-AUD-18", "QZ-AUD-19"])
def test_without_a_declared_leeway_no_second_is_judged(requirement: str) -> None:
    row = next(iter(LAW[requirement].rows.values())).value
    with pytest.raises(NotDeclaredError, match="leeway"):
        judge(requirement, row, Scripted(living(), leeway=None))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("leeway", [0.0, 30.0])
def test_a_token_is_waited_for_until_it_has_expired_for_certain(name: str, leeway: float) -> None:
    subject = Scripted(living(leeway), leeway=leeway)
    subject.now = 1000.999
    judge("QZ-AUD-19", RUNS[name].value, subject)
    assert subject.now > 1000.999 + LIFE + leeway
    tokens = [ask.token for ask in subject.asked if ask.token is not None]
    assert tokens[1] == tokens[-2] != tokens[-1]


@pytest.mark.parametrize("name", RUNS)
def test_a_server_that_remembers_a_token_for_longer_is_found(name: str) -> None:
    with pytest.raises(ViolationError, match="has expired since"):
        judge("QZ-AUD-19", RUNS[name].value, Scripted(living(remembering=True)))


def test_a_server_that_lets_nobody_in_again_proves_nothing() -> None:
    def answer(ask: Ask, now: float) -> tuple[Message, float]:
        return (RESULT if now < LIFE else status(401)), 0.01

    with pytest.raises(ControlError, match="a new token"):
        judge("QZ-AUD-19", RUNS["tools/list"].value, Scripted(answer))


@pytest.mark.parametrize(("lasts", "outlives"), [(0.5, False), (LIFE, False), (LIFE + 0.9, False), (LIFE + 1.5, True)])
def test_a_stream_is_observed_to_outlive_its_token_by_more_than_a_second(lasts: float, outlives: bool) -> None:
    subject = Scripted(lambda ask, _: (STREAM, lasts) if ask.verb == "GET" else (RESULT, 0.01))
    if outlives:
        with pytest.raises(ViolationError, match=r"open 1\.5 seconds after"):
            judge("QZ-AUD-20", "GET", subject)
    else:
        judge("QZ-AUD-20", "GET", subject)
    assert [ask.listen for ask in subject.asked] == [0.0, LIFE + 1.5]


@pytest.mark.parametrize("answer", [status(405), RESULT, status(200)])
def test_a_server_without_streams_declares_none(answer: Message) -> None:
    subject = Scripted(lambda ask, _: (answer, 0.01) if ask.verb == "GET" else (RESULT, 0.01))
    with pytest.raises(NotDeclaredError, match="a stream"):
        judge("QZ-AUD-20", "GET", subject)

"""Each token source gives the token that was asked for or says why it cannot, and never says a token or a secret."""

from __future__ import annotations

import base64
import json
import math
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote_plus, unquote_plus

import jsonschema
import pytest

from quenchz import tokens as sources
from quenchz.authorization_server import AuthorizationServer, Client, ClientCredentialsSource
from quenchz.check import token_source
from quenchz.issuer import SuiteIssuer
from quenchz.reference import running
from quenchz.target_file import Configuration, TargetFileError, read_target_file
from quenchz.tokens import CommandSource, IssuerSource, KeepingSource, payload_of, seconds_good
from quenchz.web import NoAnswerError, is_confidential, shown
from quenchz_spec.outcomes import UntestableError
from quenchz_spec.resources import Edit, Uri
from quenchz_spec.strategies.audiences import OTHER, OTHER_SERVER, listed, literal, one
from quenchz_spec.subject import CallerSpec, Target
from quenchz_spec.vocabulary import Audience, AudienceForm, Claim, SecondsFromNow, Signature, TokenRecipe
from support.judging import judge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESOURCE = "https://rates.quenchz.invalid/mcp"
SECRET = "s3cret of+the client/0123456789"
TARGET = Target(resource=RESOURCE, callers=(CallerSpec(name="broad", scopes=("a", "b")), CallerSpec(name="narrow")))
BROAD = TokenRecipe(caller="broad")
ABSENT = Audience(AudienceForm.ABSENT, ())


def jwt_of(**payload: Any) -> str:
    parts = [json.dumps(part).encode() for part in ({"alg": "ES256", "typ": "at+jwt"}, payload)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, b"s" * 64))


# --- a running `quenchz issuer` -------------------------------------------------------------------------------------


def test_a_running_issuer_mints_every_recipe_for_each_tenant() -> None:
    target = Target(resource=RESOURCE, callers=TARGET.callers, fresh_budgets=True)
    with SuiteIssuer(grants=True) as issuer:
        source = IssuerSource(issuer.base_url, target, first=7_000_000)
        good = payload_of(source.token(BROAD, 2))
        assert (good["iss"], good["sub"], good["scope"]) == (f"{issuer.base_url}/run-7000002", "broad", "a b")
        forged = source.token(TokenRecipe(caller="broad", signature=Signature.NONE, audience=one(Edit.SUFFIX, "/x")), 2)
        assert payload_of(forged)["aud"] == f"{RESOURCE}/x"
        assert forged.endswith(".")
        alone = IssuerSource(issuer.base_url + "/", TARGET)
        assert payload_of(alone.token(BROAD, 2))["iss"] == issuer.base_url
        assert alone.token(BROAD, 2) == alone.token(BROAD, 2) != alone.token(BROAD.fresh(1), 2)


def test_an_issuer_that_mints_nothing_makes_a_row_untestable() -> None:
    with SuiteIssuer() as issuer:
        with pytest.raises(UntestableError, match=r"gives no token: HTTP 404; make sure"):
            IssuerSource(issuer.base_url, TARGET).token(BROAD, 0)
        gone = issuer.base_url
    with pytest.raises(UntestableError, match=r"cannot connect .*; start `quenchz issuer`"):
        IssuerSource(gone, TARGET).token(BROAD, 0)


# --- a real authorization server ------------------------------------------------------------------------------------

Granting = Callable[[dict[str, list[str]]], tuple[int, Any]]


class FakeServer(ThreadingHTTPServer):
    """An authorization server whose answers a test chooses."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.grant: Granting = as_asked
        self.metadata: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, list[str]], str]] = []


class _Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def do_GET(self) -> None:
        self.server.asked.append((self.path, {}, ""))
        document = self.server.metadata.get(self.path)
        self.reply(404 if document is None else 200, document or {})

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode(), keep_blank_values=True)
        self.server.asked.append((self.path, form, self.headers.get("Authorization", "")))
        self.reply(*self.server.grant(form))

    def reply(self, status: int, document: Any) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


_made = 0


def as_asked(form: dict[str, list[str]], **more: Any) -> tuple[int, Any]:
    """Grant a token with the audience that was asked for, as a strict server does."""
    global _made
    _made += 1
    resources = form.get("resource", [])
    aud: dict[str, Any] = {"aud": resources[0] if len(resources) == 1 else resources} if resources else {}
    payload = {"iss": "as", "sub": "broad", "jti": _made, "exp": int(time.time()) + 300, **aud, **more}
    token = jwt_of(**{key: value for key, value in payload.items() if value is not ...})
    return 200, {"access_token": token, "token_type": "bearer", "expires_in": 300}


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def source_at(server: FakeServer, **how: Any) -> ClientCredentialsSource:
    where = how or {"token_endpoint": f"{server.url}/token"}
    clients = {"broad": Client("id of/broad", SECRET), "narrow": Client("n", SECRET)}
    return ClientCredentialsSource(AuthorizationServer(**where), clients, TARGET)


def test_a_good_token_is_asked_for_with_basic_authentication_scope_and_resource(server: FakeServer) -> None:
    token = source_at(server).token(BROAD, 0)
    assert payload_of(token)["aud"] == RESOURCE
    ((path, form, authorization),) = server.asked
    assert path == "/token"
    assert form == {"grant_type": ["client_credentials"], "scope": ["a b"], "resource": [RESOURCE]}
    scheme, _, pair = authorization.partition(" ")
    halves = base64.b64decode(pair).decode().split(":")
    assert (scheme, [unquote_plus(half) for half in halves]) == ("Basic", ["id of/broad", SECRET])


def test_a_secret_is_posted_where_the_server_wants_it_so(server: FakeServer) -> None:
    source_at(server, token_endpoint=f"{server.url}/t", auth_method="client_secret_post").token(BROAD, 0)
    ((_, form, authorization),) = server.asked
    assert authorization == ""
    assert (form["client_id"], form["client_secret"]) == (["id of/broad"], [SECRET])


@pytest.mark.parametrize(
    ("audience", "resources", "aud"),
    [
        (OTHER_SERVER, ["https://other.example/mcp"], "https://other.example/mcp"),
        (ABSENT, None, ...),
        (listed(Uri(), OTHER), [RESOURCE, "https://other.example/mcp"], [RESOURCE, "https://other.example/mcp"]),
        (literal('["%us%", "x"]'), [RESOURCE, "x"], [RESOURCE, "x"]),
        (one(Edit.SUFFIX, "#a b+c&d=é"), [f"{RESOURCE}#a b+c&d=é"], f"{RESOURCE}#a b+c&d=é"),
    ],
)
def test_what_resource_can_express_is_asked_and_used_if_it_came_out_so(
    audience: Audience, resources: list[str] | None, aud: Any, server: FakeServer
) -> None:
    token = source_at(server).token(TokenRecipe(caller="broad", audience=audience), 0)
    assert payload_of(token).get("aud", ...) == aud
    assert server.asked[0][1].get("resource") == resources


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (TokenRecipe(caller="broad", signature=Signature.NONE), "another signature"),
        (TokenRecipe(caller="broad", claims=(Claim("exp", SecondsFromNow(-3600)),)), "other claims"),
        (TokenRecipe(caller="broad", issuer="stranger", without=("iss",)), "claims left out and another issuer"),
        (TokenRecipe(caller="broad", header=(Claim("typ", "JWT"),)), "another header"),
        (TokenRecipe(caller="broad", audience=literal("null")), "cannot ask for the aud null"),
        (TokenRecipe(caller="broad", audience=literal('[["%us%"]]')), r"cannot ask for the aud \[\["),
        (TokenRecipe(caller="broad", audience=literal('"x","aud":"y"')), "cannot ask for the aud"),
    ],
)
def test_what_resource_cannot_express_is_untestable_and_never_asked(
    recipe: TokenRecipe, said: str, server: FakeServer
) -> None:
    with pytest.raises(UntestableError, match=said + r".*; let the target trust the suite's issuer"):
        source_at(server).token(recipe, 0)
    assert server.asked == []


@pytest.mark.parametrize(
    ("audience", "emitted", "said"),
    [
        (
            OTHER_SERVER,
            ["https://other.example/mcp"],
            r'wrote aud \["https://other.example/mcp"\] instead of aud "https',
        ),
        (OTHER_SERVER, RESOURCE, f'wrote aud "{RESOURCE}" instead of aud "https://other'),
        (OTHER_SERVER, ..., 'wrote no aud instead of aud "https://other'),
        (ABSENT, "default", 'wrote aud "default" instead of no aud'),
        (listed(Uri(), OTHER), RESOURCE, rf'wrote aud "{RESOURCE}" instead of aud \["{RESOURCE}", "https://other'),
        (listed(Uri()), RESOURCE, rf'wrote aud "{RESOURCE}" instead of aud \["{RESOURCE}"\]'),
        (one(Edit.UPPER_HOST), RESOURCE, f'wrote aud "{RESOURCE}" instead'),
        (OTHER_SERVER, SECRET, r'wrote aud "\*\*\*" instead'),
    ],
)
def test_a_bad_token_that_came_out_otherwise_is_no_probe(
    audience: Audience, emitted: Any, said: str, server: FakeServer
) -> None:
    """Taken for what was asked, the row would judge the authorization server in the name of the resource."""
    server.grant = lambda form: as_asked(form, aud=emitted)
    with pytest.raises(UntestableError, match=f"the authorization server {said}"):
        source_at(server).token(TokenRecipe(caller="broad", audience=audience), 0)


def test_a_good_token_is_used_as_it_was_emitted(server: FakeServer) -> None:
    server.grant = lambda form: as_asked(form, aud=[RESOURCE])
    assert payload_of(source_at(server).token(BROAD, 0))["aud"] == [RESOURCE]
    server.grant = lambda _: (200, {"access_token": "opaque~1", "token_type": "Bearer"})
    assert source_at(server).token(BROAD, 0) == "opaque~1"


def test_an_opaque_token_is_never_taken_for_a_bad_one(server: FakeServer) -> None:
    server.grant = lambda _: (200, {"access_token": "opaque~1", "token_type": "Bearer"})
    with pytest.raises(UntestableError, match="gave an opaque token: its aud cannot be read"):
        source_at(server).token(TokenRecipe(caller="broad", audience=OTHER_SERVER), 0)


@pytest.mark.parametrize("name", ["iss", "sub", "scope", "scp"])
def test_a_bad_token_that_differs_in_more_than_its_audience_is_no_probe(name: str, server: FakeServer) -> None:
    server.grant = lambda form: as_asked(form, **({} if form["resource"] == [RESOURCE] else {name: "other"}))
    with pytest.raises(UntestableError, match=f"changed {name} too, which may be why it is refused"):
        source_at(server).token(TokenRecipe(caller="broad", audience=OTHER_SERVER), 0)


def test_the_same_token_again_is_no_fresh_one(server: FakeServer) -> None:
    same = as_asked({"resource": [RESOURCE]})
    server.grant = lambda _: same
    source = source_at(server)
    source.token(BROAD, 0)
    with pytest.raises(UntestableError, match="the same token again"):
        source.token(BROAD.fresh(1), 0)


@pytest.mark.parametrize(
    ("status", "document", "said"),
    [
        (
            400,
            {"error": "invalid_target"},
            r'refuses broad with resource "https://other.example/mcp": invalid_target; register that .* or let',
        ),
        (
            400,
            {"error": "invalid_target", "error_description": f"no {SECRET},\nno"},
            r"invalid_target \(no \*\*\*,\); register",
        ),
        (401, {"error": "invalid_client"}, r"invalid_client; correct callers\.broad\.client_id or the secret"),
        (400, {"error": f"no {SECRET} of yours"}, r"no \*\*\* of yours"),
        (400, {"error": 7}, "HTTP 400"),
        (500, b"garbage", "HTTP 500"),
        (302, {}, "HTTP 302"),
        (200, {}, "HTTP 200"),
        (200, {"access_token": 7}, "HTTP 200"),
        (200, {"access_token": "a b", "token_type": "Bearer"}, "no bearer token"),
        (200, {"access_token": "a\r\nX: y", "token_type": "Bearer"}, "no bearer token"),
        (200, {"access_token": jwt_of(), "token_type": "DPoP"}, "no bearer token"),
        (200, {"access_token": jwt_of()}, "no bearer token"),
    ],
)
def test_a_refusal_is_untestable_with_the_servers_own_error(
    status: int, document: Any, said: str, server: FakeServer
) -> None:
    server.grant = lambda _: (status, document)
    with pytest.raises(UntestableError, match=said):
        source_at(server).token(TokenRecipe(caller="broad", audience=OTHER_SERVER), 0)
    assert [path for path, _, _ in server.asked] == ["/token"]


def test_a_good_token_that_is_refused_says_what_the_server_has_to_grant(server: FakeServer) -> None:
    server.grant = lambda _: (400, {"error": "unauthorized_client"})
    with pytest.raises(UntestableError, match=r"correct callers\.broad\.client_id"):
        source_at(server).token(BROAD, 0)
    server.grant = lambda _: (400, {"error": "invalid_scope"})
    with pytest.raises(UntestableError, match="have it grant id of/broad the client credentials grant"):
        source_at(server).token(BROAD, 0)


@pytest.mark.parametrize("place", ["/.well-known/oauth-authorization-server/t", "/t/.well-known/openid-configuration"])
def test_the_token_endpoint_is_discovered_once_and_its_authentication_too(place: str, server: FakeServer) -> None:
    issuer = f"{server.url}/t"
    endpoint = {"issuer": issuer, "token_endpoint": f"{server.url}/granting"}
    server.metadata[place] = {**endpoint, "token_endpoint_auth_methods_supported": ["none", "client_secret_post"]}
    source = source_at(server, issuer=issuer)
    source.token(BROAD, 0)
    source.token(TokenRecipe(caller="narrow"), 0)
    posted = [(path, form["client_id"]) for path, form, _ in server.asked if form]
    assert posted == [("/granting", ["id of/broad"]), ("/granting", ["n"])]
    assert [path for path, form, _ in server.asked if not form].count(place) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"issuer": "https://other.example"},
            r'is of issuer "https://other.example", not of .*; correct tokens\.issuer',
        ),
        ({"token_endpoint": "http://as.example/token"}, "it takes https to send a secret"),
        ({"token_endpoint": None}, "names the token endpoint null"),
        ({"token_endpoint_auth_methods_supported": ["private_key_jwt"]}, r'\["private_key_jwt"\]; have it offer'),
    ],
)
def test_metadata_that_cannot_be_used_is_untestable(change: dict[str, Any], said: str, server: FakeServer) -> None:
    document = {"issuer": server.url, "token_endpoint": f"{server.url}/token"}
    server.metadata["/.well-known/oauth-authorization-server"] = {**document, **change}
    with pytest.raises(UntestableError, match=said):
        source_at(server, issuer=server.url).token(BROAD, 0)


def test_no_metadata_and_no_server_are_untestable(server: FakeServer) -> None:
    with pytest.raises(UntestableError, match=r"no metadata: .*HTTP 404.*; give tokens\.token_endpoint"):
        source_at(server, issuer=server.url).token(BROAD, 0)
    for how in ({"issuer": "http://127.0.0.1:1"}, {"token_endpoint": "http://127.0.0.1:1/token"}):
        with pytest.raises(UntestableError, match="cannot connect"):
            source_at(server, **how).token(BROAD, 0)


# --- a command ------------------------------------------------------------------------------------------------------


def command(body: str, folder: Path | None = None) -> CommandSource:
    return CommandSource(
        [sys.executable, "-c", f"import json, sys\nasked = json.load(sys.stdin)\n{body}"], TARGET, folder
    )


def test_a_command_gets_the_recipe_and_prints_the_token(tmp_path: Path) -> None:
    line = jwt_of(aud="https://other.example/mcp")
    source = command(f"json.dump(asked, open('asked.json', 'w')); print({line!r})", tmp_path)
    recipe = TokenRecipe(caller="broad", audience=OTHER_SERVER, claims=(Claim("exp", SecondsFromNow(-60)),))
    assert source.token(recipe, 0) == line
    assert json.loads((tmp_path / "asked.json").read_text(encoding="utf-8")) == {
        "caller": "broad",
        "aud": "https://other.example/mcp",
        "claims": {"exp": "-60"},
        "resource": RESOURCE,
        "scopes": ["a", "b"],
    }


def test_a_command_runs_once_for_each_recipe(tmp_path: Path) -> None:
    source = command("open('runs', 'a').write('x'); print('token-' + str(asked.get('serial', 0)))", tmp_path)
    assert [source.token(BROAD.fresh(n), 0) for n in (0, 1, 0, 1)] == ["token-0", "token-1", "token-0", "token-1"]
    assert (tmp_path / "runs").read_text(encoding="utf-8") == "xx"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.exit('no such thing\\nmore')", "ended with exit code 1; run"),
        ("print('no such claim\\nmore', file=sys.stderr); sys.exit(3)", "cannot mint this token: no such claim; let"),
        ("sys.exit(3)", "cannot mint this token: no reason given"),
        ("pass", "printed nothing"),
        ("print('two words')", "printed no bearer token"),
        ("print('a\\nb')", "printed no bearer token"),
        ("sys.stdout.buffer.write(b'\\xff')", "printed no bearer token"),
    ],
)
def test_a_command_that_gives_no_token_makes_a_row_untestable(body: str, said: str) -> None:
    with pytest.raises(UntestableError, match=rf"tokens\.command {said}"):
        command(body).token(BROAD, 0)


def test_a_command_that_does_what_it_likes_is_no_probe() -> None:
    ignoring = command(f"print({jwt_of(aud=RESOURCE)!r})")
    ignoring.token(BROAD, 0)
    with pytest.raises(UntestableError, match=f'wrote aud "{RESOURCE}" instead of aud "https://other'):
        ignoring.token(TokenRecipe(caller="broad", audience=OTHER_SERVER), 0)
    with pytest.raises(UntestableError, match="the same token for two recipes"):
        ignoring.token(TokenRecipe(caller="broad", signature=Signature.NONE), 0)


def test_a_command_that_takes_too_long_or_is_none_makes_a_row_untestable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "COMMAND_SECONDS", 0.5)
    with pytest.raises(UntestableError, match=r"printed no token within 0\.5 s"):
        command("import time; time.sleep(60)").token(BROAD, 0)
    with pytest.raises(UntestableError, match="cannot be started: '/no/such/program': No such file"):
        CommandSource(["/no/such/program"], TARGET).token(BROAD, 0)


# --- all of them ----------------------------------------------------------------------------------------------------


def test_no_token_and_no_secret_stands_in_an_error(server: FakeServer) -> None:
    token = jwt_of(aud=f"of {SECRET}", iss="x" * 40)
    other = jwt_of(aud="another", iss="y" * 40)
    client = Client("id of/broad", SECRET)
    texts = [repr(client)]
    answers: list[tuple[int, Any]] = [
        (200, {"access_token": token, "token_type": "Bearer"}),
        (200, {"access_token": token, "token_type": "x"}),
        (400, {"error": f"{token} {SECRET}"}),
        (400, {"error": client.basic, "error_description": token}),
        (400, {"error": client.unsaid[1]}),
    ]
    for answer in answers:
        server.grant = lambda _, answer=answer: answer
        with pytest.raises(UntestableError) as refused:
            source_at(server).token(TokenRecipe(caller="broad", audience=OTHER_SERVER), 0)
        texts.append(str(refused.value))
    for body in (
        f"print({other!r})",
        f"print({other!r}, file=sys.stderr)",
        f"print({other!r}, file=sys.stderr) or exit(3)",
    ):
        with pytest.raises(UntestableError) as refused:
            command(body).token(TokenRecipe(caller="broad", audience=OTHER_SERVER), 0)
        texts.append(str(refused.value))
    pieces = [*token.split("."), *other.split("."), *client.unsaid]
    assert [(text, piece) for text in texts for piece in pieces if piece in text] == []


def test_what_others_say_is_shown_as_one_short_line_without_tokens() -> None:
    assert shown(f"a\x1b[31m {jwt_of(a=1)} hunter2\nb", ["hunter2", ""]) == "a [31m *** ***"
    assert shown("x" * 300) == "x" * 200 + "…"


class Counting(KeepingSource):
    """Gives numbered tokens that are good for so many seconds."""

    def __init__(self, lasts: float) -> None:
        super().__init__()
        self.lasts = lasts
        self.made = 0

    def new(self, recipe: TokenRecipe, domain: int) -> tuple[str, float]:
        self.made += 1
        return f"{recipe.caller}-{domain}-{self.made}", self.lasts


def test_a_token_is_asked_for_again_before_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    source, endless = Counting(100.0), Counting(math.inf)
    assert source.token(BROAD, 1) == source.token(BROAD, 1) == "broad-1-1"
    now += 74
    assert source.token(BROAD, 1) == "broad-1-1"
    now += 2
    assert (source.token(BROAD, 1), endless.token(BROAD, 1)) == ("broad-1-2", "broad-1-1")
    now += 10**9
    assert endless.token(BROAD, 1) == "broad-1-1"
    assert endless.token(BROAD, 2) == "broad-2-2"


def test_a_token_with_a_moment_of_its_own_is_new_every_time() -> None:
    source = Counting(100.0)
    soon = TokenRecipe(caller="broad", claims=(Claim("exp", SecondsFromNow(2)),))
    assert [source.token(soon, 0), source.token(BROAD, 0), source.token(soon, 0)] == [
        "broad-0-1",
        "broad-0-2",
        "broad-0-3",
    ]


def test_one_and_true_are_two_claims() -> None:
    source = Counting(math.inf)
    found = {
        source.token(TokenRecipe(caller="a", claims=(Claim("x", value),)), 0) for value in (1, True, 1.0, "1", [1])
    }
    assert len(found) == 5


def test_how_long_a_token_is_good_is_read_from_it() -> None:
    now = time.time()
    assert 98 < seconds_good(jwt_of(exp=now + 100)) <= 100
    for exp in (now - 1, "tomorrow", None, math.nan):
        assert seconds_good(jwt_of(exp=exp)) == math.inf
    assert seconds_good(jwt_of(exp=10**400)) > 10**9
    assert seconds_good("opaque") == math.inf


@pytest.mark.parametrize("url", ["https://as.example", "http://127.0.0.1:1/x", "http://localhost", "http://[::1]:1"])
def test_a_secret_goes_over_tls_or_stays_on_this_machine(url: str) -> None:
    assert is_confidential(url)
    assert not is_confidential(
        url.replace("https", "http")
        .replace("127.0.0.1", "10.0.0.1")
        .replace("localhost", "a")
        .replace("[::1]", "[2001:db8::1]")
    )


# --- the target file ------------------------------------------------------------------------------------------------

CALLERS = """
[callers.broad]
scopes = ["a"]
client_id = "b"
client_secret_env = "QUENCHZ_TEST_SECRET"
"""
FILES: dict[str, str] = {
    "listen": '[tokens]\nsource = "suite-issuer"\nlisten = "127.0.0.1:0"\ntenants = true',
    "issuer": '[tokens]\nsource = "suite-issuer"\nissuer = "http://127.0.0.1:8932"\ntenants = true',
    "endpoint": '[tokens]\nsource = "client-credentials"\ntoken_endpoint = "https://as.example/t"' + CALLERS,
    "discovery": '[tokens]\nsource = "client-credentials"\nissuer = "https://as.example"\n'
    'auth_method = "client_secret_post"' + CALLERS,
    "command": '[tokens]\nsource = "command"\ncommand = ["python3", "mint.py"]',
}


def read(folder: Path, text: str) -> Configuration:
    path = folder / "quenchz.toml"
    path.write_text(f'url = "http://127.0.0.1:1/mcp"\n{text}\n', encoding="utf-8")
    return read_target_file(path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("listen", sources.SuiteSource),
        ("issuer", sources.IssuerSource),
        ("endpoint", ClientCredentialsSource),
        ("discovery", ClientCredentialsSource),
        ("command", CommandSource),
    ],
)
def test_a_target_file_names_its_source_and_fits_the_schema(
    name: str, kind: type[Any], tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUENCHZ_TEST_SECRET", SECRET)
    configuration = read(tmp_path, FILES[name])
    with token_source(configuration) as source:
        assert type(source) is kind
    assert SECRET not in repr(configuration)
    assert configuration.target.fresh_budgets is (name in ("listen", "issuer"))
    schema = json.loads((pytestconfig.rootpath / "spec" / "schemas" / "target.json").read_text(encoding="utf-8"))
    jsonschema.validate(tomllib.loads((tmp_path / "quenchz.toml").read_text(encoding="utf-8")), schema)


def test_a_secret_that_is_not_in_the_environment_is_asked_for_before_the_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QUENCHZ_TEST_SECRET", raising=False)
    with (
        pytest.raises(TargetFileError, match=r"callers\.broad\.client_secret_env names .* not set; export it") as error,
        token_source(read(tmp_path, FILES["endpoint"])),
    ):
        pass
    assert "QUENCHZ_TEST_SECRET" not in str(error.value)


def test_the_authorities_of_the_command_line_are_those_of_the_authorization_server_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUENCHZ_TEST_SECRET", SECRET)
    configuration = read(tmp_path, FILES["endpoint"].replace("as.example", "127.0.0.1:1"))
    asked: list[object] = []

    def request(*_: object, ca_file: str | None) -> None:
        asked.append(ca_file)
        raise NoAnswerError("none")

    monkeypatch.setattr("quenchz.authorization_server.request", request)
    with token_source(configuration, ca_file="ours.pem") as source, pytest.raises(UntestableError):
        source.token(BROAD, 0)
    assert asked == ["ours.pem"]


def test_a_port_that_is_taken_is_refused_by_name(tmp_path: Path) -> None:
    with SuiteIssuer() as issuer:
        address = issuer.base_url.removeprefix("http://")
        configuration = read(tmp_path, f'[tokens]\nsource = "suite-issuer"\nlisten = "{address}"')
        with (
            pytest.raises(TargetFileError, match=rf"tokens\.listen is '{address}'; .*in use"),
            token_source(configuration),
        ):
            pass


WRONG: list[tuple[str, str]] = [
    ('source = "suite-issuer"', r"tokens\.listen and .*tokens\.issuer are neither given; suite-issuer takes one"),
    ('source = "suite-issuer"\nlisten = "127.0.0.1:1"\nissuer = "http://127.0.0.1:2"', "are both given"),
    (
        'source = "suite-issuer"\nissuer = "http://as.example"',
        r"tokens\.issuer is 'http://as\.example'; expected an https",
    ),
    ('source = "client-credentials"', r"tokens\.issuer and .*tokens\.token_endpoint are neither given"),
    (
        'source = "client-credentials"\ntoken_endpoint = "http://as.example/t"',
        "token_endpoint is .*; expected an https",
    ),
    ('source = "client-credentials"\nissuer = "as.example"', "issuer is 'as.example'; expected an https"),
    (
        'source = "client-credentials"\nissuer = "https://a"\nauth_method = "none"',
        "auth_method is 'none'; expected one",
    ),
    ('source = "client-credentials"\nissuer = "https://a"\n[callers.b]', r"callers\.b\.client_id is None; expected"),
    (
        'source = "client-credentials"\nissuer = "https://a"\n[callers.b]\nclient_id = "b"\nclient_secret_env = "a-b"',
        r"callers\.b\.client_secret_env is not the name of an environment variable; .*never the secret itself",
    ),
    (
        'source = "client-credentials"\nissuer = "https://a"\n[callers.b]\nclient_id = "b"\nclient_secret = "a-b"',
        r"callers\.b\.client_secret is not a key of this table; it has .*client_secret_env",
    ),
    ('source = "command"', r"tokens\.command is missing; expected a program"),
    ('source = "command"\ncommand = "mint"', r"tokens\.command is 'mint'; expected a list"),
    ('source = "command"\ncommand = [""]', r"tokens\.command is missing; expected a program"),
]


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[text for text, _ in WRONG])
def test_a_source_that_is_described_wrongly_is_refused_by_key_value_and_fix(
    text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(TargetFileError, match=r"quenchz\.toml: .*" + said) as error:
        read(tmp_path, f"[tokens]\n{text}")
    assert "a-b" not in str(error.value)


# --- a whole run ----------------------------------------------------------------------------------------------------

SERVED = """
resource = "https://rates.quenchz.invalid/mcp"
[callers.broad]
scopes = ["rates:read", "rates:history", "rates:admin"]
[callers.narrow]
scopes = ["rates:read"]
[tokens]
"""
MINTING = """
import json, sys, urllib.request
asked = json.load(sys.stdin)
parts = {key: asked.pop(key) for key in ("resource", "scopes")}
body = json.dumps({"recipe": asked, **parts}).encode()
print(json.load(urllib.request.urlopen(sys.argv[1] + "/mint", body))["access_token"])
"""


@pytest.mark.parametrize("source", ["suite-issuer", "command"])
def test_a_server_that_trusts_a_running_issuer_is_judged_with_its_tokens(source: str, tmp_path: Path) -> None:
    with SuiteIssuer(grants=True) as issuer, running(None, issuer.base_url, ("--trust-issuer", issuer.base_url)) as url:
        (tmp_path / "mint.py").write_text(MINTING, encoding="utf-8")
        words = json.dumps([sys.executable, "mint.py", issuer.base_url])
        named = {"suite-issuer": f'issuer = "{issuer.base_url}"\ntenants = true', "command": f"command = {words}"}
        path = tmp_path / "quenchz.toml"
        path.write_text(f'url = "{url}"\n{SERVED}source = "{source}"\n{named[source]}\n', encoding="utf-8")
        judged = judge(tmp_path, "--target", str(path), "--profile", "smoke", "--seed", "1", "--id", "QZ-AUD-4")
    assert (judged.exit, judged.verdicts()) == (0, {"QZ-AUD-4": "pass"})


def test_a_server_that_trusts_a_real_authorization_server_is_judged_as_far_as_that_goes(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUENCHZ_TEST_SECRET", SECRET)
    with SuiteIssuer(grants=True) as issuer, running(None, issuer.base_url, ("--trust-issuer", issuer.base_url)) as url:

        def grant(form: dict[str, list[str]]) -> tuple[int, Any]:
            body = "&".join(f"{key}={quote_plus(value)}" for key, values in form.items() for value in values).encode()
            return issuer._running.grants.token(body, "application/x-www-form-urlencoded", "")

        server.grant = grant
        path = tmp_path / "quenchz.toml"
        served = SERVED
        for caller in ("broad", "narrow"):
            client = f'client_id = "{caller}"\nclient_secret_env = "QUENCHZ_TEST_SECRET"'
            served = served.replace(f"[callers.{caller}]", f"[callers.{caller}]\n{client}")
        where = 'source = "client-credentials"\nauth_method = "client_secret_post"'
        path.write_text(f'url = "{url}"\n{served}{where}\ntoken_endpoint = "{server.url}"\n', encoding="utf-8")
        options = ("--target", str(path), "--profile", "smoke", "--seed", "1", "--id", "QZ-AUD-1", "--id", "QZ-AUD-4")
        judged = judge(tmp_path, *options)
    assert judged.verdicts() == {"QZ-AUD-1": "pass", "QZ-AUD-4": "untestable"}
    assert "cannot ask for the aud null" in judged.finding("QZ-AUD-4")["reason"]
    assert SECRET not in json.dumps(judged.report)

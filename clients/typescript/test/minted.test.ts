import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Denials } from "../src/checks/denials.js";
import { WITH_ISSUER } from "../src/checks/index.js";
import { main } from "../src/cli.js";
import { ask, type Json, type JsonObject, type Wire } from "../src/exchange.js";
import { encodedAsk, HistoryWriter } from "../src/history.js";
import { prove, type ProveOptions, reportData, reportText, UsageError, type Verdict } from "../src/index.js";
import { Issuer, metadataPath } from "../src/issuer.js";
import { fold } from "../src/outcomes.js";
import { encodedAudience } from "../src/recipe.js";
import { type Made, Runner } from "../src/runner.js";
import { validatorOf } from "../src/schemas.js";
import { Subject } from "../src/subject.js";
import { castOf } from "../src/tokens-file.js";
import { openTransport } from "../src/transport.js";
import { type Admits, startIssuer, startServer, type TestIssuer, type TestServer } from "./support/issuer.js";
import { SENTINELS } from "./support/sentinels.js";
import { RESOURCE, tokensFile } from "./support/tokens.js";

const open: { close: () => Promise<void> }[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map(async (one) => one.close()));
});

async function opened<T extends { close: () => Promise<void> }>(starting: Promise<T>): Promise<T> {
  const one = await starting;
  open.push(one);
  return one;
}

/** What X5 alone found at a server: its verdict, why, and by requirement the rows of the table that it found. */
async function x5(
  server: TestServer,
  { url }: TestIssuer,
  { seed = 7, wire = "2026-07-28" }: { seed?: number; wire?: Wire } = {},
): Promise<{ verdict: Verdict; reason: string; rows: Record<string, string[]>; made: readonly Made[] }> {
  const timeoutMs = 2000;
  const history = new HistoryWriter(undefined, RESOURCE);
  const transport = openTransport(new URL(server.url), timeoutMs);
  const subject = new Subject(
    new URL(server.url),
    server.file,
    castOf(server.file, Date.now() / 1000),
    transport,
    history,
  );
  const runner = new Runner(subject, history);
  try {
    expect(await subject.connect([wire])).toBe("");
    const issuer = await Issuer.discover(url, { timeoutMs, ownerAuthorized: false });
    await WITH_ISSUER.run({ runner, denials: new Denials(subject), seed, timeoutMs, issuer });
  } finally {
    subject.close();
  }
  const { made } = runner;
  const rows: Record<string, string[]> = {};
  for (const { requirement = "none", row, phase, outcome } of made) {
    if (outcome !== "violated") continue;
    rows[requirement] ??= [];
    if (phase === "table") rows[requirement].push(row);
  }
  return { ...fold(made), rows, made };
}

/** How many examples of a requirement were judged. */
const judged = (made: readonly Made[], id: string): number =>
  made.filter(({ requirement, outcome }) => requirement === id && ["held", "violated"].includes(outcome)).length;

const exactly: Admits = (audience) => audience === RESOURCE;
const text = (audience: Json | undefined): string => (typeof audience === "string" ? audience : "");

describe("a token minted for any other spelling", () => {
  test("is refused by a server that compares one string, and that is a pass with controls and probes", async () => {
    const issuer = await opened(startIssuer());
    const { verdict, rows, made } = await x5(await opened(startServer(issuer, exactly)), issuer);
    expect([verdict, rows]).toEqual(["pass", {}]);
    for (const id of WITH_ISSUER.requirements) expect(judged(made, id), id).toBeGreaterThanOrEqual(2);
    expect(made.filter(({ controls, probes }) => controls !== 1 || probes !== 1)).toEqual([]);
  });

  test.each<[string, Admits, Record<string, string[]>]>([
    [
      "begins with ours",
      (audience) => text(audience).startsWith(RESOURCE),
      {
        "QZ-AUD-1": ["a path below ours", "ours and a letter more", "ours with a query added"],
        "QZ-AUD-2": ["one slash more or less at the end"],
      },
    ],
    [
      "is the same URL",
      (audience) => URL.canParse(text(audience)) && new URL(text(audience)).href === RESOURCE,
      { "QZ-AUD-2": ["the host in upper case", "the scheme in upper case", "our port written another way"] },
    ],
    [
      "holds ours",
      (audience) => audience === RESOURCE || (Array.isArray(audience) && audience.includes(RESOURCE)),
      { "QZ-AUD-3": ["us, then another", "another, then us"] },
    ],
    [
      "is ours or absent",
      (audience) => audience === undefined || audience === RESOURCE,
      { "QZ-AUD-4": ["none at all"] },
    ],
  ])("is found where a server admits an audience that %s", async (_what, admits, rows) => {
    const issuer = await opened(startIssuer());
    const found = await x5(await opened(startServer(issuer, admits)), issuer);
    expect(found.verdict).toBe("fail");
    expect(found.rows).toMatchObject(rows);
    expect(Object.keys(found.rows).sort()).toEqual(Object.keys(rows));
  });

  test("is found by drawing where no row of the table shows it, and again with the same seed", async () => {
    const issuer = await opened(startIssuer());
    const userInformation = /^https:\/\/[^/]*@example\.invalid\//;
    const admits: Admits = (audience) => exactly(audience) || userInformation.test(text(audience));
    const server = await opened(startServer(issuer, admits));
    const [found, again] = [await x5(server, issuer), await x5(server, issuer)];
    expect(found).toMatchObject({ verdict: "fail", rows: { "QZ-AUD-1": [] } });
    expect(again.reason).toBe(found.reason);
  });

  test("is no more refused by 500 than by 200", async () => {
    const issuer = await opened(startIssuer());
    const { verdict, reason } = await x5(await opened(startServer(issuer, exactly, { refuses: 500 })), issuer);
    expect(verdict).toBe("fail");
    expect(reason).toContain("a server error in place of a refusal");
  });

  test("says nothing where a token for exactly this resource is refused as well", async () => {
    const [trusted, other] = [await opened(startIssuer()), await opened(startIssuer())];
    const server = await opened(startServer(other, exactly, { trusts: [trusted] }));
    for (const [wire, outcome, words] of [
      ["2026-07-28", "control-failed", `a token that ${other.url} minted for exactly this resource lists the tools`],
      // On this wire it does not even come to the control.
      ["2025-11-25", "untestable", `a good token of broad that ${other.url} minted opens no session: HTTP 401`],
    ] as const) {
      const { verdict, reason, made } = await x5(server, other, { wire });
      expect(verdict).toBe("untestable");
      expect(made.map((one) => one.outcome)).toEqual([outcome, outcome, outcome]);
      expect(reason).toContain(words);
      expect(reason).toMatch(/; tell the server to trust this issuer$/);
    }
  });

  test("is sent in a session that belongs to the issuer's own caller", async () => {
    const [trusted, other] = [await opened(startIssuer()), await opened(startIssuer())];
    const server = await opened(startServer(other, exactly, { trusts: [trusted, other], sessions: true }));
    expect(await x5(server, other, { wire: "2025-11-25" })).toMatchObject({ verdict: "pass", rows: {} });
  });

  test("belongs to the requirement that what the issuer wrote falls under", async () => {
    const first = (claims: JsonObject): JsonObject =>
      Array.isArray(claims.aud) ? { ...claims, aud: "https://first.invalid" } : claims;
    const issuer = await opened(startIssuer({ writes: first }));
    const { verdict, made } = await x5(await opened(startServer(issuer, exactly)), issuer);
    expect(verdict).toBe("pass");
    expect(made.find(({ row }) => row === "us, then another")?.requirement).toBe("QZ-AUD-1");
    expect(judged(made, "QZ-AUD-3")).toBe(0);
  });

  test.each<[string, (claims: JsonObject) => JsonObject, RegExp]>([
    [
      "ours whatever is asked for",
      (claims) => ({ ...claims, aud: RESOURCE }),
      /asked for what another server is called, the issuer wrote our own audience; give an issuer that mints/,
    ],
    [
      "another subject with another audience",
      (claims) => (claims.aud === RESOURCE ? claims : { ...claims, sub: "nobody" }),
      /the issuer changed more than the audience; give an issuer that mints/,
    ],
  ])("is no probe when the issuer writes %s", async (_what, writes, sentence) => {
    const issuer = await opened(startIssuer({ writes }));
    const { verdict, reason } = await x5(await opened(startServer(issuer, exactly)), issuer);
    expect(verdict).toBe("untestable");
    expect(reason).toMatch(sentence);
  });

  test("is untestable when the issuer refuses to mint it", async () => {
    const refusal = { status: 400, body: '{"error":"invalid_target"}' };
    const issuer = await opened(
      startIssuer({ answers: (form) => (form.get("resource") === RESOURCE ? undefined : refusal) }),
    );
    const { verdict, reason } = await x5(await opened(startServer(issuer, exactly)), issuer);
    expect(verdict).toBe("untestable");
    expect(reason).toContain('minted no token of broad (HTTP 400, error "invalid_target"); give an issuer that');
  });

  test("is asked for as a client asks, by a tenant's issuer too, with the caller's scopes", async () => {
    const issuer = await opened(startIssuer({ tenant: "/tenants/a" }));
    const { verdict } = await x5(await opened(startServer(issuer, exactly)), issuer);
    expect(verdict).toBe("pass");
    const forms = issuer.asked.map((form) => JSON.stringify([...form].filter(([name]) => name !== "resource")));
    const wanted = [
      ["grant_type", "client_credentials"],
      ["client_id", "broad"],
      ["scope", "read write"],
    ];
    expect([...new Set(forms)]).toEqual([JSON.stringify(wanted)]);
    const counts = new Set(issuer.asked.map((form) => form.getAll("resource").length));
    expect([...counts].sort()).toEqual([0, 1, 2, 3, 4]);
  });
});

describe("a run with an issuer", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "quenchz-"));
  });
  afterEach(() => {
    rmSync(folder, { recursive: true });
  });

  test.each(["401 to everything", "200 and an empty result to everything"])(
    "has nothing that passes at a server that gives %s",
    async (name) => {
      const issuer = await opened(startIssuer());
      const sentinel = await opened(SENTINELS[name]?.() ?? Promise.reject(new Error(name)));
      const options = { issuer: issuer.url, seed: 7, timeoutSeconds: 0.25 };
      const { checks, properties, exit } = await prove(sentinel.url, tokensFile(sentinel.url), options);
      expect([...checks, ...properties].map(({ verdict }) => verdict)).toEqual(Array(21).fill("untestable"));
      expect(exit).toBe(3);
    },
  );

  test("writes no minted token down, also when the server echoes it, and says beforehand how many it asks for", async () => {
    const history = join(folder, "history.jsonl");
    const issuer = await opened(startIssuer());
    const server = await opened(startServer(issuer, () => true, { echoes: true }));
    const said: string[] = [];
    const announce = (line: string): void => void said.push(line);
    const proof = await prove(server.url, server.file, { issuer: issuer.url, seed: 7, history, announce });
    expect(proof.properties.map(({ id, verdict }) => [id, verdict]).at(-1)).toEqual(["X5", "fail"]);
    expect(said[0]).toMatch(new RegExp(`; \\d+ tokens are asked of ${issuer.url}$`));
    const text = readFileSync(history, "utf8");
    const written = [text, JSON.stringify(reportData(proof)), reportText(proof), ...said].join("\n");
    const [header, ...lines] = text
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as JsonObject);
    expect(issuer.minted.length).toBeGreaterThan(40);
    expect(issuer.minted.filter((token) => written.includes(token))).toEqual([]);
    expect(text).toMatch(/"X-Echo","\*{60,}"/);
    expect(header?.ids).toEqual(expect.arrayContaining(["QZ-AUD-2"]));
    const valid = validatorOf("history");
    for (const line of lines) expect(valid(line), JSON.stringify([valid.errors, line])).toBe(true);
  });

  test("records the control as the good token's listing, then the probe with the audience that was written", async () => {
    const history = join(folder, "history.jsonl");
    const issuer = await opened(startIssuer());
    const server = await opened(startServer(issuer, exactly));
    await prove(server.url, server.file, { issuer: issuer.url, seed: 7, history });
    const lines = readFileSync(history, "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as JsonObject);
    const example = lines.find(({ row }) => row === "a path below ours");
    const made = lines.filter((line) => line.channel === "QZ-AUD-1" && line.example === example?.number);
    const audience = `${RESOURCE}/admin`;
    expect(example?.arguments).toEqual(encodedAudience(audience, RESOURCE));
    expect(made.map(({ role, ask }) => [role, ask])).toEqual([
      ["control", encodedAsk(ask("tools/list", { recipe: { caller: "broad" }, token: "" }), RESOURCE)],
      ["probe", encodedAsk(ask("tools/list", { recipe: { caller: "broad", audience }, token: "" }), RESOURCE)],
    ]);
  });

  test("is begun by --issuer and ends with 2 when that cannot be reached; without it there is no X5", async () => {
    const issuer = await opened(startIssuer());
    const server = await opened(startServer(issuer, exactly));
    const file = join(folder, "tokens.json");
    writeFileSync(file, JSON.stringify(server.file));
    const run = async (...more: string[]): Promise<{ code: number; out: string; err: string[] }> => {
      const [out, err]: [string[], string[]] = [[], []];
      const streams = { out: (line: string) => out.push(line), err: (line: string) => err.push(line) };
      const code = await main([server.url, "--tokens-file", file, "--quiet", ...more], streams);
      return { code, out: out.join("\n"), err };
    };
    const [without, given] = [await run(), await run("--issuer", issuer.url)];
    expect(without.out).not.toContain("X5");
    expect(without.out).toContain("of 4 properties");
    expect(given.out).toMatch(/^X5 {2}pass/m);
    expect(given.out).toContain("of 5 properties");
    await issuer.close();
    const { code, out, err } = await run("--issuer", issuer.url);
    expect([code, out]).toEqual([2, ""]);
    expect(err).toEqual([`quenchz-prove: The issuer ${issuer.url} cannot be reached (ECONNREFUSED).`]);
  });
});

describe("an issuer", () => {
  test.each([
    ["http://127.0.0.1:9", "/.well-known/oauth-authorization-server"],
    ["http://127.0.0.1:9/", "/.well-known/oauth-authorization-server"],
    ["http://127.0.0.1:9/a/b", "/.well-known/oauth-authorization-server/a/b"],
  ])("%s has its metadata at %s", (url, path) => {
    expect(metadataPath(new URL(url))).toBe(path);
  });

  const begun = async (url: string, options: ProveOptions = {}): Promise<string> => {
    const server = "http://127.0.0.1:1/mcp";
    try {
      await prove(server, tokensFile(server), { issuer: url, timeoutSeconds: 0.5, ...options });
    } catch (error) {
      expect(error).toBeInstanceOf(UsageError);
      const { message } = error as UsageError;
      expect(message).toMatch(/^[^\n]+\.$/);
      return message;
    }
    throw new Error("the run began");
  };

  test("that is nowhere is said to be so, and nothing begins", async () => {
    const { url } = (await SENTINELS["a closed port"]?.()) ?? { url: "" };
    const { origin } = new URL(url);
    expect(await begun(origin)).toBe(`The issuer ${origin} cannot be reached (ECONNREFUSED).`);
    const silent = await opened(SENTINELS["a server that never answers"]?.() ?? startIssuer());
    expect(await begun(new URL(silent.url).origin)).toMatch(/cannot be reached \(ETIMEDOUT\)\.$/);
  });

  test.each<[string, (metadata: JsonObject) => JsonObject, RegExp]>([
    [
      "of another issuer",
      (one) => ({ ...one, issuer: "https://x.invalid" }),
      /: it names the issuer "https:\/\/x\.invalid"\.$/,
    ],
    ["without a token endpoint", ({ issuer = "" }) => ({ issuer }), /: its token endpoint is absent\.$/],
    [
      "with a token endpoint of no scheme",
      (one) => ({ ...one, token_endpoint: "/token" }),
      /: its token endpoint is "\/token"\.$/,
    ],
    [
      "with a token endpoint elsewhere",
      (one) => ({ ...one, token_endpoint: "http://x.invalid/token" }),
      /^The token endpoint of .* is at http:\/\/x\.invalid, neither on this machine nor https: add --owner-authorized/,
    ],
  ])("whose metadata is that %s is said to be none", async (_what, says, sentence) => {
    const { url } = await opened(startIssuer({ says }));
    expect(await begun(url)).toMatch(sentence);
  });

  test("without metadata is said to be none", async () => {
    const { url } = await opened(startIssuer());
    expect(await begun(`${url}/elsewhere`)).toBe(
      `${url}/.well-known/oauth-authorization-server/elsewhere is not the metadata of the issuer ${url}/elsewhere: HTTP 404.`,
    );
  });

  test.each<[string, { status: number; body: string }, RegExp]>([
    [
      "refuses",
      { status: 401, body: '{"error":"invalid_client"}' },
      /minted no token of broad \(HTTP 401, error "invalid_client"\)/,
    ],
    ["fails", { status: 500, body: "boom" }, /minted no token of broad \(HTTP 500, error absent\)/],
    [
      "gives an opaque token",
      { status: 200, body: '{"access_token":"s3cret"}' },
      /its answer holds no JWT\)(?!.*s3cret)/,
    ],
    ["gives none", { status: 200, body: "[]" }, /its answer holds no JWT/],
  ])("that %s says so, and nothing begins", async (_what, answer, sentence) => {
    const { url } = await opened(startIssuer({ answers: () => answer }));
    expect(await begun(url)).toMatch(sentence);
  });

  test("that writes another audience than ours says so, and nothing begins", async () => {
    const { url } = await opened(startIssuer({ writes: (claims) => ({ ...claims, aud: "https://x.invalid" }) }));
    expect(await begun(url)).toMatch(
      /^The issuer .* wrote the audience "https:\/\/x\.invalid" where https:\/\/example/,
    );
  });

  test.each<[string, string, RegExp]>([
    ["is no URL", "issuer", /^issuer is no issuer; give an http or https URL/],
    ["has a query", "http://127.0.0.1:1/?x", /is no issuer/],
    [
      "is neither here nor https",
      "http://x.invalid",
      /^The issuer is at http:\/\/x\.invalid, neither on this machine nor https/,
    ],
  ])("that %s is not asked", async (_what, url, sentence) => {
    expect(await begun(url)).toMatch(sentence);
  });

  test("is of no use without properties", async () => {
    expect(await begun("http://127.0.0.1:1", { checksOnly: true })).toMatch(/give one of the two\.$/);
  });
});

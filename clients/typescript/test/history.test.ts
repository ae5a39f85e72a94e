import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { listing, answering } from "./support/sentinels.js";
import { prove, reportData } from "../src/index.js";
import type { Json, JsonObject } from "../src/exchange.js";
import { encodedAudience, encodedRecipe, plain, recipeOf } from "../src/recipe.js";
import { validatorOf } from "../src/schemas.js";
import { jwt, NOW, RESOURCE, tokensFile } from "./support/tokens.js";

describe("a token is shown as its recipe", () => {
  const uris = (audience: Json | undefined): unknown => {
    const {
      form,
      uris: written,
      literal,
    } = encodedAudience(audience, RESOURCE) as { form: JsonObject; uris: { of: JsonObject[] }; literal: string };
    return [form.name, written.of.map(({ edit, text }) => [(edit as JsonObject).name, text]), literal];
  };

  test.each<[string, Json | undefined, unknown]>([
    ["ours", undefined, ["STRING", [["SAME", ""]], ""]],
    ["another", "https://a.invalid", ["STRING", [["LITERAL", "https://a.invalid"]], ""]],
    [
      "a list with ours",
      [RESOURCE, "b"],
      [
        "LIST",
        [
          ["SAME", ""],
          ["LITERAL", "b"],
        ],
        "",
      ],
    ],
    ["none", null, ["ABSENT", [], ""]],
    ["no text", 7, ["LITERAL", [], "7"]],
    ["a list of no text", [1], ["LITERAL", [], "[1]"]],
  ])("whose audience is %s", (_what, audience, written) => {
    expect(uris(audience)).toEqual(written);
  });

  test("whose difference is read from its payload", () => {
    const read = (claims: JsonObject): unknown => recipeOf(jwt(claims), "broad", RESOURCE, NOW);
    expect(read({ aud: "x", exp: NOW + 9 })).toEqual({ caller: "broad", audience: "x" });
    expect(read({ exp: NOW + 9 })).toEqual({ caller: "broad", audience: null });
    expect(read({ aud: RESOURCE, exp: NOW - 90 })).toEqual({ caller: "broad", expiredFor: 90 });
  });

  test("unless it differs in two things, in neither, or cannot be read", () => {
    expect(recipeOf(jwt({ aud: "x", exp: NOW - 9 }), "broad", RESOURCE, NOW)).toBeUndefined();
    expect(recipeOf(jwt({ aud: RESOURCE, exp: NOW + 9 }), "broad", RESOURCE, NOW)).toBeUndefined();
    expect(recipeOf("no.t.oken", "broad", RESOURCE, NOW)).toBeUndefined();
  });

  test("with its expiry in seconds before the request", () => {
    const { claims } = encodedRecipe({ caller: "broad", expiredFor: 90 }, RESOURCE) as { claims: { of: JsonObject[] } };
    expect(claims.of).toEqual([{ "!": "Claim", name: "exp", value: { "!": "SecondsFromNow", seconds: -90 } }]);
  });
});

test("an object with a tag of its own is wrapped", () => {
  expect(plain({ a: [{ "!": "Window" }] })).toEqual({ a: [{ "!": "dict", of: { "!": "Window" } }] });
});

describe("a run leaves behind", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "quenchz-"));
  });
  afterEach(() => {
    rmSync(folder, { recursive: true });
  });

  test("a history and a report that their schemas accept, and no token in either", async () => {
    // Every answer echoes the token that came with the request.
    const server = await answering((body, request, response) => {
      const { method = "" } = (body === "" ? {} : JSON.parse(body)) as { method?: string };
      const token = request.headers.authorization ?? "";
      response.writeHead(200, { "Content-Type": "application/json", "X-Echo": token });
      const answer = JSON.parse(listing(method) ?? '{"result":{}}') as { result: object };
      response.end(JSON.stringify({ ...answer, result: { ...answer.result, echo: token } }));
    });
    const path = join(folder, "history.jsonl");
    const file = tokensFile(server.url);
    const proof = await prove(server.url, file, { history: path, seed: 5, timeoutSeconds: 0.5 });
    await server.close();
    expect(proof.run.reached).toBe(true);

    const text = readFileSync(path, "utf8");
    const lines = text
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as JsonObject);
    const valid = validatorOf("history");
    for (const line of lines) expect(valid(line), JSON.stringify([valid.errors, line])).toBe(true);
    expect(lines[0]).toMatchObject({ kind: "header", law: "quenchz-1", seed: 5 });
    expect(new Set(lines.map(({ kind }) => kind))).toEqual(new Set(["header", "exchange", "example"]));

    const report = reportData(proof);
    const fits = validatorOf("report");
    expect(fits(report), JSON.stringify(fits.errors)).toBe(true);

    const secrets = [...Object.values(file.callers), ...Object.values(file.bad_tokens)].map(({ token }) => token);
    const written = text + JSON.stringify(report);
    expect(secrets.filter((secret) => written.includes(secret))).toEqual([]);
    expect(proof.notes.join()).toContain("echoed a token");
  });
});

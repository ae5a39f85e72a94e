import { describe, expect, test } from "vitest";
import { requirementOf } from "../src/checks/audience.js";
import type { Json } from "../src/exchange.js";
import { castOf, checkedTokensFile, UsageError } from "../src/tokens-file.js";
import { jwt, NOW, RESOURCE, tokensFile } from "./support/tokens.js";

const FILE = tokensFile("http://127.0.0.1:1/mcp");

describe("a tokens file", () => {
  test("is accepted as it is written", () => {
    expect(checkedTokensFile(FILE, "t.json")).toEqual(FILE);
  });

  test.each<[string, unknown]>([
    ["no object", []],
    ["another version", { ...FILE, quenchz_tokens: 2 }],
    ["a member too many", { ...FILE, extra: 1 }],
    [
      "a token that is none",
      { ...FILE, callers: { ...FILE.callers, broad: { ...FILE.callers.broad, token: "s3cret" } } },
    ],
  ])("is refused in one sentence that shows no value: %s", (_what, document) => {
    expect(() => checkedTokensFile(document, "t.json")).toThrow(UsageError);
    expect(() => checkedTokensFile(document, "t.json")).toThrow(/^t\.json is no tokens file: (?!.*s3cret)[^\n]+\.$/);
  });

  test("tells who is broad, narrow and quiet, and what is wrong with each bad token", () => {
    const { broad, narrow, quiet, bad } = castOf(FILE, NOW);
    expect([broad, narrow, quiet]).toEqual(["broad", "narrow", "quiet"]);
    expect(bad.map(({ name, credential }) => [name, requirementOf(credential, RESOURCE)])).toEqual([
      ["other_audience", "QZ-AUD-1"],
      ["two_audiences", "QZ-AUD-3"],
      ["no_audience", "QZ-AUD-4"],
      ["expired", "QZ-AUD-6"],
    ]);
  });

  test("with a good token that has expired is refused before anything is asked", () => {
    const narrow = { scopes: ["read"], reserve: 2, token: jwt({ exp: NOW - 1 }), fresh_tokens: [jwt({ exp: NOW })] };
    expect(() => castOf({ ...FILE, callers: { ...FILE.callers, narrow } }, NOW)).toThrow(
      "The token of narrow expired at 2030-03-17T17:46:39.000Z; write a fresh tokens file and run again.",
    );
  });
});

test.each<[Json, string]>([
  ["https://EXAMPLE.invalid/mcp", "QZ-AUD-2"],
  ["HTTPS://example.invalid/mcp", "QZ-AUD-2"],
  ["https://example.invalid/mcp/", "QZ-AUD-2"],
  ["https://example.invalid:443/mcp", "QZ-AUD-2"],
  ["https://example.invalid/./mcp", "QZ-AUD-2"],
  ["https://example.invalid/%6dcp", "QZ-AUD-2"],
  ["https://example.invalid/MCP", "QZ-AUD-1"],
  ["https://example.invalid/mcp#x", "QZ-AUD-1"],
  ["https://example.invalid/mcp?x", "QZ-AUD-1"],
  [" https://example.invalid/mcp", "QZ-AUD-1"],
  ["https://example.invalid:8443/mcp", "QZ-AUD-1"],
  ["*", "QZ-AUD-1"],
  ["", "QZ-AUD-4"],
  [["https://a.invalid", RESOURCE], "QZ-AUD-3"],
  [["https://a.invalid", "https://EXAMPLE.invalid/mcp"], "QZ-AUD-2"],
  [["https://a.invalid"], "QZ-AUD-4"],
  [[], "QZ-AUD-4"],
  [{ [RESOURCE]: 1 }, "QZ-AUD-4"],
])("the audience %j belongs to %s", (audience, requirement) => {
  expect(requirementOf({ recipe: { caller: "broad", audience } }, RESOURCE)).toBe(requirement);
});

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseChallenges } from "../src/challenges.js";

const read = (value: string): [string, Record<string, string>][] =>
  (parseChallenges(value) ?? []).map(({ scheme, parameters }) => [scheme, Object.fromEntries(parameters)]);

describe("a WWW-Authenticate field is read", () => {
  test.each<[string, [string, Record<string, string>][]]>([
    ["Bearer", [["bearer", {}]]],
    ['BEARER realm="x"', [["bearer", { realm: "x" }]]],
    [
      'Bearer error="invalid_token", resource_metadata="https://a/b?c=d,e"',
      [["bearer", { error: "invalid_token", resource_metadata: "https://a/b?c=d,e" }]],
    ],
    ['Bearer a="q\\"u\\\\o"', [["bearer", { a: 'q"u\\o' }]]],
    ["Bearer a = b", [["bearer", { a: "b" }]]],
    [
      'Basic realm="r", Bearer error="x"',
      [
        ["basic", { realm: "r" }],
        ["bearer", { error: "x" }],
      ],
    ],
    [
      "Negotiate, Bearer",
      [
        ["negotiate", {}],
        ["bearer", {}],
      ],
    ],
    ["Bearer A=1, b=2", [["bearer", { a: "1", b: "2" }]]],
    [
      "Negotiate abc==, Bearer a=1",
      [
        ["negotiate", {}],
        ["bearer", { a: "1" }],
      ],
    ],
  ])("%s", (value, challenges) => {
    expect(read(value)).toEqual(challenges);
  });

  test.each<string>([
    "",
    'error="x"',
    'Bearer error="unclosed',
    "Bearer \u0001 Basic",
    "Bearer A=1, a=2",
    "Bearer a=1,, b=2",
    "Bearer a=1,",
    "Bearer realm=https://a/b",
    "Bearer a=1 b=2",
    'Bearer a="x"y',
    "Bearer, =x",
  ])("or not, where it breaks the grammar: %s", (value) => {
    expect(parseChallenges(value)).toBeUndefined();
  });

  test("whatever it is, without an error and without an empty scheme", () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(...Array.from('aB=", \\\t/;')), maxLength: 40 }), (value) => {
        expect((parseChallenges(value) ?? []).every(({ scheme }) => scheme !== "")).toBe(true);
      }),
    );
  });

  test("as it was written, for every quoted value", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme-ascii" }), (text) => {
        const quoted = text.replace(/["\\]/g, "\\$&");
        expect(parseChallenges(`Bearer a="${quoted}"`)?.[0]?.parameters.get("a")).toBe(text);
      }),
    );
  });
});

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  agreedName,
  byCodePoint,
  hiddenOf,
  inventedName,
  type Listing,
  plausibleArguments,
  shiftedName,
} from "../src/catalogue.js";
import { argumentsOf } from "../src/checks/index.js";
import type { JsonObject } from "../src/exchange.js";
import { castOf } from "../src/tokens-file.js";
import { NOW, tokensFile } from "./support/tokens.js";

const shape = (name: string): string => name.replace(/[a-z]/g, "a").replace(/[A-Z]/g, "A").replace(/\d/g, "0");

describe("an invented name", () => {
  const names = fc.string({ unit: fc.constantFrom(...Array.from("abzAZ09_-")), minLength: 4, maxLength: 20 });

  test("has the length and the alphabet of the name beside it, and is none that exists", () => {
    fc.assert(
      fc.property(names, fc.nat({ max: 999 }), fc.array(names), (like, serial, taken) => {
        fc.pre(/[a-zA-Z]/.test(like));
        const name = inventedName(like, serial, taken);
        expect(name).toBeDefined();
        expect(shape(name ?? "")).toBe(shape(like));
        expect([like, ...taken]).not.toContain(name);
        expect(inventedName(like, serial, taken)).toBe(name);
      }),
    );
  });

  test("differs from serial to serial", () => {
    const found = Array.from({ length: 40 }, (_, serial) => inventedName("refresh_cache", serial, []));
    expect(new Set(found).size).toBe(40);
  });

  test("cannot be had where there is no letter to change", () => {
    expect(inventedName("--", 0, [])).toBeUndefined();
    expect(inventedName("", 0, [])).toBeUndefined();
  });

  test("is the name itself under no shift of a foreign letter", () => {
    expect(shiftedName("a_é9", [1])).toBe("b_é0");
  });
});

describe("the name that every client computes alike", () => {
  test.each([
    ["full_history", [], "kzqq_mnxytwd"],
    ["Zap-9 é", [], "Efu-4 é"],
    ["abc", ["fgh"], "ghi"],
    ["abc", ["fgh", "ghi", "x"], "hij"],
    ["_7", ["_2", "_3", "_4", "_5", "_6"], "_8"],
  ])("beside %s, with %j listed, is %s", (like, listed, name) => {
    expect(agreedName(like, listed)).toBe(name);
  });

  test("does not exist where nothing can be moved, or every place is taken", () => {
    expect(agreedName("--", [])).toBeUndefined();
    const all = Array.from({ length: 26 }, (_, at) => String.fromCharCode(97 + at));
    expect(agreedName("a", all)).toBeUndefined();
  });
});

test("what is hidden is declared, or listed to the broad caller alone, in the order of code points", () => {
  const file = tokensFile("http://127.0.0.1:1/mcp");
  const listed = (...names: string[]): Listing =>
    new Map([["tools", new Map(names.map((name): [string, JsonObject] => [name, {}]))]]);
  const catalogue = new Map([
    ["broad", listed("look", "Zap", "burn")],
    ["narrow", listed("look")],
  ]);
  expect(hiddenOf(catalogue, file, castOf(file, NOW), "tools")).toEqual(["Zap", "burn", "destroy"]);
  expect(["\u{1f600}", "\uffff"].sort(byCodePoint)).toEqual(["\uffff", "\u{1f600}"]);
});

test("plausible arguments follow the schema, and samples where they have the same name", () => {
  const properties = {
    currency: { type: "string" },
    day: { type: "string", format: "date" },
    kind: { enum: ["a", "b"] },
    count: { type: "integer", minimum: 3 },
    flag: { type: ["boolean", "null"] },
    list: { type: "array" },
    map: { type: "object" },
    text: {},
  };
  const samples = [{ ...tokensFile("http://x").observations[0], arguments: { currency: "CHF" } }] as never;
  expect(plausibleArguments({ inputSchema: { properties } }, samples)).toEqual({
    currency: "CHF",
    day: "2026-04-01",
    kind: "a",
    count: 3,
    flag: true,
    list: [],
    map: {},
    text: "USD",
  });
});

test("drawn arguments are the tool's own, one too few, of another type, or any", () => {
  const own = { a: "x", b: 1 };
  expect(argumentsOf("its arguments", own, {})).toEqual(own);
  expect(argumentsOf("one of its arguments too few", own, {})).toEqual({ b: 1 });
  expect(argumentsOf("its arguments of another type", own, {})).toEqual({ a: 7, b: "x" });
  expect(argumentsOf("any arguments", own, { c: null })).toEqual({ c: null });
});

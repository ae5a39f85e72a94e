import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { splits, windows } from "../src/checks/index.js";
import {
  additive,
  type Answer,
  atPointer,
  daysAfter,
  daysIn,
  IDENTITIES,
  IDENTITY_IDS,
} from "../src/checks/certificates.js";
import type { Json, JsonObject } from "../src/exchange.js";
import { tokensFile } from "./support/tokens.js";

const WINDOW = { from: "2026-03-30", to: "2026-04-02" };
const TOOL = { ...tokensFile("http://x").observations[0], gap_causes: ["gap"], open_causes: ["due"] } as never;

function answer(
  change: JsonObject = {},
  observations: Json[] = [
    ["2026-03-30", 1.1],
    ["2026-03-31", 1.2],
  ],
): Answer {
  const certificate = {
    requested_from: WINDOW.from,
    requested_to: WINDOW.to,
    requested_calendar_days: 4,
    delivered_observations: 2,
    expected_observations: 3,
    delivered_from: "2026-03-30",
    delivered_to: "2026-03-31",
    window_still_open: true,
    absent: { gap: 1, due: 1 },
    ...change,
  };
  return { observations, certificate };
}

const minded = (found: Answer): string[] =>
  IDENTITY_IDS.filter((id) => IDENTITIES[id](found, WINDOW, TOOL) !== undefined);

describe("the identities of a certificate", () => {
  test("hold for an honest one", () => {
    expect(minded(answer())).toEqual([]);
  });

  test.each<[string, Answer, string[]]>([
    ["no certificate", { observations: [], certificate: undefined }, [...IDENTITY_IDS]],
    ["a day too many", answer({ requested_calendar_days: 5 }), ["QZ-CRT-3"]],
    ["an absence too many", answer({ absent: { gap: 1, due: 1, closed: 1 } }), ["QZ-CRT-3"]],
    ["another window", answer({ requested_to: "2026-04-03" }), ["QZ-CRT-3"]],
    ["a forgotten gap", answer({ expected_observations: 2 }), ["QZ-CRT-4"]],
    ["bounds of the request", answer({ delivered_to: WINDOW.to }), ["QZ-CRT-5"]],
    [
      "a day twice",
      answer({}, [
        ["2026-03-30", 1],
        ["2026-03-30", 1],
      ]),
      ["QZ-CRT-5"],
    ],
    [
      "days in reverse",
      answer({}, [
        ["2026-03-31", 1],
        ["2026-03-30", 1],
      ]),
      ["QZ-CRT-5"],
    ],
    [
      "a day outside",
      answer({}, [
        ["2026-03-29", 1],
        ["2026-03-31", 1],
      ]),
      ["QZ-CRT-5"],
    ],
    [
      "a day that never was",
      answer({}, [
        ["2026-02-30", 1],
        ["2026-03-31", 1],
      ]),
      ["QZ-CRT-5"],
    ],
    [
      "an observation without a value",
      answer({}, [
        ["2026-03-30", null],
        ["2026-03-31", 1],
      ]),
      ["QZ-CRT-5"],
    ],
    ["a closed window with something due", answer({ window_still_open: false }), ["QZ-CRT-6"]],
    ["counts that are no numbers", answer({ absent: { gap: "1", due: 1 } }), ["QZ-CRT-3", "QZ-CRT-4", "QZ-CRT-6"]],
    ["a negative count", answer({ absent: { gap: 1, due: 2, closed: -1 } }), ["QZ-CRT-3", "QZ-CRT-4", "QZ-CRT-6"]],
  ])("mind %s", (_what, found, ids) => {
    expect(minded(found)).toEqual(ids);
  });
});

describe("a whole and its parts", () => {
  const left = answer({ requested_calendar_days: 1, delivered_observations: 1, expected_observations: 1, absent: {} }, [
    ["2026-03-30", 1.1],
  ]);
  const right = answer({ requested_calendar_days: 3, delivered_observations: 1, expected_observations: 2 }, [
    ["2026-03-31", 1.2],
  ]);

  test("add up", () => {
    expect(additive(answer(), left, right)).toBeUndefined();
  });

  test("do not add up in a cause or an observation", () => {
    const more = answer(
      { requested_calendar_days: 3, delivered_observations: 1, expected_observations: 2, absent: { gap: 2, due: 1 } },
      [["2026-03-31", 1.2]],
    );
    expect(additive(answer(), left, more)?.signature).toBe("absent.gap does not add up");
    expect(additive(answer(), right, left)?.signature).toBe("the parts deliver other observations");
  });
});

test("a JSON Pointer finds what stands there", () => {
  const document = { "a/b": [{ "~": 1 }] };
  expect([atPointer(document, ""), atPointer(document, "/a~1b/0/~0"), atPointer(document, "/x/y")]).toEqual([
    document,
    1,
    undefined,
  ]);
});

describe("a drawn window", () => {
  test("has a day, and at most as many as it may", () => {
    fc.assert(
      fc.property(windows(800), (window) => {
        expect(daysIn(window)).toBeGreaterThanOrEqual(1);
        expect(daysIn(window)).toBeLessThanOrEqual(800);
        expect(daysAfter(window.from, daysIn(window) - 1)).toBe(window.to);
      }),
    );
  });

  test("falls apart into two parts with a day each", () => {
    fc.assert(
      fc.property(splits, ({ window, after }) => {
        expect(after).toBeGreaterThanOrEqual(1);
        expect(after).toBeLessThan(daysIn(window));
      }),
    );
  });

  test("begins within the series, before it and after today", () => {
    const starts = fc.sample(windows(40), { seed: 3, numRuns: 300 }).map(({ from }) => from);
    expect(starts.some((from) => from < "1999-01-01")).toBe(true);
    expect(starts.some((from) => from > "2030-01-01")).toBe(true);
    expect(starts.filter((from) => from > "1999-01-01" && from < "2027-01-01").length).toBeGreaterThan(200);
  });
});

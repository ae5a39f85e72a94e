import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { HistoryWriter } from "../src/history.js";
import { ControlFailed, Violation, Void } from "../src/outcomes.js";
import type { RequirementId } from "../src/requirements.js";
import { type Example, type Made, Runner } from "../src/runner.js";
import { Subject } from "../src/subject.js";
import { castOf } from "../src/tokens-file.js";
import { NOW, RESOURCE, tokensFile } from "./support/tokens.js";

function runnerOnNothing(): Runner {
  const file = tokensFile("http://127.0.0.1:1/mcp");
  const history = new HistoryWriter(undefined, RESOURCE);
  const transport = { exchange: () => Promise.reject(new Error("nothing is asked here")), close: () => undefined };
  return new Runner(new Subject(new URL(file.url), file, castOf(file, NOW), transport, history), history);
}

const violation = new Violation({ held: "h", sent: "s", received: "r", expected: "e", signature: "x" });
const example = (make: Example["make"], requirement?: RequirementId): Example => ({
  requirement,
  row: "row",
  arguments: null,
  units: 0,
  make,
});
const shown = (made: readonly Made[]): unknown[] => made.map(({ phase, outcome }) => `${phase} ${outcome}`);

describe("the runner", () => {
  test("keeps what an example saw", async () => {
    const runner = runnerOnNothing();
    await runner.table("P1", [example(() => Promise.resolve("this"))]);
    expect(runner.made[0]).toMatchObject({ check: "P1", outcome: "held", saw: "this" });
  });

  test("calls it our fault when an example of the law held without a control and a probe", async () => {
    const runner = runnerOnNothing();
    await runner.table("P2", [example(() => Promise.resolve(""), "QZ-AUD-1")]);
    expect(shown(runner.made)).toEqual(["table harness-error"]);
  });

  test("calls an error of an unknown kind our fault, and shows its place but not its text", async () => {
    const runner = runnerOnNothing();
    await runner.table("P2", [example(() => Promise.reject(new TypeError("secret")))]);
    expect(runner.made[0]?.detail).toMatch(/^TypeError at runner\.test\.ts:\d+$/);
  });

  test("makes a void example again, and gives up after the third time", async () => {
    const runner = runnerOnNothing();
    await runner.table("P2", [example(() => Promise.reject(new Void("refused")))]);
    expect(shown(runner.made)).toEqual(["table void", "table void", "table untestable"]);
    expect(runner.made.at(-1)?.detail).toBe("void 3 times: refused");
  });

  test("repeats a finding, and one that spends whole budgets once", async () => {
    const runner = runnerOnNothing();
    const broken = (): Promise<string> => Promise.reject(violation);
    await runner.table("P2", [example(broken, "QZ-AUD-1"), example(broken, "QZ-AUD-1"), example(broken, "QZ-RSV-3")]);
    expect(runner.made.filter(({ phase }) => phase === "confirm").map(({ requirement }) => requirement)).toEqual([
      ...Array<string>(4).fill("QZ-AUD-1"),
      "QZ-RSV-3",
    ]);
  });

  test("makes no more examples of a check after three that could not be judged", async () => {
    const runner = runnerOnNothing();
    await runner.table(
      "P2",
      Array.from({ length: 9 }, () => example(() => Promise.reject(new ControlFailed("c", "r")))),
    );
    expect(runner.made).toHaveLength(3);
  });
});

describe("drawn examples", () => {
  const drawnBy = async (seed: number, broken: (value: number) => boolean): Promise<number[]> => {
    const runner = runnerOnNothing();
    const values: number[] = [];
    await runner.draw("X1", {
      arbitrary: fc.integer({ min: 0, max: 1e6 }),
      runs: 12,
      seed,
      example: (value) =>
        example(() => {
          values.push(value);
          return broken(value) ? Promise.reject(violation) : Promise.resolve("");
        }),
    });
    return values;
  };

  test("are the same for the same seed and others for another", async () => {
    const [one, again, other] = [
      await drawnBy(4, () => false),
      await drawnBy(4, () => false),
      await drawnBy(5, () => false),
    ];
    expect(one).toHaveLength(12);
    expect(again).toEqual(one);
    expect(other).not.toEqual(one);
  });

  test("shrink to a smaller violation within the allowance", async () => {
    const values = await drawnBy(4, (value) => value >= 100);
    const first = values.find((value) => value >= 100) ?? 0;
    expect(Math.min(...values.filter((value) => value >= 100))).toBeLessThan(first);
    expect(values.length).toBeLessThanOrEqual(12 + 12);
  });
});

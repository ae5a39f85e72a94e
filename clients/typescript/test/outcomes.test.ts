import { describe, expect, test } from "vitest";
import {
  ControlFailed,
  type Counted,
  exitCode,
  fold,
  type Judged,
  type Level,
  NotDeclared,
  type Outcome,
  outcomeOf,
  Untestable,
  Violation,
  Void,
} from "../src/outcomes.js";

const judged = (...outcomes: Outcome[]): Judged[] =>
  outcomes.map((outcome, at) => ({ outcome, detail: `${outcome} ${at}`, level: "quenchz" }));

describe("a verdict is a fold over outcomes", () => {
  test.each<[Outcome[], string]>([
    [[], "untestable"],
    [["void"], "untestable"],
    [["held"], "pass"],
    [["held", "void"], "pass"],
    [["held", "not-declared"], "pass"],
    [["not-declared"], "not-applicable"],
    [["held", "untestable"], "untestable"],
    [["held", "control-failed"], "untestable"],
    [["held", "harness-error"], "harness-error"],
    [["control-failed", "violated", "harness-error", "held"], "fail"],
  ])("%j gives %s", (outcomes, verdict) => {
    expect(fold(judged(...outcomes)).verdict).toBe(verdict);
  });

  test.each<[Level, string]>([
    ["must", "fail"],
    ["quenchz", "fail"],
    ["should", "warn"],
    ["observe", "observed"],
  ])("a violation at the level %s gives %s", (level, verdict) => {
    expect(fold([{ outcome: "violated", detail: "", level }]).verdict).toBe(verdict);
  });

  test("the more binding violation decides, whichever came first", () => {
    const found = fold([
      { outcome: "violated", detail: "soft", level: "should" },
      { outcome: "violated", detail: "hard", level: "must" },
    ]);
    expect(found).toEqual({ verdict: "fail", reason: "hard" });
  });

  test("what could not be judged says how many examples it concerns", () => {
    expect(fold(judged("held", "untestable", "untestable")).reason).toBe("2 of 3 examples: untestable 1");
  });
});

describe("the exit code", () => {
  const found = (...verdicts: Counted["verdict"][]): Counted[] =>
    verdicts.map((verdict, at) => ({ id: `P${at + 1}`, verdict, level: "quenchz" }));
  const reached = { level: "quenchz" as Level, reached: true };

  test.each<[Counted["verdict"][], number]>([
    [["pass"], 0],
    [["pass", "not-applicable"], 0],
    [["pass", "fail", "harness-error", "untestable"], 1],
    [["pass", "harness-error", "untestable"], 4],
    [["pass", "untestable"], 3],
    [["not-applicable"], 3],
    [[], 3],
  ])("of %j is %i", (verdicts, code) => {
    expect(exitCode(found(...verdicts), reached)).toBe(code);
  });

  test("is 3 when the server was not reached, whatever passed", () => {
    expect(exitCode(found("pass"), { ...reached, reached: false })).toBe(3);
  });

  test("forgives what is allowed to stay untestable, by its id, but never that nothing passed", () => {
    expect(exitCode(found("pass", "untestable"), { ...reached, allowed: ["P2"] })).toBe(0);
    expect(exitCode(found("untestable"), { ...reached, allowed: ["P1"] })).toBe(3);
  });

  test("counts a warning only at the level that requires it", () => {
    const warned: Counted[] = [...found("pass"), { id: "P6", verdict: "warn", level: "should" }];
    expect(exitCode(warned, reached)).toBe(0);
    expect(exitCode(warned, { ...reached, level: "should" })).toBe(1);
  });
});

test("every error has an outcome, and one of an unknown kind is ours", () => {
  const violation = new Violation({ held: "", sent: "", received: "", expected: "", signature: "" });
  const errors = [violation, new ControlFailed("", ""), new Untestable("", ""), new NotDeclared(""), new Void("")];
  expect([...errors, new TypeError("x")].map(outcomeOf)).toEqual([
    "violated",
    "control-failed",
    "untestable",
    "not-declared",
    "void",
    "harness-error",
  ]);
});

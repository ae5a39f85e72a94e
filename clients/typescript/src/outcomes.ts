/** How an example ends, how the outcomes of examples fold into a verdict, and verdicts into an exit code. Pure. */
import type { Exchange } from "./exchange.js";

export type Outcome = "held" | "violated" | "control-failed" | "untestable" | "not-declared" | "void" | "harness-error";

export type Verdict = "pass" | "fail" | "warn" | "observed" | "untestable" | "not-applicable" | "harness-error";

/** How binding a claim is: a MUST of a norm, our stricter choice, a SHOULD, or only observed. */
export const LEVELS = ["must", "quenchz", "should", "observe"] as const;
export type Level = (typeof LEVELS)[number];

/** The server did what the claim forbids. */
export class Violation extends Error {
  override readonly name = "Violation";
  readonly held: string;
  readonly sent: string;
  readonly received: string;
  readonly expected: string;
  /** The way of failing, without the values of this run. */
  readonly signature: string;
  readonly difference: string;
  readonly compared: readonly [Exchange, Exchange] | undefined;
  /** The checks that it is about, where an example serves several; `undefined` for all of them. */
  readonly blames: readonly string[] | undefined;

  constructor(found: {
    held: string;
    sent: string;
    received: string;
    expected: string;
    signature: string;
    difference?: string;
    compared?: readonly [Exchange, Exchange];
    blames?: readonly string[];
  }) {
    super(
      `held ${found.held}; sent ${found.sent}; received ${found.received}; expected ${found.expected}` +
        (found.difference === undefined ? "" : `; ${found.difference}`),
    );
    this.held = found.held;
    this.sent = found.sent;
    this.received = found.received;
    this.expected = found.expected;
    this.signature = found.signature;
    this.difference = found.difference ?? "";
    this.compared = found.compared;
    this.blames = found.blames;
  }
}

/** What had to work in the same example did not, so its probe says nothing. */
export class ControlFailed extends Error {
  override readonly name = "ControlFailed";
  readonly received: string;
  constructor(control: string, received: string, provide?: string) {
    super(`the control failed: ${control}; received ${received}${provide === undefined ? "" : `; ${provide}`}`);
    this.received = received;
  }
}

/** Something that the example needs is missing. */
export class Untestable extends Error {
  override readonly name = "Untestable";
  constructor(missing: string, provide: string) {
    super(`${missing}; ${provide}`);
  }
}

/** The server never declared what the claim is about. */
export class NotDeclared extends Error {
  override readonly name = "NotDeclared";
  constructor(thing: string) {
    super(`the tokens file declares no ${thing}`);
  }
}

/** The example met what has nothing to do with its claim, and is made again after `waitSeconds`. */
export class Void extends Error {
  override readonly name = "Void";
  readonly waitSeconds: number;
  constructor(reason: string, waitSeconds = 0) {
    super(reason);
    this.waitSeconds = waitSeconds;
  }
}

/** The outcome that an error stands for; an error of any other kind is a fault of ours. */
export function outcomeOf(error: unknown): Outcome {
  if (error instanceof Violation) return "violated";
  if (error instanceof ControlFailed) return "control-failed";
  if (error instanceof Untestable) return "untestable";
  if (error instanceof NotDeclared) return "not-declared";
  if (error instanceof Void) return "void";
  return "harness-error";
}

/** What a fold needs to know of one example. */
export interface Judged {
  readonly outcome: Outcome;
  readonly detail: string;
  readonly level: Level;
}

export interface Folded {
  readonly verdict: Verdict;
  readonly reason: string;
}

/**
 * Folds outcomes into a verdict. A violation decides; after it whatever could not be judged, each by its kind. A pass
 * takes an example that held and none that could not be judged.
 */
export function fold(examples: readonly Judged[]): Folded {
  const of = (outcome: Outcome): Judged[] => examples.filter((example) => example.outcome === outcome);
  const violated = of("violated");
  for (const [levels, verdict] of VIOLATED) {
    const found = violated.find(({ level }) => levels.includes(level));
    if (found) return { verdict, reason: found.detail };
  }
  const broken = of("harness-error")[0];
  if (broken) return { verdict: "harness-error", reason: broken.detail };
  const judged = of("held").length;
  for (const outcome of ["control-failed", "untestable"] as const) {
    const [first, ...others] = of(outcome);
    if (!first) continue;
    const count = 1 + others.length;
    const share = count + judged > 1 ? `${count} of ${count + judged} examples: ` : "";
    return { verdict: "untestable", reason: share + first.detail };
  }
  if (judged > 0) return { verdict: "pass", reason: "" };
  const undeclared = of("not-declared")[0];
  if (undeclared) return { verdict: "not-applicable", reason: undeclared.detail };
  return { verdict: "untestable", reason: "no example of it was made" };
}

const VIOLATED: readonly (readonly [readonly Level[], Verdict])[] = [
  [["must", "quenchz"], "fail"],
  [["should"], "warn"],
  [["observe"], "observed"],
];

/** A verdict with what decides whether it counts. */
export interface Counted {
  readonly id: string;
  readonly verdict: Verdict;
  /** The level at which it was violated or could have been. */
  readonly level: Level;
}

export type ExitCode = 0 | 1 | 3 | 4;
/** The exit code of a wrong command line, a wrong file or a token that has expired. */
export const USAGE = 2;

/**
 * Folds verdicts into an exit code: 1 something required is violated, 4 the harness failed, 3 something required could
 * not be established (or nothing was), else 0. `allowed` names ids that may stay untestable.
 */
export function exitCode(
  found: readonly Counted[],
  { level, reached, allowed = [] }: { level: Level; reached: boolean; allowed?: readonly string[] },
): ExitCode {
  const required = found.filter((finding) => LEVELS.indexOf(finding.level) <= LEVELS.indexOf(level));
  const some = (...verdicts: Verdict[]): boolean => required.some(({ verdict }) => verdicts.includes(verdict));
  if (some("fail", "warn", "observed")) return 1;
  if (found.some(({ verdict }) => verdict === "harness-error")) return 4;
  const open = required.filter(({ id, verdict }) => verdict === "untestable" && !allowed.includes(id));
  if (!reached || open.length > 0 || !some("pass")) return 3;
  return 0;
}

/** Makes examples: records how each ends, makes void ones again, repeats a finding before it is reported. */
import fc from "fast-check";
import type { Json } from "./exchange.js";
import type { HistoryWriter, Phase } from "./history.js";
import { type Level, type Outcome, outcomeOf, Violation, Void } from "./outcomes.js";
import { invariantOf, type RequirementId, REQUIREMENTS } from "./requirements.js";
import type { Subject } from "./subject.js";

/** One example: what it is about, and how it is made. What `make` returns is what it saw. */
export interface Example {
  /** The requirement of the law that the recorded exchanges let a Python judge re-judge, if there is one. */
  readonly requirement: RequirementId | undefined;
  /** The example in words. */
  readonly row: string;
  /** The example as a history holds it. */
  readonly arguments: Json;
  /** Charged calls that it needs room for; a reserve example sees to its own budget. */
  readonly units: number;
  readonly make: () => Promise<string>;
}

interface Ended {
  readonly outcome: Outcome;
  readonly detail: string;
  readonly saw: string;
  readonly violation: Violation | undefined;
  readonly wait: number;
}

export interface Made {
  readonly check: string;
  readonly requirement: RequirementId | undefined;
  readonly level: Level;
  readonly number: number;
  readonly phase: Phase;
  readonly row: string;
  readonly arguments: Json;
  readonly outcome: Outcome;
  readonly detail: string;
  readonly saw: string;
  readonly violation: Violation | undefined;
  readonly controls: number;
  readonly probes: number;
  readonly requests: number;
}

/** How often a void example is tried. */
const ATTEMPTS = 3;
/** How often a finding is repeated; one that spends whole budgets once. */
const REPEATS = { slow: 1, fast: 4 };
/** Examples in a row that could not be judged after which a check makes no more. */
const GIVE_UP = 3;
const UNJUDGED: readonly Outcome[] = ["control-failed", "untestable"];
/** Executions that shrinking may take; the rest counts as held, so that the shrinker ends. */
const SHRINKS = 12;
/** The first example number of the channel `setup` that a check may use; lower ones belong to the handshake. */
const FIRST_OF_SETUP = 3;

export class Runner {
  readonly made: Made[] = [];
  readonly subject: Subject;
  readonly #history: HistoryWriter;
  readonly #numbers = new Map<string, number>();
  readonly #confirmed = new Set<RequirementId>();

  constructor(subject: Subject, history: HistoryWriter) {
    this.subject = subject;
    this.#history = history;
  }

  /** Makes the written examples of a check, each as soon as it is there. */
  async table(check: string, examples: Iterable<Example> | AsyncIterable<Example>): Promise<void> {
    for await (const example of examples) {
      if (this.#givenUp(check)) return;
      const made = await this.#example(check, "table", example);
      if (made.outcome === "violated") await this.#confirm(check, example);
    }
  }

  /** Makes drawn examples: fast-check draws with `seed` and shrinks what is violated. */
  async draw<T>(
    check: string,
    drawn: {
      arbitrary: fc.Arbitrary<T>;
      runs: number;
      seed: number;
      example: (value: T) => Example | Promise<Example>;
    },
  ): Promise<void> {
    let shrinks = 0;
    let found: Example | undefined;
    let broken = false;
    const property = fc.asyncProperty(drawn.arbitrary, async (value) => {
      if (broken || (found ? shrinks >= SHRINKS : this.#givenUp(check))) return;
      if (found) shrinks += 1;
      const example = await drawn.example(value);
      const made = await this.#example(check, found ? "shrink" : "generate", example);
      broken = made.outcome === "harness-error";
      if (made.violation) {
        found = example;
        throw made.violation;
      }
    });
    await fc.check(property, { numRuns: drawn.runs, seed: drawn.seed });
    if (found) await this.#confirm(check, found);
  }

  /** Whether the last examples of a check could not be judged, so that more of them would say no more. */
  #givenUp(check: string): boolean {
    const last = this.made.filter((one) => one.check === check).slice(-GIVE_UP);
    return last.length === GIVE_UP && last.every(({ outcome }) => UNJUDGED.includes(outcome));
  }

  async #confirm(check: string, example: Example): Promise<void> {
    const { requirement } = example;
    if (!requirement || this.#confirmed.has(requirement)) return;
    this.#confirmed.add(requirement);
    const repeats = invariantOf(requirement) === "reserves" ? REPEATS.slow : REPEATS.fast;
    for (let made = 0; made < repeats; made += 1) await this.#example(check, "confirm", example);
  }

  async #example(check: string, phase: Phase, example: Example): Promise<Made> {
    for (let attempt = 1; ; attempt += 1) {
      const { made, wait } = await this.#attempt(check, phase, example, attempt === ATTEMPTS);
      if (made.outcome !== "void") return made;
      await this.subject.wait(wait).catch(() => undefined);
    }
  }

  async #attempt(check: string, phase: Phase, example: Example, last: boolean): Promise<{ made: Made; wait: number }> {
    const { requirement, row, units } = example;
    const channel = requirement ?? "setup";
    const number = (this.#numbers.get(channel) ?? (requirement ? 0 : FIRST_OF_SETUP - 1)) + 1;
    this.#numbers.set(channel, number);
    const reserves = requirement !== undefined && invariantOf(requirement) === "reserves";
    const place = { channel, example: number, voidsRefusals: !reserves };
    const { ended, counts } = await this.subject.within(place, async (kept) => ({
      ended: await this.#ended(example, units),
      counts: kept,
    }));
    let { outcome, detail } = ended;
    if (outcome === "void" && last) [outcome, detail] = ["untestable", `void ${ATTEMPTS} times: ${detail}`];
    if (outcome === "held" && requirement && !(counts.roles.control > 0 && counts.roles.probe > 0)) {
      [outcome, detail] = ["harness-error", "the example held without a control and a probe"];
    }
    const made: Made = {
      check,
      requirement,
      level: requirement ? REQUIREMENTS[requirement].level : "must",
      number,
      phase,
      row,
      arguments: example.arguments,
      outcome,
      detail,
      saw: ended.saw,
      violation: ended.violation,
      controls: counts.roles.control,
      probes: counts.roles.probe,
      requests: counts.requests,
    };
    this.made.push(made);
    if (requirement) {
      this.#history.example({
        requirement,
        number,
        phase,
        row: phase === "table" ? row : "",
        arguments: example.arguments,
        outcome,
        detail,
        controls: made.controls,
        probes: made.probes,
        requests: made.requests,
      });
    }
    return { made, wait: ended.wait };
  }

  /** Makes an example and says how it ended. */
  async #ended(example: Example, units: number): Promise<Ended> {
    try {
      if (units > 0) await this.subject.room(this.subject.cast.narrow, units);
      return { outcome: "held", detail: "", saw: await example.make(), violation: undefined, wait: 0 };
    } catch (error) {
      const outcome = outcomeOf(error);
      return {
        outcome,
        detail: outcome === "harness-error" ? placeOf(error) : (error as Error).message,
        saw: "",
        violation: error instanceof Violation ? error : undefined,
        wait: error instanceof Void ? error.waitSeconds : 0,
      };
    }
  }
}

/** An error of ours with the place it came from and without values: they could hold a token. */
function placeOf(error: unknown): string {
  if (!(error instanceof Error)) return "an error of ours that is no Error";
  const at = /[\w.-]+\.[jt]s:\d+/.exec(error.stack ?? "")?.[0] ?? "an unknown place";
  return `${error.name} at ${at}`;
}

/** Checks 13 to 15: the declared arithmetic of the budget. These spend whole budgets and come last. */
import { agreedName, hiddenOf, listedNames } from "../catalogue.js";
import { answerWords, ask, type Ask, type Exchange, isToolError, resultOf, type Role, statusOf } from "../exchange.js";
import { ControlFailed, NotDeclared, Untestable, Violation, Void } from "../outcomes.js";
import { member, tuple } from "../recipe.js";
import type { Example } from "../runner.js";
import type { Subject } from "../subject.js";

interface Caller {
  readonly name: string;
  readonly reserve: number;
}

/** The sorts of calls whose price is compared with that of a granted one. */
export const SORTS = {
  hidden: "a hidden tool",
  nonexistent: "a tool that never existed",
  invalid: "a granted tool with invalid arguments",
  hidden_prompt: "a hidden prompt",
  nonexistent_resource: "a URI of no resource",
} as const;
export type Sort = keyof typeof SORTS;

/** A burst ends after so many refusals in a row. */
const REFUSALS = 3;
/** So many calls of another sort are spent before the rest is counted. */
const SPENT = 3;

/** The declared budget, and calls made against it. */
export class Budget {
  readonly #subject: Subject;

  constructor(subject: Subject) {
    this.#subject = subject;
  }

  /** The callers with a reserve, the narrow one first; an example names them by their place. */
  get callers(): Caller[] {
    const { file, cast } = this.#subject;
    const found = Object.entries(file.callers)
      .filter(([, { reserve }]) => reserve > 0)
      .map(([name, { reserve }]): Caller => ({ name, reserve }));
    return [...found.filter(({ name }) => name === cast.narrow), ...found.filter(({ name }) => name !== cast.narrow)];
  }

  #declared(): void {
    const { limiter } = this.#subject.file.budget;
    if (limiter !== "reserve") throw new NotDeclared(`reserves (its limiter is ${limiter})`);
    if (this.callers.length < 2) throw new NotDeclared("a second caller with a reserve");
  }

  #caller(place: number): Caller {
    const found = this.callers[place];
    if (!found) throw new NotDeclared(`caller ${place + 1} with a reserve`);
    return found;
  }

  #most({ reserve }: Caller): number {
    return reserve + this.#subject.file.budget.pool;
  }

  #granted(caller: Caller): Ask {
    const [tool] = this.#subject.file.observations;
    if (!tool) throw new NotDeclared("tool that returns observations, which a burst could call");
    const given = { ...tool.arguments, [tool.from]: "2026-04-01", [tool.to]: "2026-04-01" };
    return ask("tools/call", this.#subject.good(caller.name), { name: tool.tool, arguments: given });
  }

  #other(caller: Caller, sort: Sort): Ask {
    const subject = this.#subject;
    const token = subject.good(caller.name);
    const { catalogue, file, cast } = subject;
    switch (sort) {
      case "nonexistent_resource":
        return ask("resources/read", token, { uri: "quenchz://no/such/resource" });
      case "invalid":
        return ask("tools/call", token, {
          name: this.#granted(caller).params.name ?? "",
          arguments: { quenchz: "invalid" },
        });
      case "hidden":
      case "nonexistent":
      case "hidden_prompt": {
        const kind = sort === "hidden_prompt" ? "prompts" : "tools";
        const [hidden] = hiddenOf(catalogue, file, cast, kind);
        if (hidden === undefined) throw new NotDeclared(`hidden ${kind}`);
        const name = sort === "nonexistent" ? agreedName(hidden, listedNames(catalogue, kind)) : hidden;
        if (name === undefined) {
          throw new Untestable(`no name like ${hidden} could be invented`, "give hidden tools longer names");
        }
        return ask(kind === "tools" ? "tools/call" : "prompts/get", token, { name, arguments: {} });
      }
    }
  }

  /** Calls until three calls in a row are refused, or three more were made than the arithmetic admits. */
  async #burst(caller: Caller, role: Role, first: Role = role): Promise<Exchange[]> {
    const made: Exchange[] = [];
    for (let count = 0; count < this.#most(caller) + REFUSALS; count += 1) {
      made.push(await this.#subject.ask(this.#granted(caller), count === 0 ? first : role));
      const last = made.slice(-REFUSALS);
      if (last.length === REFUSALS && last.every((one) => this.#subject.isRefusal(one))) break;
    }
    return made;
  }

  /** How many calls were admitted; a server error is neither an admission nor a refusal. */
  #admitted(made: readonly Exchange[]): number {
    for (const call of made) {
      const status = statusOf(call);
      if (status === 0 || status === 401 || status === 403 || status >= 500) {
        throw new ControlFailed("every charged call is served or runs into the budget", answerWords(call));
      }
    }
    return made.filter((call) => !this.#subject.isRefusal(call)).length;
  }

  /** A count is exact only if the first sending and the last first byte lie in one window. */
  #inOneWindow(made: readonly Exchange[]): void {
    const window = this.#subject.file.budget.window_seconds;
    const span = Math.max(...made.map(({ at }) => at[1])) - Math.min(...made.map(({ at }) => at[0]));
    if (span >= window) throw new Void(`${made.length} calls took ${span.toFixed(2)} s, the window is ${window} s`);
  }

  #works(call: Exchange | undefined): void {
    if (call && Array.isArray(resultOf(call)?.content) && !isToolError(call)) return;
    throw new ControlFailed("a granted call on an untouched budget is served", call ? answerWords(call) : "nothing");
  }

  #words(): string {
    const { budget, pool, window_seconds: window } = this.#subject.file.budget;
    const reserves = this.callers.map(({ name, reserve }) => `${name} ${reserve}`).join(", ");
    return `an untouched budget of ${budget} per ${window} s: reserves ${reserves}, pool ${pool}`;
  }

  /** P13: after three calls of another sort a burst gets three admissions less. */
  price(sort: Sort): Example {
    const subject = this.#subject;
    return {
      requirement: "QZ-RSV-4",
      row: SORTS[sort],
      arguments: member("What", sort.toUpperCase()),
      units: 0,
      make: async () => {
        this.#declared();
        const caller = this.#caller(0);
        const most = this.#most(caller);
        const asked = this.#other(caller, sort);
        await subject.freshBudget();
        const whole = await this.#burst(caller, "control");
        this.#inOneWindow(whole);
        this.#works(whole[0]);
        const full = this.#admitted(whole);
        if (full !== most) {
          throw new ControlFailed(`a burst of ${caller.name} is admitted ${most} times`, `${full} admissions`);
        }
        await subject.freshBudget();
        const spent: Exchange[] = [];
        for (let count = 0; count < SPENT; count += 1) spent.push(await subject.ask(asked, "probe"));
        const rest = await this.#burst(caller, "probe");
        this.#inOneWindow([...spent, ...rest]);
        this.#admitted(spent);
        const left = this.#admitted(rest);
        if (left === most - SPENT) return `${SPENT} calls of ${SORTS[sort]} cost ${SPENT} of ${most} units`;
        throw new Violation({
          held: this.#words(),
          sent: `${SORTS[sort]} ${SPENT} times as ${caller.name}, then a burst`,
          received: `${left} admissions in the burst`,
          expected: String(most - SPENT),
          signature: left > most - SPENT ? "other calls are cheaper" : "other calls are dearer",
        });
      },
    };
  }

  /**
   * P14 and P15: a burst stops where the arithmetic says, and the caller who slept gets exactly its reserve. Both rest
   * on the same two bursts, so a violation says which of them it is about.
   */
  bursts(loudPlace: number, quietPlace: number): Example {
    const subject = this.#subject;
    return {
      requirement: "QZ-RSV-3",
      row: `the caller ${loudPlace + 1} bursts, the caller ${quietPlace + 1} has slept`,
      arguments: tuple(loudPlace, quietPlace),
      units: 0,
      make: async () => {
        this.#declared();
        const [loud, quiet] = [this.#caller(loudPlace), this.#caller(quietPlace)];
        await subject.freshBudget();
        const first = await this.#burst(loud, "probe", "control");
        const second = await this.#burst(quiet, "probe");
        this.#inOneWindow([...first, ...second]);
        this.#works(first[0]);
        const [loudCount, quietCount] = [this.#admitted(first), this.#admitted(second)];
        const blames = [
          ...(loudCount === this.#most(loud) ? [] : ["P14"]),
          ...(quietCount === quiet.reserve ? [] : ["P15"]),
        ];
        if (blames.length === 0) return `${loud.name} stopped at ${loudCount}, ${quiet.name} at ${quietCount}`;
        throw new Violation({
          held: this.#words(),
          sent: `a burst of ${loud.name}, then a burst of ${quiet.name}`,
          received: `${loudCount} and ${quietCount} admissions`,
          expected: `${this.#most(loud)} and ${quiet.reserve}`,
          signature: "a burst ends at another count",
          blames,
        });
      },
    };
  }
}

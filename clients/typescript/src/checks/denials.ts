/** Checks 8 to 11: what is listed, and what a denial gives away. */
import {
  entryOf,
  grantedOf,
  hiddenOf,
  inventedName,
  listedNames,
  LISTINGS,
  mayRun,
  plausibleArguments,
  requiresSomething,
} from "../catalogue.js";
import {
  answerWords,
  ask,
  type Ask,
  askWords,
  errorCodeOf,
  type Exchange,
  isToolError,
  type JsonObject,
  listOf,
  objectOf,
  resultOf,
  type Role,
  statusOf,
} from "../exchange.js";
import { difference, learnMask, type Mask, maskWords, type Pair } from "../mask.js";
import { ControlFailed, NotDeclared, Untestable, Violation } from "../outcomes.js";
import { member, plain, tagged } from "../recipe.js";
import type { Example } from "../runner.js";
import type { Subject } from "../subject.js";
import type { Kind } from "../tokens-file.js";

const listedOn = (page: Exchange, kind: Kind): string[] =>
  listOf(resultOf(page)?.[LISTINGS[kind].member])
    .map((entry) => objectOf(entry)[LISTINGS[kind].key])
    .filter((name) => typeof name === "string");

async function listed(subject: Subject, caller: string, kind: Kind, role: Role): Promise<Exchange[]> {
  const pages = await subject.pages(caller, kind, role);
  const broken = pages.find((page) => !Array.isArray(resultOf(page)?.[LISTINGS[kind].member]));
  if (broken) throw new ControlFailed(`${caller} lists ${kind}`, answerWords(broken));
  return pages;
}

const spoken = (kind: Kind): string => kind.replaceAll("_", " ");

/** P8: what is granted is listed. No requirement of the law: a listing that lacks things gives nothing away. */
export function grantedIsListed(subject: Subject, kind: Kind): Example {
  const { broad, narrow } = subject.cast;
  const granted = subject.file.granted[kind];
  return {
    requirement: undefined,
    row: spoken(kind),
    arguments: null,
    units: 0,
    make: async () => {
      if (granted.length === 0) throw new NotDeclared(`granted ${spoken(kind)}`);
      await listed(subject, broad, kind, "control");
      const pages = await listed(subject, narrow, kind, "probe");
      const names = pages.flatMap((page) => listedOn(page, kind));
      const missing = granted.filter((name) => !names.includes(name));
      if (missing.length === 0) return `${granted.length} ${spoken(kind)}`;
      throw new Violation({
        held: `a token of ${narrow}, which is granted ${granted.join(", ")}`,
        sent: `POST ${LISTINGS[kind].method} as ${narrow}`,
        received: `a listing without ${missing.join(", ")}`,
        expected: "every granted name",
        signature: "granted things are not listed",
      });
    },
  };
}

/** P9: what is hidden is not listed, also not after the broad caller has listed it. */
export function hiddenIsNotListed(subject: Subject, kind: Kind): Example {
  const { broad, narrow } = subject.cast;
  const hidden = subject.file.hidden[kind];
  return {
    requirement: "QZ-DEN-4",
    row: spoken(kind),
    arguments: kind,
    units: 0,
    make: async () => {
      if (hidden.length === 0) throw new NotDeclared(`hidden ${spoken(kind)}`);
      const full = await listed(subject, broad, kind, "control");
      const pages = [
        ...(await listed(subject, narrow, kind, "probe")),
        ...(await listed(subject, narrow, kind, "probe")),
      ];
      const known = full.flatMap((page) => listedOn(page, kind));
      const unknown = hidden.filter((name) => !known.includes(name));
      if (unknown.length > 0) throw new ControlFailed(`${broad} lists ${unknown.join(", ")}`, "a listing without");
      const leaked = pages.flatMap((page) => listedOn(page, kind)).find((name) => hidden.includes(name));
      if (leaked === undefined) return `${hidden.length} ${spoken(kind)} of ${broad} on none of ${pages.length} pages`;
      throw new Violation({
        held: `a token of ${narrow}, from which ${hidden.join(", ")} is hidden`,
        sent: `POST ${LISTINGS[kind].method} as ${narrow}`,
        received: `${leaked} in the listing`,
        expected: "no such entry",
        signature: "hidden things are listed",
      });
    },
  };
}

/** One comparison of a hidden tool with an invented one. */
export interface Denial {
  /** The place of the hidden tool among the sorted hidden ones. */
  readonly thing: number;
  readonly invented: string;
  /** `undefined` stands for the hidden tool's own arguments, as its schema has them. */
  readonly arguments: JsonObject;
  /** Whether the broad caller lists first, so that what it leaves behind is part of the question. */
  readonly afterUse: boolean;
}

/** The denials of tools: learns the mask once, then compares. */
export class Denials {
  readonly #subject: Subject;
  #mask: Mask | Error | undefined;
  /** Why the noise after the checks is more than the mask learned before them; "" when it is not. */
  grown = "";

  constructor(subject: Subject) {
    this.#subject = subject;
  }

  /** The mask in words, once it has been learned. */
  get words(): string | undefined {
    return this.#mask === undefined || this.#mask instanceof Error ? undefined : maskWords(this.#mask);
  }

  get hidden(): string[] {
    const { catalogue, file, cast } = this.#subject;
    return hiddenOf(catalogue, file, cast, "tools");
  }

  /** Every name that an invented one must not be. */
  get taken(): string[] {
    return [...this.hidden, ...listedNames(this.#subject.catalogue, "tools")];
  }

  /** An invented name beside a hidden tool, "" where none can be found. */
  invent(thing: number, serial: number, more: readonly string[] = []): string {
    const like = this.hidden[thing % Math.max(1, this.hidden.length)] ?? "";
    return inventedName(like, serial, [...this.taken, ...more]) ?? "";
  }

  /** Arguments that the hidden tool may well accept. */
  plausible(thing: number): JsonObject {
    const { catalogue, cast, file } = this.#subject;
    const name = this.hidden[thing % this.hidden.length] ?? "";
    return plausibleArguments(entryOf(catalogue, cast.broad, "tools", name), file.observations);
  }

  /** Whether a hidden tool may be called with arguments that it could accept. */
  mayRun(thing: number): boolean {
    const { catalogue, cast, file } = this.#subject;
    const name = this.hidden[thing % this.hidden.length] ?? "";
    return mayRun(entryOf(catalogue, cast.broad, "tools", name), name, file);
  }

  /** Two invented names of equal length, five times over: what differs between them is noise. */
  async learn(channel: string): Promise<Mask> {
    const subject = this.#subject;
    const place = { channel, example: 0, voidsRefusals: false, dropsRefusals: true };
    return subject.within(place, async () => {
      const pairs: Pair[] = [];
      for (let serial = 0; serial < PAIRS; serial += 1) {
        const one = this.invent(0, 900 + 2 * serial);
        const names: [string, string] = [one, this.invent(0, 901 + 2 * serial, [one])];
        if (names.includes(""))
          throw new Untestable("no ten names could be invented", "give hidden tools longer names");
        const answers: Exchange[] = [];
        for (const name of names) {
          answers.push(await this.#admitted(this.#use(name, {})));
        }
        const [left, right] = answers;
        if (left && right) pairs.push({ left, right, names });
      }
      const { mask, unmaskable } = learnMask(pairs);
      if (unmaskable) {
        throw new Untestable(
          `noisy: two invented tools are told apart by more than a mask may hide, ${unmaskable.words}`,
          "make the server answer two unknown names alike",
        );
      }
      return mask;
    });
  }

  /** Asks, and once more a window later if the budget refuses. */
  async #admitted(asked: Ask): Promise<Exchange> {
    const subject = this.#subject;
    await subject.room(subject.cast.narrow, 1);
    const answer = await subject.ask(asked, "noise");
    if (!subject.isRefusal(answer)) return answer;
    await subject.wait(subject.file.budget.window_seconds);
    const again = await subject.ask(asked, "noise");
    if (!subject.isRefusal(again)) return again;
    throw new Untestable("the budget refuses also after a window", "judge a server without other traffic");
  }

  /** Learns once more after the checks, so that noise which began meanwhile is not taken for a leak. */
  async learnAgain(): Promise<void> {
    if (this.#mask === undefined || this.#mask instanceof Error) return;
    try {
      const after = await this.learn("mask-after:tools");
      const before = this.#mask;
      const fresh = [
        ...after.values.filter((name) => !before.values.includes(name)),
        ...after.presence.filter((name) => !before.presence.includes(name)),
      ];
      if (fresh.length > 0) this.grown = `noisy: ${fresh.join(", ")} began to vary during the run`;
    } catch (error) {
      if (!(error instanceof Untestable)) throw error;
      this.grown = error.message;
    }
  }

  /** P10, P11 and drawn pairs: the hidden tool and the invented one are answered with the same bytes. */
  example(denial: Denial, row: string): Example {
    const subject = this.#subject;
    const empty = Object.keys(denial.arguments).length === 0;
    return {
      requirement: "QZ-DEN-1",
      row,
      arguments: tagged("Denial", {
        thing: denial.thing,
        serial: 0,
        form: member("ArgumentsForm", empty ? "NONE" : "GIVEN"),
        arguments: plain(denial.arguments),
        after_use: denial.afterUse,
        invented: denial.invented,
      }),
      units: this.#mask === undefined ? 0 : UNITS,
      make: async () => {
        const { broad, narrow } = subject.cast;
        const name = this.hidden[denial.thing % this.hidden.length];
        if (name === undefined) throw new NotDeclared("hidden tools");
        if (denial.invented === "") {
          throw new Untestable(`no name like ${name} could be invented`, "give hidden tools longer names");
        }
        const mask = await this.#learned();
        await this.#grantedWorks();
        if (denial.afterUse) {
          const listing = await subject.ask(ask("tools/list", subject.good(broad)), "control");
          if (!resultOf(listing)) throw new ControlFailed(`${broad} lists tools`, answerWords(listing));
        }
        this.#mayAsk(denial.thing, name, empty);
        const absent = await subject.ask(this.#use(denial.invented, denial.arguments), "probe");
        const present = await subject.ask(this.#use(name, denial.arguments), "probe");
        const held = `a token of ${narrow}, from which ${name} is hidden; ${denial.invented} is invented; mask: ${maskWords(mask)}`;
        deniedProperly(absent, held);
        const found = difference(absent, present, mask, [denial.invented, name]);
        if (!found) {
          const exact = difference(absent, present, mask) === undefined;
          return `${row}: ${exact ? "identical" : "identical apart from the caller's own name"}, ${answerWords(present)}`;
        }
        await this.#notNoise(denial, absent, mask);
        const granted = resultOf(present) !== undefined && !isToolError(present);
        const grade = granted ? "not denied" : "denied but distinguishable";
        throw new Violation({
          held,
          sent: `${askWords(absent.ask)}, then ${askWords(present.ask)}`,
          received: `${answerWords(absent)}, then ${answerWords(present)}: ${grade}`,
          expected: "the same bytes",
          signature: `${grade} by ${found.part}`,
          difference: found.words,
          compared: [absent, present],
        });
      },
    };
  }

  #use(name: string, given: JsonObject): Ask {
    return ask("tools/call", this.#subject.good(this.#subject.cast.narrow), { name, arguments: given });
  }

  async #learned(): Promise<Mask> {
    if (this.#mask === undefined) {
      try {
        this.#mask = await this.learn("mask:tools");
      } catch (error) {
        if (!(error instanceof Untestable || error instanceof ControlFailed)) throw error;
        this.#mask = error;
      }
      await this.#subject.room(this.#subject.cast.narrow, UNITS);
    }
    if (this.#mask instanceof Error) throw this.#mask;
    return this.#mask;
  }

  /** The control: the narrow caller is served something that it is granted. */
  async #grantedWorks(): Promise<void> {
    const subject = this.#subject;
    const { catalogue, file, cast } = subject;
    for (const name of grantedOf(catalogue, file, cast, "tools")) {
      const tool = file.observations.find((one) => one.tool === name);
      const entry = entryOf(catalogue, cast.narrow, "tools", name);
      if (!tool && !mayRun(entry, name, file)) continue;
      const given = tool
        ? { ...tool.arguments, [tool.from]: "2026-04-01", [tool.to]: "2026-04-02" }
        : plausibleArguments(entry, file.observations);
      const answer = await subject.ask(this.#use(name, given), "control");
      if (resultOf(answer)) return;
      throw new ControlFailed(`${cast.narrow} uses ${name}, which it is granted`, answerWords(answer));
    }
    const answer = await subject.ask(ask("tools/list", subject.good(cast.narrow)), "control");
    if (!resultOf(answer)) throw new ControlFailed(`${cast.narrow} lists tools`, answerWords(answer));
  }

  /** A tool that might do harm is asked only for what cannot be valid. */
  #mayAsk(thing: number, name: string, empty: boolean): void {
    if (this.mayRun(thing)) return;
    const { catalogue, cast } = this.#subject;
    if (empty && requiresSomething(entryOf(catalogue, cast.broad, "tools", name))) return;
    throw new Untestable(
      `nothing says that the hidden tool ${name} only reads`,
      "name it under may_call in the tokens file if running it once would do no harm",
    );
  }

  /** Before a finding another invented name is asked for: noise that the mask missed shows here too. */
  async #notNoise(denial: Denial, absent: Exchange, mask: Mask): Promise<void> {
    const other = this.invent(denial.thing, 700, [denial.invented]);
    const again = await this.#subject.ask(this.#use(other, denial.arguments), "noise");
    if (difference(absent, again, mask, [denial.invented, other])) {
      throw new Untestable(
        "noisy: the difference shows between two invented names too",
        "make the server answer them alike",
      );
    }
  }
}

/** Pairs of invented names from which the mask is learned. */
const PAIRS = 5;
/** Charged calls of one comparison: the granted call, both names, and another invented one before a finding. */
const UNITS = 4;

function deniedProperly(absent: Exchange, held: string): void {
  const denied = errorCodeOf(absent) !== undefined || isToolError(absent);
  if (statusOf(absent) < 500 && denied) return;
  throw new Violation({
    held,
    sent: askWords(absent.ask),
    received: answerWords(absent),
    expected: "a JSON-RPC error or a tool error",
    signature: statusOf(absent) < 500 ? "what does not exist is served" : "the server failed where it had to deny",
  });
}

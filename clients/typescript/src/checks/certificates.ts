/** Check 12: no observations without a certificate whose arithmetic holds. */
import {
  answerWords,
  ask,
  type Exchange,
  isObject,
  isToolError,
  type Json,
  type JsonObject,
  listOf,
  objectOf,
  resultOf,
  type Role,
  statusOf,
} from "../exchange.js";
import { ControlFailed, NotDeclared, Violation, Void } from "../outcomes.js";
import { day, tagged } from "../recipe.js";
import type { Example } from "../runner.js";
import type { Subject } from "../subject.js";
import type { ObservationTool } from "../tokens-file.js";

/** A window of calendar days as ISO 8601 dates, both inclusive. */
export interface Window {
  readonly from: string;
  readonly to: string;
}

/** A window in which there were observations: it is the control of every example. */
export const KNOWN: Window = { from: "2026-03-30", to: "2026-04-10" };

/** Windows where accounting goes wrong first: ends on closed days, nothing at all, some or all days still to come. */
export const WRITTEN_WINDOWS: readonly Window[] = [
  { from: "2026-03-28", to: "2026-04-12" },
  { from: "2024-01-07", to: "2024-01-07" },
  { from: "2026-08-15", to: "2057-12-31" },
  { from: "2057-12-10", to: "2057-12-16" },
];

const MS_PER_DAY = 86_400_000;
/** The day `days` after an ISO 8601 date. */
export function daysAfter(iso: string, days: number): string {
  return new Date(Date.parse(iso) + days * MS_PER_DAY).toISOString().slice(0, 10);
}

export function daysIn({ from, to }: Window): number {
  return (Date.parse(to) - Date.parse(from)) / MS_PER_DAY + 1;
}

export const windowWords = ({ from, to }: Window): string => `${from}..${to}`;

export function encodedWindow({ from, to }: Window): JsonObject {
  return tagged("Window", { since: day(from), until: day(to) });
}

/** What stands at a JSON Pointer (RFC 6901), else `undefined`. */
export function atPointer(document: Json | undefined, pointer: string): Json | undefined {
  let found = document;
  for (const step of pointer.split("/").slice(1)) {
    const key = step.replaceAll("~1", "/").replaceAll("~0", "~");
    if (Array.isArray(found)) found = /^(0|[1-9]\d*)$/.test(key) ? found[Number(key)] : undefined;
    else found = isObject(found) ? found[key] : undefined;
  }
  return found;
}

/** A successful answer. */
export interface Answer {
  readonly observations: readonly Json[];
  readonly certificate: Json | undefined;
}

type Identity = "QZ-CRT-2" | "QZ-CRT-3" | "QZ-CRT-4" | "QZ-CRT-5" | "QZ-CRT-6";

/** What an identity minds, or `undefined` when it holds. */
type Problem = { readonly received: string; readonly expected: string; readonly signature: string } | undefined;

const isCount = (value: Json | undefined): value is number =>
  typeof value === "number" && Number.isInteger(value) && value >= 0;

/** The causes of absence with their counts; `undefined` when they are no counts. */
function absences(certificate: Json | undefined): ReadonlyMap<string, number> | undefined {
  const absent = objectOf(certificate).absent;
  if (!isObject(absent)) return undefined;
  const causes = new Map<string, number>();
  for (const [cause, count] of Object.entries(absent)) {
    if (!isCount(count)) return undefined;
    causes.set(cause, count);
  }
  return causes;
}

const sum = (numbers: Iterable<number>): number => [...numbers].reduce((total, number) => total + number, 0);

function dayOf(observation: Json): string | undefined {
  const value = Array.isArray(observation) ? observation[0] : objectOf(observation).date;
  if (typeof value !== "string" || !/^\d{4}-\d{2}-\d{2}$/.test(value)) return undefined;
  return Number.isNaN(Date.parse(value)) || daysAfter(value, 0) !== value ? undefined : value;
}

/** The identities that relate a certificate to the window asked for and to the observations beside it. */
export const IDENTITIES: Record<Identity, (answer: Answer, window: Window, tool: ObservationTool) => Problem> = {
  "QZ-CRT-2": ({ observations, certificate }) =>
    isObject(certificate) && Object.keys(certificate).length > 0
      ? undefined
      : {
          received: `${observations.length} observations and no certificate`,
          expected: "a certificate",
          signature: "no certificate",
        },
  "QZ-CRT-3": ({ certificate }, window) => {
    const { requested_calendar_days: days, delivered_observations: delivered } = objectOf(certificate);
    const causes = absences(certificate);
    if (!isCount(days) || !isCount(delivered) || !causes) return noCounts("days, delivered and absent");
    const absent = sum(causes.values());
    if (days !== daysIn(window) || days !== delivered + absent) {
      return {
        received: `${days} requested days, ${delivered} delivered, ${absent} absent`,
        expected: `${daysIn(window)} = delivered + absent`,
        signature: "days do not add up",
      };
    }
    const { requested_from: from, requested_to: to } = objectOf(certificate);
    if (from === window.from && to === window.to) return undefined;
    return {
      received: `a certificate for ${JSON.stringify([from, to])}`,
      expected: "one for the window asked for",
      signature: "another window",
    };
  },
  "QZ-CRT-4": ({ certificate }, _window, tool) => {
    const { expected_observations: expected, delivered_observations: delivered } = objectOf(certificate);
    const causes = absences(certificate);
    if (!isCount(expected) || !isCount(delivered) || !causes) return noCounts("expected, delivered and absent");
    const gaps = sum(tool.gap_causes.map((cause) => causes.get(cause) ?? 0));
    if (expected === delivered + gaps) return undefined;
    return {
      received: `${expected} expected, ${delivered} delivered, ${gaps} gaps`,
      expected: "expected is the sum of delivered and gaps",
      signature: "the expected count is no sum",
    };
  },
  "QZ-CRT-5": ({ observations, certificate }, window) => {
    if (observations.some((one) => Array.isArray(one) && one.length === 2 && one[1] === null)) {
      return { received: "observations without a value", expected: "a value in each", signature: "empty observations" };
    }
    const days = observations.map(dayOf);
    const inOrder = days.every((one, at) => {
      const before = at === 0 ? undefined : days[at - 1];
      return one !== undefined && one >= window.from && one <= window.to && (before === undefined || before < one);
    });
    if (!inOrder) {
      return {
        received: `observations on ${JSON.stringify(days.slice(0, 6))}`,
        expected: "days of the window, each once, in order",
        signature: "observations that are not sorted by day",
      };
    }
    const { delivered_observations: delivered, delivered_from: from, delivered_to: to } = objectOf(certificate);
    const claimed = JSON.stringify([delivered ?? null, from ?? null, to ?? null]);
    const counted = JSON.stringify([days.length, days[0] ?? null, days.at(-1) ?? null]);
    if (claimed === counted) return undefined;
    return {
      received: `a certificate of ${claimed}`,
      expected: `${counted}, as delivered`,
      signature: "bounds differ",
    };
  },
  "QZ-CRT-6": ({ certificate }, _window, tool) => {
    const open = objectOf(certificate).window_still_open;
    const causes = absences(certificate);
    if (typeof open !== "boolean" || !causes) return noCounts("window_still_open and absent");
    const due = sum(tool.open_causes.map((cause) => causes.get(cause) ?? 0));
    if (open === due > 0) return undefined;
    return {
      received: `window_still_open ${open} with ${due} still due`,
      expected: "open if and only if something is due",
      signature: "the window is open or closed against its own causes",
    };
  },
};

const noCounts = (members: string): Problem => ({
  received: "a certificate without the counts",
  expected: members,
  signature: "no counts",
});

export const IDENTITY_IDS = Object.keys(IDENTITIES) as Identity[];

function observing(subject: Subject): ObservationTool {
  const [tool] = subject.file.observations;
  if (!tool) throw new NotDeclared("tool that returns observations");
  return tool;
}

async function inWindow(subject: Subject, tool: ObservationTool, window: Window, role: Role): Promise<Exchange> {
  const given = { ...tool.arguments, [tool.from]: window.from, [tool.to]: window.to };
  return subject.ask(ask("tools/call", subject.good(subject.cast.narrow), { name: tool.tool, arguments: given }), role);
}

/** The answer of a successful call, `undefined` for an error; what is no answer at all fails the control. */
function read(exchange: Exchange, tool: ObservationTool): Answer | undefined {
  const status = statusOf(exchange);
  if (status >= 500 || status === 0 || status === 401 || status === 403) {
    throw new ControlFailed("the window is certified", answerWords(exchange));
  }
  const result = resultOf(exchange);
  if (!result || isToolError(exchange)) return undefined;
  const content = result.structuredContent;
  return {
    observations: listOf(atPointer(content, tool.observations)),
    certificate: atPointer(content, tool.certificate),
  };
}

async function knownWindow(subject: Subject, tool: ObservationTool): Promise<void> {
  const exchange = await inWindow(subject, tool, KNOWN, "control");
  if ((read(exchange, tool)?.observations.length ?? 0) === 0) {
    throw new ControlFailed(`the window ${windowWords(KNOWN)} is answered with observations`, answerWords(exchange));
  }
}

async function answered(subject: Subject, tool: ObservationTool, window: Window): Promise<Answer> {
  const exchange = await inWindow(subject, tool, window, "probe");
  const answer = read(exchange, tool);
  if (answer) return answer;
  throw minded(window, {
    received: answerWords(exchange),
    expected: "an answer, since both dates are valid",
    signature: "no answer for a valid window",
  });
}

function minded(window: Window, problem: NonNullable<Problem>): Violation {
  return new Violation({
    held: "a tool that is declared to return observations with a certificate",
    sent: `the window ${windowWords(window)}`,
    ...problem,
  });
}

/** P12 and drawn windows: one identity over one window. */
export function certified(subject: Subject, id: Identity, window: Window): Example {
  return {
    requirement: id,
    row: windowWords(window),
    arguments: encodedWindow(window),
    units: 2,
    make: async () => {
      const tool = observing(subject);
      await knownWindow(subject, tool);
      const answer = await answered(subject, tool, window);
      const problem = IDENTITIES[id](answer, window, tool);
      if (problem) throw minded(window, problem);
      const { delivered_observations: delivered, requested_calendar_days: days } = objectOf(answer.certificate);
      return `${windowWords(window)}: ${JSON.stringify(delivered)} of ${JSON.stringify(days)} days delivered`;
    },
  };
}

/** What differs between a whole and its two parts, or `undefined` when they add up. */
export function additive(whole: Answer, left: Answer, right: Answer): Problem {
  if (JSON.stringify([...left.observations, ...right.observations]) !== JSON.stringify(whole.observations)) {
    return {
      received: `${left.observations.length} + ${right.observations.length} for ${whole.observations.length} observations`,
      expected: "the observations of the parts",
      signature: "the parts deliver other observations",
    };
  }
  const [all, one, other] = [counters(whole), counters(left), counters(right)];
  for (const name of new Set([...all.keys(), ...one.keys(), ...other.keys()])) {
    const parts = (one.get(name) ?? 0) + (other.get(name) ?? 0);
    if (parts !== (all.get(name) ?? 0)) {
      return {
        received: `${name}: ${all.get(name) ?? 0} for the whole, ${parts} for its parts`,
        expected: "the same number",
        signature: `${name} does not add up`,
      };
    }
  }
  return undefined;
}

function counters({ certificate }: Answer): Map<string, number> {
  const found = new Map<string, number>();
  for (const name of ["requested_calendar_days", "expected_observations", "delivered_observations"]) {
    const count = objectOf(certificate)[name];
    found.set(name, isCount(count) ? count : 0);
  }
  for (const [cause, count] of absences(certificate) ?? []) found.set(`absent.${cause}`, count);
  return found;
}

/** Drawn splits: a window and its two parts, the second beginning `after` days after the window does. */
export function split(subject: Subject, window: Window, after: number): Example {
  return {
    requirement: "QZ-CRT-7",
    row: `${windowWords(window)} split after ${after} days`,
    arguments: tagged("Split", { window: encodedWindow(window), after }),
    units: 4,
    make: async () => {
      const tool = observing(subject);
      await knownWindow(subject, tool);
      const middle = daysAfter(window.from, after);
      const parts = [window, { from: window.from, to: daysAfter(middle, -1) }, { from: middle, to: window.to }];
      const answers: Answer[] = [];
      for (const part of parts) {
        const answer = await answered(subject, tool, part);
        if (!absences(answer.certificate)) {
          throw minded(part, {
            received: "no causes",
            expected: "causes of absence",
            signature: "no answer for a valid window",
          });
        }
        answers.push(answer);
      }
      const [whole, left, right] = answers;
      if (!whole || !left || !right) throw new ControlFailed("three windows are answered", `${answers.length} answers`);
      const moments = new Set(
        answers.map(({ certificate }) => JSON.stringify(objectOf(certificate).body_completed_at)),
      );
      if (moments.size > 1 && answers.some(({ observations }) => observations.length > 0)) {
        throw new Void("the body was completed anew between the calls");
      }
      const problem = additive(whole, left, right);
      if (problem) throw minded(window, problem);
      return `${windowWords(window)} split at ${middle}: every counter adds up`;
    },
  };
}

/** The sixteen checks, in order, and the properties beyond them. */
import fc from "fast-check";
import { shiftedName } from "../catalogue.js";
import type { Json, JsonObject } from "../exchange.js";
import type { Issuer } from "../issuer.js";
import { REQUIREMENTS, type RequirementId } from "../requirements.js";
import type { Example, Runner } from "../runner.js";
import type { Subject } from "../subject.js";
import { type BadToken, KINDS } from "../tokens-file.js";
import {
  admissions,
  challenged,
  metadata,
  missingToken,
  noCodeWithoutCredentials,
  nothingWithoutCredentials,
  refusal,
  requirementOf,
} from "./audience.js";
import { certified, daysAfter, IDENTITY_IDS, split, type Window, WRITTEN_WINDOWS } from "./certificates.js";
import { Denials, grantedIsListed, hiddenIsNotListed } from "./denials.js";
import { mintedElsewhere } from "./minted.js";
import { Budget, SORTS, type Sort } from "./reserves.js";
import { sdkListsAndCalls } from "./sdk.js";
import { classics, families, type Spelling } from "./spellings.js";

/** What a run of the checks works with. */
export interface Context {
  readonly runner: Runner;
  readonly denials: Denials;
  readonly seed: number;
  readonly timeoutMs: number;
  /** Who mints tokens on request, where there is such an issuer. */
  readonly issuer: Issuer | undefined;
}

export interface Check {
  readonly id: string;
  readonly claim: string;
  /** Requirements of the law that its examples are recorded under. */
  readonly requirements: readonly RequirementId[];
  /** The check whose examples it is read from, where it makes none of its own. */
  readonly readFrom?: string;
  readonly run: (context: Context) => Promise<void>;
}

const READ_FROM_ANOTHER = (): Promise<void> => Promise.resolve();

/** The bad tokens that a file always holds, by their names there, with an audience of that sort. */
const WRITTEN: Readonly<Record<string, (resource: string) => Json>> = {
  other_audience: () => "https://other.example/mcp",
  two_audiences: (resource) => [resource, "https://other.example/mcp"],
  no_audience: () => null,
};

/** The examples of a claim for some of those bad tokens. */
function forBadTokens(
  subject: Subject,
  requirement: RequirementId,
  names: readonly string[],
  example: (subject: Subject, bad: BadToken) => Example,
): Example[] {
  return names.map((name) => {
    const bad = subject.cast.bad.find((one) => one.name === name);
    const audience = WRITTEN[name]?.(subject.file.resource) ?? null;
    return bad ? example(subject, bad) : missingToken(subject, requirement, name, audience);
  });
}

/** The check that one bad token is refused. */
function badToken(id: string, claim: string, name: string, requirement: RequirementId): Check {
  return {
    id,
    claim,
    requirements: [requirement],
    run: async ({ runner }) => runner.table(id, forBadTokens(runner.subject, requirement, [name], refusal)),
  };
}

export const CHECKS: readonly Check[] = [
  {
    id: "P1",
    claim: "A token for this resource is admitted.",
    requirements: [],
    run: async ({ runner }) => runner.table("P1", admissions(runner.subject)),
  },
  badToken("P2", "A token for another resource is refused.", "other_audience", "QZ-AUD-1"),
  badToken("P3", "A token for two resources is refused.", "two_audiences", "QZ-AUD-3"),
  badToken("P4", "A token for no resource is refused.", "no_audience", "QZ-AUD-4"),
  {
    id: "P5",
    claim: "Each of these refusals has a Bearer challenge.",
    requirements: ["QZ-AUD-8"],
    run: async ({ runner }) => {
      const examples = forBadTokens(runner.subject, "QZ-AUD-8", Object.keys(WRITTEN), challenged);
      await runner.table("P5", examples);
    },
  },
  {
    id: "P6",
    claim: "A request without credentials is refused with a challenge that names no error.",
    requirements: ["QZ-AUD-12", "QZ-AUD-8", "QZ-AUD-10"],
    run: async ({ runner }) => {
      const { subject } = runner;
      await runner.table("P6", [
        nothingWithoutCredentials(subject),
        challenged(subject, undefined),
        noCodeWithoutCredentials(subject),
      ]);
    },
  },
  {
    id: "P7",
    claim: "The metadata that a refusal points to names this resource.",
    requirements: ["QZ-AUD-9"],
    run: async ({ runner }) => {
      const { subject } = runner;
      const other = subject.cast.bad.find(({ name }) => name === "other_audience");
      await runner.table("P7", [metadata(subject, undefined), ...(other ? [metadata(subject, other)] : [])]);
    },
  },
  {
    id: "P8",
    claim: "The narrow caller's listings hold everything that it is granted.",
    requirements: [],
    run: async ({ runner }) =>
      runner.table(
        "P8",
        KINDS.map((kind) => grantedIsListed(runner.subject, kind)),
      ),
  },
  {
    id: "P9",
    claim: "The narrow caller's listings hold nothing that is hidden from it.",
    requirements: ["QZ-DEN-4"],
    run: async ({ runner }) =>
      runner.table(
        "P9",
        KINDS.map((kind) => hiddenIsNotListed(runner.subject, kind)),
      ),
  },
  {
    id: "P10",
    claim: "A hidden tool and one that never existed are denied with the same bytes.",
    requirements: ["QZ-DEN-1"],
    run: async ({ runner, denials }) => {
      const things = [0, 1].slice(0, Math.max(1, denials.hidden.length));
      const bare = { arguments: {}, afterUse: false };
      await runner.table("P10", [
        ...things.map((thing) =>
          denials.example({ ...bare, thing, invented: denials.invent(thing, thing) }, `hidden tool ${thing + 1}`),
        ),
        denials.example(
          { ...bare, thing: 0, afterUse: true, invented: denials.invent(0, 7) },
          "hidden tool 1 after the broad caller has listed it",
        ),
      ]);
    },
  },
  {
    id: "P11",
    claim: "So they are when the call has the arguments that the hidden tool takes.",
    requirements: ["QZ-DEN-1"],
    run: async ({ runner, denials }) => {
      const things = [0, 1].slice(0, Math.max(1, denials.hidden.length));
      await runner.table(
        "P11",
        things.map((thing) =>
          denials.example(
            {
              thing,
              arguments: denials.plausible(thing),
              afterUse: false,
              invented: denials.invent(thing, 20 + thing),
            },
            `hidden tool ${thing + 1} with its own arguments`,
          ),
        ),
      );
    },
  },
  {
    id: "P12",
    claim: "A granted call answers with observations and a certificate whose identities hold.",
    requirements: IDENTITY_IDS,
    run: async ({ runner }) =>
      runner.table(
        "P12",
        IDENTITY_IDS.flatMap((id) => WRITTEN_WINDOWS.map((window) => certified(runner.subject, id, window))),
      ),
  },
  {
    id: "P13",
    claim: "A denied call costs what a granted one costs.",
    requirements: ["QZ-RSV-4"],
    run: async ({ runner }) => {
      const budget = new Budget(runner.subject);
      await runner.table(
        "P13",
        (Object.keys(SORTS) as Sort[]).map((sort) => budget.price(sort)),
      );
    },
  },
  {
    id: "P14",
    claim: "A burst stops where the declared arithmetic says.",
    requirements: ["QZ-RSV-3"],
    run: async ({ runner }) => {
      const budget = new Budget(runner.subject);
      const { cast } = runner.subject;
      const places = budget.callers.map(({ name }) => name);
      const quiet = Math.max(1, places.indexOf(cast.quiet ?? ""));
      await runner.table("P14", [budget.bursts(0, quiet), budget.bursts(1, 0)]);
    },
  },
  {
    id: "P15",
    claim: "The caller that slept meanwhile still gets exactly its reserve.",
    requirements: ["QZ-RSV-3"],
    readFrom: "P14",
    run: READ_FROM_ANOTHER,
  },
  {
    id: "P16",
    claim: "The official SDK's own client lists and calls.",
    requirements: [],
    run: async ({ runner, timeoutMs }) => runner.table("P16", [sdkListsAndCalls(runner.subject, timeoutMs)]),
  },
];

// --- drawn examples -------------------------------------------------------------------------------------------------

/** How many examples a property draws. */
const RUNS = { tokens: 8, denials: 8, windows: 3, splits: 4, spellings: 10 };

/** A window of more observations than a page or a limit would hold, and where it is cut. */
const LONG: Window = { from: "2008-01-01", to: "2020-12-31" };
const LONG_AFTER = 2500;

const DAYS_SINCE_1999 = 10_200;

/** Windows of up to `longest` days; most begin within the series of the euro, some before it or after today. */
export function windows(longest: number): fc.Arbitrary<Window> {
  const starts = fc.oneof(
    { weight: 4, arbitrary: fc.integer({ min: 0, max: DAYS_SINCE_1999 }) },
    { weight: 1, arbitrary: fc.integer({ min: -3000, max: 20_000 }) },
  );
  const lengths = fc.oneof(fc.integer({ min: 0, max: 40 }), fc.integer({ min: 0, max: longest - 1 }));
  return fc.tuple(starts, lengths).map(([start, length]) => {
    const from = daysAfter("1999-01-01", start);
    return { from, to: daysAfter(from, length) };
  });
}

/** Windows with the day that begins their second part, in days after the first. */
export const splits: fc.Arbitrary<{ window: Window; after: number }> = fc
  .tuple(windows(4000), fc.nat({ max: 3998 }))
  .map(([{ from, to }, drawn]) => {
    const length = (Date.parse(to) - Date.parse(from)) / 86_400_000;
    // A window of one day has no second part: it grows by a day.
    return length === 0
      ? { window: { from, to: daysAfter(from, 1) }, after: 1 }
      : { window: { from, to }, after: 1 + (drawn % length) };
  });

/** Arguments of a call: a few members of any simple kind. */
export const callArguments: fc.Arbitrary<JsonObject> = fc.dictionary(
  fc.string({ unit: fc.constantFrom(...Array.from("abcdefghijklmnopqrstuvwxyz_")), minLength: 1, maxLength: 8 }),
  fc.oneof(fc.constant(null), fc.boolean(), fc.integer({ min: -1e6, max: 1e6 }), fc.string({ maxLength: 8 })),
  { maxKeys: 4, noNullPrototype: true },
);

/** How the arguments of a drawn call relate to those that the hidden tool takes. */
const FORMS = [
  "its arguments",
  "one of its arguments too few",
  "its arguments of another type",
  "any arguments",
] as const;

/** Arguments of one form, from what the hidden tool may well accept and from what was drawn. */
export function argumentsOf(form: (typeof FORMS)[number], own: JsonObject, drawn: JsonObject): JsonObject {
  switch (form) {
    case "its arguments":
      return own;
    case "one of its arguments too few":
      return Object.fromEntries(Object.entries(own).slice(1));
    case "its arguments of another type":
      return Object.fromEntries(
        Object.entries(own).map(([name, value]) => [name, typeof value === "number" ? "x" : 7]),
      );
    case "any arguments":
      return drawn;
  }
}

/** Shifts that turn a name into an invented one of the same length and alphabet. */
export const shifts: fc.Arbitrary<number[]> = fc.array(fc.integer({ min: 1, max: 25 }), {
  minLength: 6,
  maxLength: 12,
});

export const PROPERTIES: readonly Check[] = [
  {
    id: "X1",
    claim: "Bad tokens stay refused in any order, those that no check names included.",
    requirements: ["QZ-AUD-1", "QZ-AUD-2", "QZ-AUD-3", "QZ-AUD-4", "QZ-AUD-6"],
    run: async ({ runner, seed }) => {
      const { subject } = runner;
      const { bad } = subject.cast;
      await runner.table(
        "X1",
        bad.filter(({ name }) => !(name in WRITTEN)).map((one) => refusal(subject, one)),
      );
      const violated = runner.made.filter(({ outcome }) => outcome === "violated").map(({ row }) => row);
      const refused = bad.map((one) => refusal(subject, one)).filter(({ row }) => !violated.includes(row));
      if (refused.length === 0) return;
      await runner.draw("X1", {
        arbitrary: fc.constantFrom(...refused),
        runs: RUNS.tokens,
        seed,
        example: (one) => one,
      });
    },
  },
  {
    id: "X2",
    claim: "Whatever the names and the arguments, hidden and nonexistent tools are denied with the same bytes.",
    requirements: ["QZ-DEN-1"],
    run: async ({ runner, denials, seed }) =>
      runner.draw("X2", {
        arbitrary: fc.record({
          thing: fc.integer({ min: 0, max: 3 }),
          shifts,
          form: fc.constantFrom(...FORMS),
          drawn: callArguments,
          afterUse: fc.boolean(),
        }),
        runs: RUNS.denials,
        seed,
        example: ({ thing, shifts: by, form, drawn, afterUse }) => {
          const name = denials.hidden[thing % Math.max(1, denials.hidden.length)] ?? "";
          const shifted = shiftedName(name, by);
          const invented = denials.taken.includes(shifted) ? denials.invent(thing, 40) : shifted;
          const given = argumentsOf(form, denials.plausible(thing), drawn);
          const row = `${invented} beside hidden tool ${thing + 1} with ${form}`;
          return denials.example({ thing, invented, arguments: given, afterUse }, row);
        },
      }),
  },
  {
    id: "X3",
    claim: "The identities hold over any window.",
    requirements: IDENTITY_IDS,
    run: async ({ runner, seed }) => {
      for (const [at, id] of IDENTITY_IDS.entries()) {
        await runner.draw("X3", {
          arbitrary: windows(800),
          runs: RUNS.windows,
          seed: seed + at,
          example: (window) => certified(runner.subject, id, window),
        });
      }
    },
  },
  {
    id: "X4",
    claim: "Cut a window anywhere, and its parts add up.",
    requirements: ["QZ-CRT-7"],
    run: async ({ runner, seed }) => {
      await runner.table("X4", [split(runner.subject, LONG, LONG_AFTER)]);
      await runner.draw("X4", {
        arbitrary: splits,
        runs: RUNS.splits,
        seed,
        example: ({ window, after }) => split(runner.subject, window, after),
      });
    },
  },
];

/** The property that a run has where an issuer mints what it is asked for. */
export const WITH_ISSUER: Check = {
  id: "X5",
  claim: "A token minted for any spelling that is not this resource is refused.",
  requirements: ["QZ-AUD-1", "QZ-AUD-2", "QZ-AUD-3", "QZ-AUD-4"],
  run: async ({ runner, issuer, seed }) => {
    if (!issuer) return;
    const { subject } = runner;
    const { resource } = subject.file;
    const example = (spelling: Spelling): Promise<Example> => mintedElsewhere(subject, issuer, spelling);
    await runner.table("X5", eachAsAsked(classics(resource), example));
    for (const [at, family] of families(resource).entries()) {
      await runner.draw("X5", { arbitrary: family, runs: RUNS.spellings, seed: seed + at, example });
    }
  },
};

/** How many spellings X5 asks for before any finding. */
export function spellingsOf(resource: string): number {
  return classics(resource).length + families(resource).length * RUNS.spellings;
}

/** Asks for the token of a row when it is its turn, and not before. */
async function* eachAsAsked(
  rows: readonly Spelling[],
  example: (spelling: Spelling) => Promise<Example>,
): AsyncGenerator<Example> {
  for (const row of rows) yield await example(row);
}

/** The requirements that a run has examples of, in the order of the law; of bad tokens those that the file holds. */
export function requirementsOf({ file, cast }: Subject, checks: readonly Check[]): RequirementId[] {
  const held = cast.bad.map(({ credential }) => requirementOf(credential, file.resource));
  const named = new Set(checks.flatMap(({ id, requirements }) => (id === "X1" ? held : requirements)));
  return (Object.keys(REQUIREMENTS) as RequirementId[]).filter((id) => named.has(id));
}

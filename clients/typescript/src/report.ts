/** What a run found, as JSON (spec/schemas/report.json) and as text for a terminal. */
import { invariantOf, type Norm, type RequirementId, REQUIREMENTS } from "./requirements.js";
import type { Exchange, JsonObject } from "./exchange.js";
import { LAW } from "./history.js";
import { type ExitCode, fold, type Level, type Verdict } from "./outcomes.js";
import type { Made } from "./runner.js";

/** The verdict on one check or property, with what it saw. */
export interface CheckResult {
  readonly id: string;
  readonly claim: string;
  readonly verdict: Verdict;
  /** What decided: the evidence of a pass, or the reason of anything else. */
  readonly saw: string;
  /** How often a finding was seen when it was repeated: seen, tries. */
  readonly confirmed: readonly [number, number] | undefined;
}

export interface Run {
  readonly url: string;
  readonly server: string;
  readonly protocol: string;
  readonly seed: number;
  readonly level: Level;
  readonly reached: boolean;
  /** Why the server was not reached, or not until the end; "" when it was. */
  readonly unreached: string;
  readonly requests: number;
  readonly charged: number;
  readonly waitedSeconds: number;
  readonly seconds: number;
}

export interface Proof {
  readonly run: Run;
  readonly checks: readonly CheckResult[];
  readonly properties: readonly CheckResult[];
  readonly masks: Readonly<Record<string, string>>;
  readonly notes: readonly string[];
  /** The same evidence by the requirements of the law. */
  readonly findings: readonly JsonObject[];
  readonly exit: ExitCode;
}

export const NOT_COVERED = [
  "timing: equal bytes may still take different times",
  "what none of these requests touched",
  "signatures and issuers: this client forges no token",
  "the authorization server that minted the tokens",
];

/** Folds the examples of one requirement into a finding of the report. */
export function findingOf(id: RequirementId, made: readonly Made[], noisy: string, unreached: string): JsonObject {
  const requirement = REQUIREMENTS[id];
  const own = made.filter((one) => one.requirement === id);
  let { verdict, reason } =
    own.length === 0 && unreached !== "" ? { verdict: "untestable" as Verdict, reason: unreached } : fold(own);
  const violated = own.filter(({ outcome }) => outcome === "violated");
  const shown =
    violated.find(({ phase }) => phase === "table") ?? violated.findLast(({ phase }) => phase !== "confirm");
  if (shown?.violation?.compared && noisy !== "") [verdict, reason] = ["untestable", noisy];
  const judged = own.filter(({ outcome }) => outcome === "held" || outcome === "violated");
  const outcomes: Record<string, number> = {};
  for (const { outcome } of own) outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
  const total = (of: readonly Made[], pick: (one: Made) => number): number =>
    of.reduce((sum, one) => sum + pick(one), 0);
  return {
    id,
    invariant: invariantOf(id),
    level: requirement.level,
    claim: requirement.claim,
    norm: normData(requirement.norm),
    contrary: requirement.contrary ? normData(requirement.contrary) : null,
    cost: requirement.cost,
    verdict,
    reason,
    outcomes,
    examples: judged.length,
    controls: total(judged, ({ controls }) => controls),
    probes: total(judged, ({ probes }) => probes),
    requests: total(own, ({ requests }) => requests),
    rows_violated: [...new Set(violated.filter(({ phase }) => phase === "table").map(({ row }) => row))],
    violation: shown?.violation ? violationData(shown.violation) : null,
    example: shown ? { number: shown.number, row: shown.row, phase: shown.phase } : {},
    confirmed: [...(confirmedOf(own) ?? [0, 0])],
  };
}

/** How often a violation was seen again: the first sight and its repeats. */
export function confirmedOf(made: readonly Made[]): readonly [number, number] | undefined {
  if (!made.some(({ outcome }) => outcome === "violated")) return undefined;
  const repeats = made.filter(({ phase }) => phase === "confirm");
  return [1 + repeats.filter(({ outcome }) => outcome === "violated").length, 1 + repeats.length];
}

const normData = ({ source, quote }: Norm): JsonObject => ({ source, quote });

function violationData(found: NonNullable<Made["violation"]>): JsonObject {
  const { held, sent, received, expected, difference, signature, compared } = found;
  return {
    held,
    sent,
    received,
    expected,
    difference,
    signature,
    norm: null,
    compared: compared ? compared.map(transcript) : null,
  };
}

function transcript({ request, response }: Exchange): JsonObject {
  const lines = (message: Exchange["request"]): string[] => [
    message.start,
    ...message.headers.map(([name, value]) => `${name}: ${value}`),
    message.body,
  ];
  return { request: lines(request), response: lines(response) };
}

/** The report in the schema; the checks are its notes, since its findings are requirements of the law. */
export function reportData({ run, checks, properties, masks, notes, findings, exit }: Proof): JsonObject {
  return {
    quenchz_report: 1,
    law: LAW,
    target: { url: run.url, server: run.server, protocol: run.protocol },
    run: {
      seed: run.seed,
      profile: "prove",
      level: run.level,
      reached: run.reached,
      requests: run.requests,
      charged: run.charged,
      waited_seconds: Math.round(run.waitedSeconds * 1000) / 1000,
      seconds: Math.round(run.seconds * 1000) / 1000,
    },
    masks: { ...masks },
    notes: [...[...checks, ...properties].map(({ id, verdict, saw }) => `${id} ${verdict}: ${saw}`), ...notes],
    findings: [...findings],
    not_covered: NOT_COVERED,
    exit,
  };
}

/** The terminal's form. */
export function reportText({ run, checks, properties, masks, notes, exit }: Proof): string {
  const line = ({ id, verdict, claim, saw, confirmed }: CheckResult): string => {
    const rate = confirmed ? ` (seen ${confirmed[0]} of ${confirmed[1]} times)` : "";
    return `${id.padEnd(4)}${verdict.padEnd(15)}${claim}\n    ${printable(saw)}${rate}`;
  };
  const judged = [...checks, ...properties].some(({ verdict }) => verdict !== "untestable");
  const body =
    judged || run.reached
      ? [
          ...checks.map(line),
          "",
          ...properties.map(line),
          "",
          ...Object.entries(masks).map(([kind, words]) => `mask of ${kind}: ${words}`),
          ...notes,
          `not covered: ${NOT_COVERED.join("; ")}`,
        ]
      : [`No verdict is possible: ${printable(run.unreached)}.`];
  const passed = (of: readonly CheckResult[]): number => of.filter(({ verdict }) => verdict === "pass").length;
  return [
    `${run.url} (${run.server === "" ? "server unknown" : printable(run.server)}), revision ${run.protocol}`,
    "",
    ...body,
    "",
    `${passed(checks)} of ${checks.length} checks pass, ${passed(properties)} of ${properties.length} properties; ` +
      `${run.requests} requests, ${run.charged} charged, ${run.waitedSeconds.toFixed(0)} s of ${run.seconds.toFixed(0)} s waited; ` +
      `seed ${run.seed} (repeat with --seed ${run.seed}); exit ${exit}`,
  ].join("\n");
}

/** Text of a server with everything that could steer a terminal written as escapes. */
function printable(text: string): string {
  return text.replace(
    /[^\x20-\x7e\u00a0-\ud7ff\ue000-\uffff]/gu,
    (letter) => `\\u{${letter.codePointAt(0)?.toString(16) ?? ""}}`,
  );
}

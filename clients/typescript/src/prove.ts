/** One run from URL and tokens file to a proof. */
import { randomInt } from "node:crypto";
import {
  CHECKS,
  type Check,
  type Context,
  PROPERTIES,
  requirementsOf,
  spellingsOf,
  WITH_ISSUER,
} from "./checks/index.js";
import { Denials } from "./checks/denials.js";
import { tokenForUs } from "./checks/minted.js";
import { SORTS } from "./checks/reserves.js";
import { type Wire, WIRES } from "./exchange.js";
import { encodedTarget, HistoryWriter } from "./history.js";
import { Issuer, type IssuerOptions } from "./issuer.js";
import { type Counted, exitCode, fold, type Level, LEVELS, Untestable } from "./outcomes.js";
import { type CheckResult, confirmedOf, findingOf, type Proof } from "./report.js";
import { REQUIREMENTS } from "./requirements.js";
import { type Made, Runner } from "./runner.js";
import { Subject } from "./subject.js";
import { type Cast, castOf, checkedTokensFile, readTokensFile, type TokensFile, UsageError } from "./tokens-file.js";
import { isLoopback, openTransport } from "./transport.js";

export interface ProveOptions {
  /** The protocol revision; "auto" tries the newer one first. */
  readonly protocol?: "auto" | Wire;
  /** Repeats the drawn examples of another run. */
  readonly seed?: number;
  /** The least binding level that is required. */
  readonly level?: Level;
  /** Seconds to wait for one answer. */
  readonly timeoutSeconds?: number;
  /** Where to write the history, if anywhere. */
  readonly history?: string;
  /** A running issuer that the server trusts and that mints any audience: adds a property about spellings of it. */
  readonly issuer?: string;
  /** Says that the owners of a server and an issuer that are not on this machine agreed. */
  readonly ownerAuthorized?: boolean;
  /** Ids of checks and properties that may stay untestable. */
  readonly allowUntestable?: readonly string[];
  /** Leaves out the properties beyond the sixteen checks. */
  readonly checksOnly?: boolean;
  /** Ends the run early; what is known so far is reported. */
  readonly signal?: AbortSignal;
  /** Told what goes on. */
  readonly announce?: (line: string) => void;
}

/**
 * Proves the claims about the server at `url`, with the tokens of a file (a path, or its parsed content).
 * @throws UsageError for a URL, a file, a token or an issuer that no run can begin with.
 */
export async function prove(url: string, tokensFile: string | TokensFile, options: ProveOptions = {}): Promise<Proof> {
  const began = performance.now();
  const target = checkedUrl(url, options.ownerAuthorized === true);
  const file =
    typeof tokensFile === "string" ? readTokensFile(tokensFile) : checkedTokensFile(tokensFile, "the tokens file");
  const cast = castOf(file, Date.now() / 1000);
  const { protocol = "auto", level = "quenchz", timeoutSeconds = 15, seed = randomInt(2 ** 31) } = options;
  const announce = options.announce ?? ((): void => undefined);
  const timeoutMs = timeoutSeconds * 1000;
  if (options.issuer !== undefined && options.checksOnly === true) {
    throw new UsageError("An issuer serves a property, and --checks-only leaves out properties; give one of the two.");
  }
  const ownerAuthorized = options.ownerAuthorized === true;
  const issuer =
    options.issuer === undefined
      ? undefined
      : await readyIssuer(options.issuer, file, cast, { timeoutMs, ownerAuthorized });

  const history = openHistory(options.history, file.resource);
  const transport = openTransport(target, timeoutMs);
  const subject = new Subject(target, file, cast, transport, history, { signal: options.signal, announce });
  const runner = new Runner(subject, history);
  const denials = new Denials(subject);
  const drawnFrom = issuer ? [...PROPERTIES, WITH_ISSUER] : PROPERTIES;
  const properties = options.checksOnly === true ? [] : drawnFrom;
  const ids = requirementsOf(subject, [...CHECKS, ...properties]);
  const notes: string[] = [];
  let unreached = "";
  try {
    announce(planOf(subject, properties.length > 0, issuer));
    unreached = await subject.connect(protocol === "auto" ? WIRES : [protocol]);
    history.header({
      url: target.href,
      wire: subject.wire,
      seed,
      level,
      ids,
      target: encodedTarget(file, cast),
    });
    if (unreached === "") {
      const context: Context = { runner, denials, seed, timeoutMs, issuer };
      for (const check of [...CHECKS, ...properties]) {
        if (subject.isInterrupted) break;
        announce(`${check.id} ${check.claim}`);
        await check.run(context);
      }
      if (subject.isInterrupted) {
        notes.push("interrupted: what is known so far");
      } else {
        await denials.learnAgain();
        if (!(await subject.isAlive())) unreached = "the server stopped answering before the end";
        if (unreached !== "") notes.push(unreached);
      }
    }
  } finally {
    history.close();
    subject.close();
  }
  if (subject.redacted > 0) notes.push(`${subject.redacted} answers echoed a token; it is shown as asterisks`);

  const result = (check: Check): CheckResult => resultOf(check, runner.made, denials.grown, unreached);
  const checks = CHECKS.map(result);
  const drawn = properties.map(result);
  const counted = [...CHECKS, ...properties].map((check, at): Counted => {
    const { id, verdict } = [...checks, ...drawn][at] ?? result(check);
    return { id, verdict, level: levelOf(check, runner.made) };
  });
  const allowed = options.allowUntestable ?? [];
  const exit = exitCode(counted, { level, reached: unreached === "", allowed });
  return {
    run: {
      url: target.href,
      server: subject.server,
      protocol: subject.wire,
      seed,
      level,
      reached: unreached === "",
      unreached,
      requests: subject.total.requests,
      charged: subject.total.charged,
      waitedSeconds: subject.waitedSeconds,
      seconds: (performance.now() - began) / 1000,
    },
    checks,
    properties: drawn,
    masks: denials.words === undefined ? {} : { tools: denials.words },
    notes,
    findings: ids.map((id) => findingOf(id, runner.made, denials.grown, unreached)),
    exit,
  };
}

/** The verdict of one check over its own examples. */
function resultOf(check: Check, made: readonly Made[], noisy: string, unreached: string): CheckResult {
  const { id, claim } = check;
  const own = made
    .filter((one) => one.check === (check.readFrom ?? id))
    // A violation that is about another check alone is no violation of this one.
    .map((one): Made => (one.violation?.blames?.includes(id) === false ? { ...one, outcome: "held" } : one));
  if (own.length === 0) {
    return { id, claim, verdict: "untestable", saw: unreached || "no example of it was made", confirmed: undefined };
  }
  const { verdict, reason } = fold(own);
  const compared = own.some(({ outcome, violation }) => outcome === "violated" && violation?.compared !== undefined);
  if (verdict === "fail" && compared && noisy !== "") {
    return { id, claim, verdict: "untestable", saw: noisy, confirmed: undefined };
  }
  const saw = own.filter(({ outcome }) => outcome === "held").map((one) => one.saw);
  const shown = [...new Set(saw)].slice(0, SHOWN);
  const more = saw.length > SHOWN ? `; ${saw.length} examples held` : "";
  return {
    id,
    claim,
    verdict,
    saw: verdict === "pass" ? shown.join("; ") + more : reason,
    confirmed: confirmedOf(own),
  };
}

/** So many examples of a pass are shown. */
const SHOWN = 3;

/** A check counts at the most binding level at which it was violated, else at that of its requirements. */
export function levelOf(check: Check, made: readonly Made[]): Level {
  const violated = made.filter((one) => one.check === (check.readFrom ?? check.id) && one.outcome === "violated");
  const levels: Level[] =
    violated.length > 0
      ? violated.map(({ level }) => level)
      : check.requirements.map((requirement) => REQUIREMENTS[requirement].level);
  return LEVELS.find((level) => levels.includes(level)) ?? "must";
}

/**
 * The URL of an endpoint that may be tested.
 * @throws UsageError for what is no http URL, or not on this machine and nobody says that its owner agreed.
 */
export function checkedUrl(text: string, ownerAuthorized: boolean): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !["http:", "https:"].includes(url.protocol)) {
    throw new UsageError(`${text} is no http or https URL; give the URL of the MCP endpoint.`);
  }
  if (!isLoopback(url) && !ownerAuthorized) {
    throw new UsageError(
      `${url.hostname} is not this machine: add --owner-authorized if its owner agreed to the test.`,
    );
  }
  return url;
}

/**
 * An issuer that has just minted a token for exactly this resource.
 * @throws UsageError when it cannot be found or mints no such token.
 */
async function readyIssuer(url: string, file: TokensFile, { broad }: Cast, options: IssuerOptions): Promise<Issuer> {
  const issuer = await Issuer.discover(url, options);
  try {
    await tokenForUs(issuer, broad, file.callers[broad]?.scopes ?? [], file.resource);
    return issuer;
  } catch (error) {
    throw error instanceof Untestable ? new UsageError(`${error.message}.`.replace(/^t/, "T")) : error;
  }
}

function openHistory(path: string | undefined, resource: string): HistoryWriter {
  try {
    return new HistoryWriter(path, resource);
  } catch (error) {
    throw new UsageError(
      `${path ?? ""} cannot be written (${(error as NodeJS.ErrnoException).code ?? "unknown error"}).`,
    );
  }
}

/** Charged calls besides the bursts, at most. */
const OTHERS = { checks: 95, properties: 85 };
/** Requests that are not charged, at most: listings, refusals, handshakes. */
const FREE = 160;
/** P13 makes two bursts for each sort of call, P14 two in each of its two examples; each burst but two waits first. */
const BURSTS = 2 * Object.keys(SORTS).length + 4;

/** What a run will cost at most before any finding, said before the first request. */
function planOf({ file }: Subject, withProperties: boolean, issuer: Issuer | undefined): string {
  const { budget, pool, window_seconds: window, limiter } = file.budget;
  const largest = Math.max(0, ...Object.values(file.callers).map(({ reserve }) => reserve));
  const whole = limiter === "reserve" ? largest + pool : budget;
  const bursts = limiter === "reserve" ? BURSTS : 0;
  const others = OTHERS.checks + (withProperties ? OTHERS.properties : 0);
  const charged = others + bursts * (whole + 3);
  const waits = Math.max(0, bursts - 2) + Math.ceil(others / Math.max(1, whole));
  // Each spelling takes two tokens, and each token makes one request.
  const minted = issuer ? 2 * spellingsOf(file.resource) : 0;
  const tools = [...new Set([...file.observations.map(({ tool }) => tool), ...(file.may_call ?? [])])];
  return (
    `plan: at most ${charged + FREE + minted} requests, ${charged} of them charged, about ${Math.ceil(waits * window)} s of waiting; ` +
    `tools that may really run: ${tools.length > 0 ? tools.join(", ") : "those annotated as reading only"}` +
    (issuer ? `; ${minted} tokens are asked of ${issuer.url}` : "")
  );
}

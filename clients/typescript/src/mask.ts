/**
 * What may differ between two denials, and their comparison byte for byte. Never hidden: the status line, a member's
 * name, a whole body.
 */
import { fieldValues, type Exchange } from "./exchange.js";

export interface Mask {
  /** Lower-case names of header fields whose values are not compared. */
  readonly values: readonly string[];
  /** Lower-case names of header fields that may be there or not. */
  readonly presence: readonly string[];
}

export const BARE: Mask = { values: ["date"], presence: [] };

/** Two answers to two invented names of equal length, with the names. */
export interface Pair {
  readonly left: Exchange;
  readonly right: Exchange;
  readonly names: readonly [string, string];
}

export interface Difference {
  readonly part: string;
  readonly words: string;
}

export function maskWords({ values, presence }: Mask): string {
  const more = presence.length > 0 ? `; presence of ${presence.join(", ")}` : "";
  return `JSON-RPC id, own session id, values of ${values.join(", ")}${more}`;
}

/** Learns the mask that pairs of invented names show, and what differs between them that no mask may hide. */
export function learnMask(pairs: readonly Pair[]): { mask: Mask; unmaskable: Difference | undefined } {
  const values = new Set(BARE.values);
  const presence = new Set<string>();
  for (const { left, right } of pairs) {
    for (const name of new Set([...fieldNames(left), ...fieldNames(right)])) {
      const [one, other] = [fieldValues(left.response, name), fieldValues(right.response, name)];
      if ((one.length === 0) !== (other.length === 0)) presence.add(name);
      else if (JSON.stringify(one) !== JSON.stringify(other)) values.add(name);
    }
  }
  // A length that varies follows a body that varies, and a body is compared.
  const mask: Mask = {
    values: [...values].filter((name) => !presence.has(name) && name !== "content-length").sort(),
    presence: [...presence].sort(),
  };
  for (const { left, right, names } of pairs) {
    const unmaskable = difference(left, right, mask, names);
    if (unmaskable) return { mask, unmaskable };
  }
  return { mask, unmaskable: undefined };
}

/**
 * The first difference between two answers under a mask. With `names`, an answer may echo its own name: both names,
 * of equal length, are then replaced by the same filler.
 */
export function difference(
  left: Exchange,
  right: Exchange,
  mask: Mask,
  names?: readonly [string, string],
): Difference | undefined {
  if (left.response.start !== right.response.start) {
    return differ("the status line", left.response.start, right.response.start);
  }
  const [ours, theirs] = [visibleFields(left, mask), visibleFields(right, mask)];
  for (let at = 0; at < Math.max(ours.length, theirs.length); at += 1) {
    const [one, other] = [ours[at], theirs[at]];
    if (one !== other) return differ(`header ${at + 1}`, one ?? "nothing", other ?? "nothing");
  }
  let bodies: [string, string] = [comparableBody(left), comparableBody(right)];
  if (bodies[0] === bodies[1]) return undefined;
  if (names?.[0] && names[1]) bodies = [withoutName(bodies[0], names[0]), withoutName(bodies[1], names[1])];
  if (bodies[0] === bodies[1]) return undefined;
  let at = 0;
  while (bodies[0][at] === bodies[1][at]) at += 1;
  const near = (body: string): string => body.slice(Math.max(0, at - 12), at + 28);
  return { part: "the body", words: differ(`byte ${at} of the body`, near(bodies[0]), near(bodies[1])).words };
}

function differ(part: string, left: string, right: string): Difference {
  return {
    part,
    words: `the first difference is at ${part}: ${JSON.stringify(left)} against ${JSON.stringify(right)}`,
  };
}

function fieldNames({ response }: Exchange): string[] {
  return response.headers.map(([name]) => name.toLowerCase());
}

function visibleFields({ request, response }: Exchange, mask: Mask): string[] {
  const session = fieldValues(request, "mcp-session-id")[0];
  return response.headers
    .filter(([name]) => !mask.presence.includes(name.toLowerCase()))
    .map(([name, value]) => `${name}: ${mask.values.includes(name.toLowerCase()) || value === session ? "" : value}`);
}

/** The body, with the request's own JSON-RPC id replaced by zeros of the same number of digits. */
function comparableBody({ response, rpcId }: Exchange): string {
  if (rpcId === null) return response.body;
  return response.body.replace(
    new RegExp(`("id"\\s*:\\s*)${rpcId}(?!\\d)`, "g"),
    (_, before: string) => before + "0".repeat(String(rpcId).length),
  );
}

function withoutName(body: string, name: string): string {
  const bytes = Buffer.from(name, "utf8").toString("latin1");
  return body.replaceAll(bytes, "\u2588".repeat(bytes.length));
}

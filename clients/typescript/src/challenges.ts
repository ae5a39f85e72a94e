/** Challenges of a WWW-Authenticate field (RFC 9110 §11.6.1). */
import { fieldValues, type Exchange } from "./exchange.js";

export interface Challenge {
  /** The scheme in lower case. */
  readonly scheme: string;
  /** Parameters by their lower-case names; of a name that stands twice the first counts. */
  readonly parameters: ReadonlyMap<string, string>;
}

const TOKEN = "[!#$%&'*+\\-.^_`|~0-9A-Za-z]+";
const SEPARATOR = /[ \t,]+/y;
const PARAMETER = new RegExp(`(${TOKEN})[ \\t]*=[ \\t]*(?:"((?:[^"\\\\]|\\\\.)*)"|(${TOKEN}))`, "y");
const SCHEME = new RegExp(`(${TOKEN})(?=[ \\t,]|$)`, "y");

/** Reads one field value; reading stops at the first thing that is no challenge. */
export function parseChallenges(value: string): Challenge[] {
  const found: { scheme: string; parameters: Map<string, string> }[] = [];
  let at = 0;
  const match = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const matched = pattern.exec(value);
    if (matched) at = pattern.lastIndex;
    return matched;
  };
  while (at < value.length) {
    if (match(SEPARATOR)) continue;
    const parameter = match(PARAMETER);
    if (parameter) {
      const [, name = "", quoted, bare] = parameter;
      const challenge = found.at(-1);
      if (!challenge) break;
      const key = name.toLowerCase();
      const text = quoted === undefined ? (bare ?? "") : quoted.replace(/\\(.)/g, "$1");
      if (!challenge.parameters.has(key)) challenge.parameters.set(key, text);
      continue;
    }
    const scheme = match(SCHEME);
    if (!scheme) break;
    found.push({ scheme: (scheme[1] ?? "").toLowerCase(), parameters: new Map() });
  }
  return found;
}

/** The Bearer challenge of an answer (RFC 6750 §3), else `undefined`. */
export function bearerOf(exchange: Exchange): Challenge | undefined {
  return fieldValues(exchange.response, "www-authenticate")
    .flatMap(parseChallenges)
    .find(({ scheme }) => scheme === "bearer");
}

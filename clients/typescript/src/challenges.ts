/** Challenges of a WWW-Authenticate field (RFC 9110 §11.6.1). */
import { fieldValues, type Exchange } from "./exchange.js";

export interface Challenge {
  /** The scheme in lower case. */
  readonly scheme: string;
  /** Parameters by their lower-case names. */
  readonly parameters: ReadonlyMap<string, string>;
}

const TOKEN = "[!#$%&'*+\\-.^_`|~0-9A-Za-z]+";
const QUOTED = String.raw`"(?:[\t !#-\[\]-~\u0080-\u00ff]|\\[\t !-~\u0080-\u00ff])*"`;
const SCHEME = new RegExp(TOKEN, "y");
const SPACES = / +/y;
/** One word of base64 and the like, and nothing after it. */
const TOKEN68 = /[-._~+/0-9A-Za-z]+=*(?=[ \t]*(?:,|$))/y;
const PARAMETER = new RegExp(`(${TOKEN})[ \\t]*=[ \\t]*(${TOKEN}|${QUOTED})`, "y");
const COMMA = /[ \t]*,[ \t]*/y;

/** Reads a text from left to right. */
class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#text.length;
  }

  /** What the pattern matches here, read; `undefined`, and nothing read, when it does not. */
  take(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.#at;
    const matched = pattern.exec(this.#text) ?? undefined;
    if (matched) this.#at = pattern.lastIndex;
    return matched;
  }

  /** Tries to read all of several patterns; on failure nothing is read. */
  all(...patterns: RegExp[]): RegExpExecArray | undefined {
    const before = this.#at;
    let last: RegExpExecArray | undefined;
    for (const pattern of patterns) {
      last = this.take(pattern);
      if (!last) {
        this.#at = before;
        return undefined;
      }
    }
    return last;
  }
}

/**
 * Reads one field value by the grammar of RFC 9110 §11.3 and §11.6.1; `undefined` for a value that does not follow it.
 * No element of the list is empty (§5.6.1), and no challenge has a parameter twice (§11.2).
 */
export function parseChallenges(value: string): Challenge[] | undefined {
  const found: Challenge[] = [];
  const reader = new Reader(value);
  do {
    const scheme = reader.take(SCHEME);
    if (!scheme) return undefined;
    const parameters = new Map<string, string>();
    if (!reader.all(SPACES, TOKEN68)) {
      let parameter = reader.all(SPACES, PARAMETER);
      while (parameter) {
        const [, name = "", text = ""] = parameter;
        if (parameters.has(name.toLowerCase())) return undefined;
        parameters.set(name.toLowerCase(), text.startsWith('"') ? text.slice(1, -1).replace(/\\(.)/g, "$1") : text);
        parameter = reader.all(COMMA, PARAMETER);
      }
    }
    found.push({ scheme: scheme[0].toLowerCase(), parameters });
    if (reader.isAtEnd) return found;
  } while (reader.take(COMMA));
  return undefined;
}

/** The first WWW-Authenticate value of an answer that does not follow the grammar, else `undefined`. */
export function unreadable(exchange: Exchange): string | undefined {
  return fieldValues(exchange.response, "www-authenticate").find((value) => parseChallenges(value) === undefined);
}

/** The Bearer challenge of an answer (RFC 6750 §3), else `undefined`. */
export function bearerOf(exchange: Exchange): Challenge | undefined {
  return fieldValues(exchange.response, "www-authenticate")
    .flatMap((value) => parseChallenges(value) ?? [])
    .find(({ scheme }) => scheme === "bearer");
}

/** The tokens file (spec/schemas/tokens-file.json): callers with tokens, bad tokens, what is hidden, the budget. */
import { readFileSync } from "node:fs";
import type { JsonObject } from "./exchange.js";
import { type Credential, payloadOf, recipeOf } from "./recipe.js";
import { firstProblem, validatorOf } from "./schemas.js";

/** The kinds of things that a caller can list. */
export const KINDS = ["tools", "prompts", "resources", "resource_templates"] as const;
export type Kind = (typeof KINDS)[number];
export type Names = Record<Kind, string[]>;

export interface ObservationTool {
  tool: string;
  arguments: JsonObject;
  from: string;
  to: string;
  observations: string;
  certificate: string;
  gap_causes: string[];
  open_causes: string[];
}

export interface TokensFile {
  quenchz_tokens: 1;
  url: string;
  resource: string;
  issuer: string;
  callers: Record<string, { scopes: string[]; reserve: number; token: string; fresh_tokens: string[] }>;
  bad_tokens: Record<string, { caller: string; token: string }>;
  granted: Names;
  hidden: Names;
  budget: {
    limiter: "reserve" | "per-caller" | "shared" | "none";
    budget: number;
    window_seconds: number;
    reserves: Record<string, number>;
    pool: number;
    unknown_callers: string;
    free_methods: string[];
    refusal_status: number;
  };
  may_call?: string[];
  observations: ObservationTool[];
}

/** A command line or a file that no run can begin with; the message is one sentence for a person. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/**
 * Checks a parsed tokens file.
 * @throws UsageError naming the file, the member and what is wrong with it.
 */
export function checkedTokensFile(document: unknown, name: string): TokensFile {
  const valid = validatorOf<TokensFile>("tokens-file");
  if (!valid(document)) {
    throw new UsageError(`${name} is no tokens file: ${firstProblem(valid.errors)} (schema: tokens-file.json).`);
  }
  return document;
}

/**
 * Reads and checks a tokens file.
 * @throws UsageError naming the file and what is wrong with it.
 */
export function readTokensFile(path: string): TokensFile {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    const why =
      code === "ENOENT" ? "does not exist; `quenchz serve --tokens-file` writes one" : `cannot be read (${code})`;
    throw new UsageError(`${path} ${why}.`);
  }
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch {
    throw new UsageError(`${path} is not JSON; expected a tokens file as \`quenchz serve --tokens-file\` writes it.`);
  }
  return checkedTokensFile(document, path);
}

/** A bad token of the file, with the one way in which it differs from a good one. */
export interface BadToken {
  readonly name: string;
  readonly credential: Credential;
}

/** The callers by the part they play, and the file's bad tokens by what is wrong with each. */
export interface Cast {
  readonly broad: string;
  readonly narrow: string;
  /** A third caller with a reserve, who sleeps while others burst; `undefined` when there is none. */
  readonly quiet: string | undefined;
  readonly bad: readonly BadToken[];
}

/**
 * Returns who plays which part: the broad caller has the most scopes, the narrow one the fewest.
 * @throws UsageError when a good token has expired.
 */
export function castOf(file: TokensFile, nowSeconds: number): Cast {
  for (const [name, { token }] of Object.entries(file.callers)) {
    const exp = payloadOf(token)?.exp;
    if (typeof exp === "number" && exp <= nowSeconds) {
      const when = new Date(exp * 1000).toISOString();
      throw new UsageError(`The token of ${name} expired at ${when}; write a fresh tokens file and run again.`);
    }
  }
  const byScopes = Object.entries(file.callers).sort(([, a], [, b]) => a.scopes.length - b.scopes.length);
  const narrow = byScopes[0]?.[0] ?? "";
  const broad = byScopes.at(-1)?.[0] ?? "";
  const quiet = Object.entries(file.callers).find(
    ([name, { reserve }]) => name !== narrow && name !== broad && reserve > 0,
  );
  const bad: BadToken[] = [];
  for (const [name, { caller, token }] of Object.entries(file.bad_tokens)) {
    const recipe = caller === broad ? recipeOf(token, caller, file.resource, nowSeconds) : undefined;
    if (recipe) bad.push({ name, credential: { recipe, token } });
  }
  return { broad, narrow, quiet: quiet?.[0], bad };
}

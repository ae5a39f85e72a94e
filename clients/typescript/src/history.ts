/** A run as JSON Lines (spec/schemas/history.json): a header, then every exchange and every example in order. */
import { closeSync, openSync, writeSync } from "node:fs";
import type { Ask, Exchange, JsonObject, Wire } from "./exchange.js";
import type { Level, Outcome } from "./outcomes.js";
import { encodedRecipe, plain, tagged, tuple } from "./recipe.js";
import { type Cast, KINDS, type TokensFile } from "./tokens-file.js";

/** The release of the law whose properties can judge what is recorded here. */
export const LAW = "quenchz-1";

export type Phase = "table" | "generate" | "shrink" | "confirm";

/** One example of one requirement. */
export interface ExampleLine {
  readonly requirement: string;
  readonly number: number;
  readonly phase: Phase;
  readonly row: string;
  readonly arguments: JsonObject[string];
  readonly outcome: Outcome;
  readonly detail: string;
  readonly controls: number;
  readonly probes: number;
  readonly requests: number;
}

/** Writes lines; without a path nothing. What comes before the header waits for it. */
export class HistoryWriter {
  #file: number | undefined;
  #waiting: string[] | undefined = [];
  readonly #resource: string;

  constructor(path: string | undefined, resource: string) {
    this.#file = path === undefined ? undefined : openSync(path, "w");
    this.#resource = resource;
  }

  header(run: {
    url: string;
    wire: Wire;
    seed: number;
    level: Level;
    ids: readonly string[];
    target: JsonObject;
  }): void {
    const waiting = this.#waiting ?? [];
    this.#waiting = undefined;
    const { url, wire, seed, level, ids, target } = run;
    this.#write({
      kind: "header",
      quenchz_history: 1,
      law: LAW,
      url,
      wire,
      seed,
      profile: "prove",
      level,
      ids: [...ids],
      allowed: [],
      target,
    });
    for (const line of waiting) this.#put(line);
  }

  exchange(channel: string, example: number, { ask, role, request, response, at, rpcId }: Exchange): void {
    this.#write({
      kind: "exchange",
      channel,
      example,
      role,
      ask: encodedAsk(ask, this.#resource),
      request: { start: request.start, headers: request.headers.map(([k, v]) => [k, v]), body: request.body },
      response: { start: response.start, headers: response.headers.map(([k, v]) => [k, v]), body: response.body },
      at: at.map((seconds) => Math.round(seconds * 1e6) / 1e6),
      rpc_id: rpcId,
    });
  }

  example(line: ExampleLine): void {
    this.#write({ kind: "example", ...line });
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }

  #write(line: JsonObject): void {
    if (this.#file === undefined) return;
    const text = `${JSON.stringify(line)}\n`;
    if (this.#waiting) this.#waiting.push(text);
    else this.#put(text);
  }

  #put(text: string): void {
    if (this.#file !== undefined) writeSync(this.#file, text);
  }
}

export function encodedAsk({ method, params, token, verb, session }: Ask, resource: string): JsonObject {
  return tagged("Ask", {
    method,
    params: plain(params),
    token: token ? encodedRecipe(token.recipe, resource) : null,
    verb,
    session,
    body: null,
  });
}

/** What the tokens file declares, as the header of a history holds it. */
export function encodedTarget(file: TokensFile, cast: Cast): JsonObject {
  const { budget } = file;
  return tagged("Target", {
    resource: file.resource,
    callers: tuple(
      ...Object.entries(file.callers).map(([name, { scopes, reserve }]) =>
        tagged("CallerSpec", { name, scopes: tuple(...scopes), reserve }),
      ),
    ),
    broad: cast.broad,
    narrow: cast.narrow,
    budget: tagged("Budget", {
      limiter: budget.limiter,
      budget: budget.budget,
      window: budget.window_seconds,
      pool: budget.pool,
      free: tuple(...budget.free_methods),
      refusal_status: budget.refusal_status,
      exclusive: true,
    }),
    observations: tuple(
      ...file.observations.map((tool) =>
        tagged("ObservationTool", {
          tool: tool.tool,
          arguments: plain(tool.arguments),
          since: tool.from,
          until: tool.to,
          observations: tool.observations,
          certificate: tool.certificate,
          gap_causes: tuple(...tool.gap_causes),
          open_causes: tuple(...tool.open_causes),
        }),
      ),
    ),
    hidden: tuple(...KINDS.flatMap((kind) => file.hidden[kind].map((name) => tuple(kind, name)))),
    may_call: tuple(...(file.may_call ?? [])),
    challengeable: tuple(),
    mask_headers: tuple(),
    fresh_budgets: false,
  });
}

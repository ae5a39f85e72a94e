/** The server under test: makes the requests of the checks, records them, and keeps count of what they cost. */
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { type Catalogue, type Listing, LISTINGS } from "./catalogue.js";
import {
  answerWords,
  ask,
  type Ask,
  askWords,
  errorCodeOf,
  type Exchange,
  fieldValues,
  listOf,
  type Message,
  objectOf,
  resultOf,
  type Role,
  statusOf,
  type Wire,
  WIRES,
} from "./exchange.js";
import type { HistoryWriter } from "./history.js";
import { ControlFailed, Untestable, Void } from "./outcomes.js";
import type { Credential, Recipe } from "./recipe.js";
import { type Cast, type Kind, KINDS, type TokensFile } from "./tokens-file.js";
import type { Transport } from "./transport.js";
import { type Bytes, documentBytes, messageBytes } from "./wire.js";

/** Where in the run an exchange belongs: a requirement's id or what is done around them. */
export interface Place {
  readonly channel: string;
  readonly example: number;
  /** Whether a budget refusal says nothing here and the example is to be made again. */
  readonly voidsRefusals: boolean;
  /** Whether budget refusals are left out of the record, because what was refused is asked again. */
  readonly dropsRefusals?: boolean;
}

/** What the run, or one example of it, has cost. */
export interface Counts {
  requests: number;
  charged: number;
  roles: Record<Role, number>;
}

export interface SubjectOptions {
  readonly signal?: AbortSignal | undefined;
  readonly announce?: (line: string) => void;
}

/** More pages than any listing needs. */
const PAGES = 50;
/** Requests in a row without an answer after which none is made any more. */
const PATIENCE = 4;
/** Waiting a little longer than the window allows for the server's clock to be read later than ours. */
const MARGIN = 1.03;

export class Subject {
  readonly url: URL;
  readonly file: TokensFile;
  readonly cast: Cast;
  readonly catalogue: Catalogue = new Map();
  readonly total = emptyCounts();
  wire: Wire = WIRES[0];
  server = "";
  waitedSeconds = 0;
  /** How many answers held a token, which is not recorded. */
  redacted = 0;

  readonly #transport: Transport;
  readonly #history: HistoryWriter;
  readonly #options: SubjectOptions;
  readonly #secrets: string[];
  readonly #zero = performance.now();
  readonly #sessions = new Map<string, string | null>();
  #rpcId = 100_000;
  /** Requests in a row that got no answer. */
  #silent = 0;
  #counts = emptyCounts();
  #place: Place = { channel: "setup", example: 0, voidsRefusals: false };
  /** Seconds at which charged calls ended, oldest first. */
  #charges: number[] = [];

  constructor(
    url: URL,
    file: TokensFile,
    cast: Cast,
    transport: Transport,
    history: HistoryWriter,
    options: SubjectOptions = {},
  ) {
    this.url = url;
    this.file = file;
    this.cast = cast;
    this.#transport = transport;
    this.#history = history;
    this.#options = options;
    this.#secrets = [
      ...Object.values(file.callers).flatMap(({ token, fresh_tokens }) => [token, ...fresh_tokens]),
      ...Object.values(file.bad_tokens).map(({ token }) => token),
    ];
  }

  close(): void {
    this.#transport.close();
  }

  // --- the run ------------------------------------------------------------------------------------------------------

  /** Finds the protocol revision and reads the listings; returns why that is impossible, or "". */
  async connect(wires: readonly Wire[]): Promise<string> {
    const tried: string[] = [];
    for (const wire of wires) {
      this.wire = wire;
      const problem = await this.#greeted();
      if (problem === "") return "";
      tried.push(`${wire}: ${problem}`);
      if (NOBODY.test(problem)) return problem;
    }
    return tried.join("; ");
  }

  async #greeted(): Promise<string> {
    try {
      const answer = await this.within({ channel: "setup", example: 0, voidsRefusals: false }, async () =>
        this.wire === "2026-07-28"
          ? this.ask(ask("server/discover", this.good(this.cast.broad)), "setup")
          : this.#initialize(this.cast.broad),
      );
      const result = resultOf(answer);
      if (!result) return `${answer.ask.method} as ${this.cast.broad} answered ${answerWords(answer)}`;
      const meta = objectOf(result._meta)["io.modelcontextprotocol/serverInfo"];
      const { name = "", version = "" } = objectOf(result.serverInfo ?? meta);
      this.server = [name, version]
        .filter((part) => typeof part === "string")
        .join(" ")
        .trim()
        .slice(0, 80);
      const problem = await this.within({ channel: "setup", example: 1, voidsRefusals: false }, async () =>
        this.#list(),
      );
      return problem;
    } catch (error) {
      if (error instanceof Untestable || error instanceof ControlFailed) return error.message;
      throw error;
    }
  }

  /** Reads what the broad and the narrow caller list, all pages. */
  async #list(): Promise<string> {
    this.catalogue.clear();
    let problem = "nothing is listed";
    for (const caller of [this.cast.broad, this.cast.narrow]) {
      const listing: Listing = new Map();
      this.catalogue.set(caller, listing);
      for (const kind of KINDS) {
        const pages = await this.pages(caller, kind, "setup");
        const last = pages.at(-1);
        if (last && errorCodeOf(last) === METHOD_NOT_FOUND) continue;
        const entries = new Map<string, ReturnType<typeof objectOf>>();
        for (const page of pages) {
          const listed = resultOf(page)?.[LISTINGS[kind].member];
          if (!Array.isArray(listed)) problem = `${askWords(page.ask)} answered ${answerWords(page)}`;
          for (const entry of listOf(listed).map(objectOf)) {
            const name = entry[LISTINGS[kind].key];
            if (typeof name === "string") entries.set(name, entry);
          }
        }
        if (entries.size > 0) listing.set(kind, entries);
      }
    }
    return (this.catalogue.get(this.cast.broad)?.size ?? 0) > 0 ? "" : problem;
  }

  /** Asks for every page of a listing; the last page may be an error. */
  async pages(caller: string, kind: Kind, role: Role): Promise<Exchange[]> {
    const pages: Exchange[] = [];
    let cursor: string | undefined;
    do {
      const params = cursor === undefined ? {} : { cursor };
      const page = await this.ask(ask(LISTINGS[kind].method, this.good(caller), params), role);
      pages.push(page);
      const next = resultOf(page)?.nextCursor;
      cursor = typeof next === "string" ? next : undefined;
    } while (cursor !== undefined && pages.length < PAGES);
    return pages;
  }

  /** Whether the broad caller still lists tools. */
  async isAlive(): Promise<boolean> {
    try {
      const answer = await this.within({ channel: "setup", example: 2, voidsRefusals: false }, async () =>
        this.ask(ask("tools/list", this.good(this.cast.broad)), "setup"),
      );
      return statusOf(answer) === 200;
    } catch (error) {
      if (error instanceof Untestable || error instanceof ControlFailed) return false;
      throw error;
    }
  }

  /** Records what `action` asks at a place, and counts it. */
  async within<T>(place: Place, action: (counts: Counts) => Promise<T>): Promise<T> {
    const [placeBefore, countsBefore] = [this.#place, this.#counts];
    this.#place = place;
    this.#counts = emptyCounts();
    try {
      return await action(this.#counts);
    } finally {
      this.#place = placeBefore;
      this.#counts = countsBefore;
    }
  }

  // --- what a check may do ------------------------------------------------------------------------------------------

  good(caller: string): Credential {
    const found = this.file.callers[caller];
    if (!found) throw new Untestable(`the tokens file has no caller ${caller}`, "name it among the callers");
    return { recipe: { caller }, token: found.token };
  }

  /** A credential that the tokens file does not hold; from now on its token is kept out of what is written as well. */
  minted(recipe: Recipe, token: string, issuer: string): Credential {
    this.#secrets.push(token);
    return { recipe, token, issuer };
  }

  /**
   * Makes one request.
   * @throws Untestable when no answer came, Void for a budget refusal where that says nothing.
   */
  async ask(asked: Ask, role: Role): Promise<Exchange> {
    const session = this.wire === "2025-11-25" ? await this.#session(asked) : null;
    this.#rpcId += 1;
    return this.#perform(
      asked,
      role,
      this.url.pathname + this.url.search,
      messageBytes(asked, this.wire, this.#rpcId, session),
    );
  }

  /** Gets a document of the server's own origin without credentials: a token is never sent elsewhere. */
  async fetchDocument(url: string, role: Role): Promise<Exchange> {
    const there = URL.canParse(url) ? new URL(url) : undefined;
    if (there?.origin !== this.url.origin) {
      throw new Untestable(
        `the document ${JSON.stringify(url.slice(0, 120))} is not of the origin ${this.url.origin}`,
        "use the URL under which the server knows itself",
      );
    }
    const path = there.pathname + there.search;
    const asked: Ask = { method: "", params: { url: path }, token: null, verb: "GET", session: null };
    return this.#perform(asked, role, path, documentBytes());
  }

  /** Waits until `caller` can surely make `units` charged calls, if it ever can. */
  async room(caller: string, units: number): Promise<void> {
    const { limiter, budget, pool, window_seconds: window } = this.file.budget;
    if (limiter === "none") return;
    const limit = limiter === "reserve" ? (this.file.callers[caller]?.reserve ?? 0) + pool : budget;
    await this.#untouched();
    const free = window * MARGIN;
    const recent = this.#charges.filter((end) => this.now() - end < free);
    this.#charges = recent;
    const excess = Math.min(recent.length, recent.length + units - limit);
    const last = excess > 0 ? recent[excess - 1] : undefined;
    if (last !== undefined) await this.wait(last + free - this.now());
  }

  /** Waits until the window of everything charged so far has passed. */
  async freshBudget(): Promise<void> {
    await this.#untouched();
    const last = this.#charges.at(-1);
    if (last !== undefined) await this.wait(last + this.file.budget.window_seconds * MARGIN - this.now());
    this.#charges = [];
  }

  /** Waits until what another run may have charged before this one began is over. */
  async #untouched(): Promise<void> {
    await this.wait(this.file.budget.window_seconds * MARGIN - this.now());
  }

  /** Counts charged calls that somebody else made in our name. */
  charge(units: number): void {
    this.total.charged += units;
    for (let made = 0; made < units; made += 1) this.#charges.push(this.now());
  }

  async wait(seconds: number): Promise<void> {
    if (seconds <= 0) return;
    if (seconds >= 5) this.#options.announce?.(`waiting ${Math.ceil(seconds)} s for the budget`);
    const began = this.now();
    try {
      await sleep(seconds * 1000, undefined, { signal: this.#options.signal });
    } catch {
      this.#stopIfInterrupted();
    } finally {
      this.waitedSeconds += this.now() - began;
    }
  }

  /** Seconds since the run began. */
  now(): number {
    return (performance.now() - this.#zero) / 1000;
  }

  get isInterrupted(): boolean {
    return this.#options.signal?.aborted === true;
  }

  isRefusal(exchange: Exchange): boolean {
    return statusOf(exchange) === this.file.budget.refusal_status;
  }

  isCharged(method: string): boolean {
    return !this.file.budget.free_methods.some((free) =>
      free.endsWith("*") ? method.startsWith(free.slice(0, -1)) : method === free,
    );
  }

  // --- bytes --------------------------------------------------------------------------------------------------------

  async #session({ method, session, token }: Ask): Promise<string | null> {
    const owner = session ?? token?.recipe.caller ?? "";
    if (owner === "" || method === "initialize") return null;
    // Of tokens that were minted for this run the good one asks first, so it is also the one that opens the session.
    const opener = token?.issuer === undefined ? this.good(owner) : token;
    const known = this.#sessions.get(principal(owner, opener));
    if (known !== undefined) return known;
    const opened = await this.#initialize(owner, opener);
    if (!resultOf(opened)) {
      const { issuer } = opener;
      throw new Untestable(
        `a good token of ${owner}${issuer === undefined ? "" : ` that ${issuer} minted`} opens no session: ${answerWords(opened)}`,
        issuer === undefined ? "write a fresh tokens file for this server" : TRUST,
      );
    }
    return this.#sessions.get(principal(owner, opener)) ?? null;
  }

  async #initialize(caller: string, token = this.good(caller)): Promise<Exchange> {
    const place: Place = { channel: "session", example: 0, voidsRefusals: this.#place.voidsRefusals };
    return this.within(place, async () => {
      const opened = await this.ask(ask("initialize", token, {}, ""), "setup");
      if (!resultOf(opened)) return opened;
      const session = fieldValues(opened.response, "mcp-session-id")[0] ?? null;
      this.#sessions.set(principal(caller, token), session);
      const ready = ask("notifications/initialized", token);
      await this.#perform(
        ready,
        "setup",
        this.url.pathname + this.url.search,
        messageBytes(ready, this.wire, this.#rpcId, session),
      );
      return opened;
    });
  }

  async #perform(asked: Ask, role: Role, path: string, { headers, body, rpcId }: Bytes): Promise<Exchange> {
    this.#stopIfInterrupted();
    if (this.#silent >= PATIENCE) {
      throw new Untestable(`the server left ${PATIENCE} requests in a row without an answer`, "see whether it is up");
    }
    const { token } = asked;
    const credentials = (text: string): [string, string][] => (token ? [["Authorization", `Bearer ${text}`]] : []);
    const received = await this.#transport.exchange({
      verb: asked.verb,
      path,
      headers: [...headers, ...credentials(token?.token ?? "")],
      body,
    });
    this.#stopIfInterrupted();
    const [sent, first, last] = received.at.map((at) => (at - this.#zero) / 1000) as [number, number, number];
    const exchange: Exchange = {
      ask: asked,
      role,
      request: {
        start: `${asked.verb} ${path} HTTP/1.1`,
        headers: [...headers, ...credentials(`(the token of ${token?.recipe.caller ?? ""}; see ask.token)`)],
        body: Buffer.from(body, "utf8").toString("latin1"),
      },
      response: this.#redact(received.message),
      at: [sent, first, last],
      rpcId,
    };
    this.#count(exchange);
    if (!(this.#place.dropsRefusals && this.isRefusal(exchange))) {
      this.#history.exchange(this.#place.channel, this.#place.example, exchange);
    }
    this.#silent = received.failure === "" ? 0 : this.#silent + 1;
    if (received.failure !== "") {
      throw new Untestable(
        `no answer to ${askWords(asked)} (${received.failure})`,
        "look whether the server still runs",
      );
    }
    if (this.#place.voidsRefusals && this.isRefusal(exchange)) {
      throw new Void("a budget refusal", this.file.budget.window_seconds * MARGIN);
    }
    return exchange;
  }

  #count(exchange: Exchange): void {
    const charged = exchange.ask.verb === "POST" && this.isCharged(exchange.ask.method) && statusOf(exchange) !== 401;
    for (const counts of [this.total, this.#counts]) {
      counts.requests += 1;
      counts.roles[exchange.role] += 1;
      if (charged) counts.charged += 1;
    }
    if (charged) this.#charges.push(exchange.at[2]);
  }

  /** Text with asterisks in place of every token. */
  withoutTokens(text: string): string {
    return this.#secrets.reduce((kept, secret) => kept.replaceAll(secret, "*".repeat(secret.length)), text);
  }

  #redact(message: Message): Message {
    const clean = (text: string): string => this.withoutTokens(text);
    const cleaned = {
      start: clean(message.start),
      headers: message.headers.map(([name, value]) => [clean(name), clean(value)] as const),
      body: clean(message.body),
    };
    if (JSON.stringify(cleaned) !== JSON.stringify(message)) this.redacted += 1;
    return cleaned;
  }

  #stopIfInterrupted(): void {
    if (this.isInterrupted) throw new Untestable("the run was interrupted", "run it again");
  }
}

/** What to do where a token is refused that an issuer minted for exactly this resource. */
export const TRUST = "tell the server to trust this issuer";

/** Errors after which another protocol revision need not be tried: nobody is there. */
const NOBODY = /\((ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH):/;
const METHOD_NOT_FOUND = -32601;

/** Whose a session is. */
const principal = (caller: string, { issuer = "" }: Credential): string => JSON.stringify([issuer, caller]);

function emptyCounts(): Counts {
  return { requests: 0, charged: 0, roles: { setup: 0, control: 0, probe: 0, noise: 0 } };
}

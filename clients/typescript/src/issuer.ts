/**
 * A running issuer that the server under test trusts: found by its metadata (RFC 8414) and asked for tokens as a client
 * asks (RFC 6749 §4.4, RFC 8707 §2). No token is sent to it.
 */
import { type Json, type JsonObject, objectOf, parseJson, statusOf } from "./exchange.js";
import { Untestable } from "./outcomes.js";
import { payloadOf } from "./recipe.js";
import { UsageError } from "./tokens-file.js";
import { isLoopback, openTransport, type Received, type Sent } from "./transport.js";
import { documentBytes, formBytes } from "./wire.js";

/** A token that an issuer minted, and what it wrote into it. */
export interface Minted {
  readonly token: string;
  readonly payload: JsonObject;
}

export interface IssuerOptions {
  readonly timeoutMs: number;
  /** Says that the owner of an issuer that is neither on this machine nor spoken to by https agreed. */
  readonly ownerAuthorized: boolean;
}

export class Issuer {
  /** The issuer identifier. */
  readonly url: string;
  readonly #endpoint: URL;
  readonly #timeoutMs: number;

  private constructor(url: string, endpoint: URL, timeoutMs: number) {
    this.url = url;
    this.#endpoint = endpoint;
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Finds the token endpoint of an issuer.
   * @throws UsageError when the identifier is none, nobody is there, or who is there is another.
   */
  static async discover(identifier: string, { timeoutMs, ownerAuthorized }: IssuerOptions): Promise<Issuer> {
    const url = httpUrl(identifier);
    if (!url || /[?#]/.test(identifier)) {
      throw new UsageError(`${identifier} is no issuer; give an http or https URL as \`quenchz issuer\` prints it.`);
    }
    checkedHost(url, "The issuer", ownerAuthorized);
    const path = metadataPath(url);
    const received = await exchanged(url, timeoutMs, { verb: "GET", path, ...documentBytes() });
    if (received.failure !== "") {
      throw new UsageError(`The issuer ${identifier} cannot be reached (${codeOf(received)}).`);
    }
    const { issuer, token_endpoint: named } = documentOf(received);
    const endpoint = httpUrl(named);
    let problem = "";
    if (statusOf({ response: received.message }) !== 200) problem = `HTTP ${statusOf({ response: received.message })}`;
    else if (issuer !== identifier) problem = `it names the issuer ${shown(issuer)}`;
    else if (!endpoint) problem = `its token endpoint is ${shown(named)}`;
    if (!endpoint || problem !== "") {
      throw new UsageError(`${url.origin}${path} is not the metadata of the issuer ${identifier}: ${problem}.`);
    }
    checkedHost(endpoint, `The token endpoint of ${identifier}`, ownerAuthorized);
    return new Issuer(identifier, endpoint, timeoutMs);
  }

  /**
   * Asks for a token of `caller`, for so many resources.
   * @throws Untestable when the issuer mints none that can be read.
   */
  async mint(caller: string, scopes: readonly string[], resources: readonly string[]): Promise<Minted> {
    const form = formBytes([
      ["grant_type", "client_credentials"],
      ["client_id", caller],
      ...(scopes.length > 0 ? [["scope", scopes.join(" ")] as const] : []),
      ...resources.map((resource) => ["resource", resource] as const),
    ]);
    const path = this.#endpoint.pathname + this.#endpoint.search;
    const received = await exchanged(this.#endpoint, this.#timeoutMs, { verb: "POST", path, ...form });
    if (received.failure !== "") throw this.#mintedNothing(caller, codeOf(received));
    const status = statusOf({ response: received.message });
    const { access_token: token, error } = documentOf(received);
    if (status !== 200) throw this.#mintedNothing(caller, `HTTP ${status}, error ${shown(error)}`);
    const payload = typeof token === "string" && COMPACT.test(token) ? payloadOf(token) : undefined;
    if (typeof token !== "string" || !payload) throw this.#mintedNothing(caller, "its answer holds no JWT");
    return { token, payload };
  }

  #mintedNothing(caller: string, why: string): Untestable {
    return new Untestable(`the issuer ${this.url} minted no token of ${caller} (${why})`, PROVIDE);
  }
}

/** What to do about an issuer that does not do as it is asked. */
export const PROVIDE = "give an issuer that mints what it is asked for, such as `quenchz issuer`";

/** A JWS in compact serialisation (RFC 7515 §7.1). */
const COMPACT = /^[\w-]+\.[\w-]+\.[\w-]*$/;

/** Where the metadata is: the well-known part stands before the issuer's own path (RFC 8414 §3.1). */
export function metadataPath({ pathname }: URL): string {
  return `/.well-known/oauth-authorization-server${pathname.replace(/\/$/, "")}`;
}

function httpUrl(text: Json | undefined): URL | undefined {
  if (typeof text !== "string" || !URL.canParse(text)) return undefined;
  const url = new URL(text);
  return ["http:", "https:"].includes(url.protocol) ? url : undefined;
}

function checkedHost(url: URL, what: string, ownerAuthorized: boolean): void {
  if (url.protocol === "https:" || isLoopback(url) || ownerAuthorized) return;
  throw new UsageError(
    `${what} is at ${url.origin}, neither on this machine nor https: add --owner-authorized if its owner agreed.`,
  );
}

/** One exchange on a connection of its own: an issuer is asked seldom, and then nothing has to be closed. */
async function exchanged(url: URL, timeoutMs: number, sent: Sent): Promise<Received> {
  const transport = openTransport(url, timeoutMs);
  try {
    return await transport.exchange(sent);
  } finally {
    transport.close();
  }
}

function documentOf({ message }: Received): JsonObject {
  return objectOf(parseJson(Buffer.from(message.body, "latin1").toString("utf8")));
}

/** The code of a transport failure. */
const codeOf = ({ failure }: Received): string => failure.split(":")[0] ?? failure;

/** A value of somebody else's document, in few and printable characters. */
export function shown(value: Json | undefined): string {
  const text = value === undefined ? "absent" : JSON.stringify(value);
  return text.slice(0, 120).replace(/[^\x20-\x7e]/g, "?");
}

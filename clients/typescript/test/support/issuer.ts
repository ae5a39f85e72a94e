/** An issuer that mints any audience for anybody, and MCP servers that trust it and differ in how they read `aud`. */
import { randomUUID } from "node:crypto";
import type * as http from "node:http";
import { calculateJwkThumbprint, exportJWK, generateKeyPair, jwtVerify, SignJWT } from "jose";
import type { Json, JsonObject } from "../../src/exchange.js";
import type { TokensFile } from "../../src/tokens-file.js";
import { answering, listing, type Sentinel } from "./sentinels.js";
import { RESOURCE, tokensFile } from "./tokens.js";

type Keys = Awaited<ReturnType<typeof generateKeyPair>>;

export interface TestIssuer {
  readonly url: string;
  readonly keys: Keys;
  readonly kid: string;
  /** Every token that was minted. */
  readonly minted: string[];
  /** Every form that came to the token endpoint. */
  readonly asked: URLSearchParams[];
  readonly mint: (claims: JsonObject) => Promise<string>;
  readonly close: () => Promise<void>;
}

export interface Habits {
  /** The issuer's path, for a tenant. */
  readonly tenant?: string;
  /** Changes the claims of a token that was asked for. */
  readonly writes?: (claims: JsonObject) => JsonObject;
  /** Changes the metadata. */
  readonly says?: (metadata: JsonObject) => JsonObject;
  /** Answers a request for a token otherwise. */
  readonly answers?: (form: URLSearchParams) => { status: number; body: string } | undefined;
}

const json = (response: http.ServerResponse, status: number, body: string): void => {
  response.writeHead(status, { "Content-Type": "application/json", "Cache-Control": "no-store" }).end(body);
};

export async function startIssuer({ tenant = "", writes, says, answers }: Habits = {}): Promise<TestIssuer> {
  const keys = await generateKeyPair("ES256");
  const kid = await calculateJwkThumbprint(await exportJWK(keys.publicKey));
  const minted: string[] = [];
  const asked: URLSearchParams[] = [];
  const mint = async (claims: JsonObject): Promise<string> => {
    const signer = new SignJWT({ iss: url, jti: randomUUID(), ...claims });
    const token = await signer
      .setProtectedHeader({ alg: "ES256", typ: "at+jwt", kid })
      .setExpirationTime("10m")
      .sign(keys.privateKey);
    minted.push(token);
    return token;
  };
  const tokenFor = async (text: string): Promise<{ status: number; body: string }> => {
    const form = new URLSearchParams(text);
    asked.push(form);
    const other = answers?.(form);
    if (other) return other;
    if (form.get("grant_type") !== "client_credentials") {
      return { status: 400, body: '{"error":"unsupported_grant_type"}' };
    }
    const [first, ...more] = form.getAll("resource");
    const client = form.get("client_id") ?? "";
    const claims: JsonObject = { sub: client, client_id: client, scope: form.get("scope") ?? "" };
    if (first !== undefined) claims.aud = more.length > 0 ? [first, ...more] : first;
    const token = await mint(writes ? writes(claims) : claims);
    return { status: 200, body: JSON.stringify({ access_token: token, token_type: "Bearer", expires_in: 600 }) };
  };
  const server = await answering((body, request, response) => {
    if (request.url === `/.well-known/oauth-authorization-server${tenant}`) {
      const metadata: JsonObject = { issuer: url, token_endpoint: `${url}/token` };
      json(response, 200, JSON.stringify(says ? says(metadata) : metadata));
    } else if (request.method === "POST" && request.url === `${tenant}/token`) {
      void tokenFor(body).then((answer) => {
        json(response, answer.status, answer.body);
      });
    } else json(response, 404, "{}");
  });
  const url = new URL(server.url).origin + tenant;
  return { url, keys, kid, minted, asked, mint, close: server.close };
}

/** Reads `aud` in one way. */
export type Admits = (audience: Json | undefined) => boolean;

export interface TestServer extends Sentinel {
  /** A tokens file whose tokens the issuer minted. */
  readonly file: TokensFile;
}

export interface Manners {
  /** The HTTP status of a refusal. */
  readonly refuses?: number;
  /** Whether a session belongs to the token's issuer and subject, and who names another's gets 404. */
  readonly sessions?: boolean;
  /** Whether answers hold the token. */
  readonly echoes?: boolean;
}

/** A server that verifies the signature of a trusted issuer's token, and reads its audience with `admits`. */
export async function startServer(
  issuer: TestIssuer,
  admits: Admits,
  { trusts = [issuer], refuses = 401, sessions = false, echoes = false }: Manners & { trusts?: TestIssuer[] } = {},
): Promise<TestServer> {
  const opened = new Map<string, string>();
  const claimsOf = async (token: string): Promise<JsonObject | undefined> => {
    for (const { keys, url } of trusts) {
      const verified = await jwtVerify(token, keys.publicKey, { issuer: url }).catch(() => undefined);
      if (verified) return verified.payload as JsonObject;
    }
    return undefined;
  };
  const answer = async (body: string, request: http.IncomingMessage, response: http.ServerResponse): Promise<void> => {
    const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1] ?? "";
    const claims = await claimsOf(token);
    if (!claims || !admits(claims.aud)) {
      const status = claims ? refuses : 401;
      response.writeHead(status, { "WWW-Authenticate": 'Bearer error="invalid_token"' }).end();
      return;
    }
    const { id = null, method = "" } = (body === "" ? {} : JSON.parse(body)) as { id?: Json; method?: string };
    if (sessions && method === "server/discover") {
      json(response, 400, "{}");
      return;
    }
    const principal = JSON.stringify([claims.iss, claims.sub]);
    const named = request.headers["mcp-session-id"];
    if (sessions && method !== "initialize" && opened.get(String(named)) !== principal) {
      json(response, 404, "{}");
      return;
    }
    if (sessions && method === "initialize") {
      const session = randomUUID();
      opened.set(session, principal);
      response.setHeader("Mcp-Session-Id", session);
    }
    if (echoes) response.setHeader("X-Echo", token);
    const answered = JSON.parse(listing(method) ?? '{"jsonrpc":"2.0","result":{}}') as JsonObject;
    json(response, 200, JSON.stringify({ ...answered, id }));
  };
  const server = await answering((body, request, response) => {
    void answer(body, request, response);
  });
  const file = tokensFile(server.url);
  for (const [name, caller] of Object.entries(file.callers)) {
    caller.token = (await trusts[0]?.mint({ sub: name, aud: RESOURCE, scope: caller.scopes.join(" ") })) ?? "";
  }
  return { ...server, file };
}

/** One request and its answer as bytes, and how an answer is read. Nothing here does I/O. */
import type { Credential } from "./recipe.js";

export type Json = null | boolean | number | string | Json[] | JsonObject;
export interface JsonObject {
  [member: string]: Json;
}

/** What an exchange was for; `noise` is one leg of a pair of two invented names. */
export type Role = "setup" | "control" | "probe" | "noise";

/** The two protocol revisions that are spoken. */
export const WIRES = ["2026-07-28", "2025-11-25"] as const;
export type Wire = (typeof WIRES)[number];

/** One request before it is bytes. `session` names the caller whose session is used: by default the token's own. */
export interface Ask {
  readonly method: string;
  readonly params: JsonObject;
  readonly token: Credential | null;
  readonly verb: "POST" | "GET";
  readonly session: string | null;
}

export function ask(
  method: string,
  token: Credential | null,
  params: JsonObject = {},
  session: string | null = null,
): Ask {
  return { method, params, token, verb: "POST", session };
}

/** One HTTP message: start line, header fields in order and case, body with one character a byte. */
export interface Message {
  readonly start: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: string;
}

/** An exchange; `at` holds the seconds of sending, first byte and last byte on one clock. */
export interface Exchange {
  readonly ask: Ask;
  readonly role: Role;
  readonly request: Message;
  readonly response: Message;
  readonly at: readonly [sent: number, first: number, last: number];
  readonly rpcId: number | null;
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function objectOf(value: unknown): JsonObject {
  return isObject(value) ? value : {};
}

export function listOf(value: Json | undefined): Json[] {
  return Array.isArray(value) ? value : [];
}

/** The values of a header field; names are compared without case (RFC 9110 §5.1). */
export function fieldValues(message: Message, name: string): string[] {
  return message.headers.filter(([key]) => key.toLowerCase() === name).map(([, value]) => value);
}

/** The HTTP status of an answer, 0 when its first line has none. */
export function statusOf({ response }: Pick<Exchange, "response">): number {
  const found = /^\S+ (\d{3})(?: |$)/.exec(response.start);
  return found ? Number(found[1]) : 0;
}

/** Parses JSON; `undefined` for what is not JSON. */
export function parseJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

/** The data of each server-sent event in a body, in order (WHATWG HTML §9.2.6). */
export function eventData(body: string): string[] {
  return body
    .replace(/\r\n?/g, "\n")
    .split("\n\n")
    .map((event) =>
      event
        .split("\n")
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice("data:".length).replace(/^ /, ""))
        .join("\n"),
    )
    .filter((data) => data !== "");
}

/** The JSON-RPC response in a body, whether it stands alone or is the last one of an event stream. */
export function rpcOf(exchange: Exchange): JsonObject | undefined {
  const type = (fieldValues(exchange.response, "content-type")[0] ?? "").split(";")[0]?.trim().toLowerCase();
  const text = Buffer.from(exchange.response.body, "latin1").toString("utf8");
  return (type === "text/event-stream" ? eventData(text) : [text])
    .map(parseJson)
    .filter((message) => isObject(message))
    .findLast((message) => "result" in message || "error" in message);
}

/** The result of a call that was answered with HTTP 200, else `undefined`. */
export function resultOf(exchange: Exchange): JsonObject | undefined {
  const result = statusOf(exchange) === 200 ? rpcOf(exchange)?.result : undefined;
  return isObject(result) ? result : undefined;
}

/** The JSON-RPC error code, else `undefined`. */
export function errorCodeOf(exchange: Exchange): number | undefined {
  const code = objectOf(rpcOf(exchange)?.error).code;
  return typeof code === "number" && Number.isInteger(code) ? code : undefined;
}

export function isToolError(exchange: Exchange): boolean {
  return resultOf(exchange)?.isError === true;
}

/** An answer in a few words. */
export function answerWords(exchange: Exchange): string {
  const code = errorCodeOf(exchange);
  let what = exchange.response.body === "" ? "no body" : "a body that is no JSON-RPC response";
  if (resultOf(exchange)) what = isToolError(exchange) ? "a tool error" : "a result";
  else if (code !== undefined) what = `the JSON-RPC error ${code}`;
  return `HTTP ${statusOf(exchange)} with ${what}`;
}

/** A request in a few words. */
export function askWords({ verb, method, params, token }: Ask): string {
  const named = params.name ?? params.uri ?? params.url;
  const what = typeof named === "string" ? `${method} ${JSON.stringify(named)}`.trim() : method;
  return `${verb} ${what} ${token ? `as ${token.recipe.caller}` : "without credentials"}`;
}

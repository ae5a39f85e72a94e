/** A request as bytes on either protocol revision. */
import type { Ask, JsonObject, Wire } from "./exchange.js";
import { objectOf } from "./exchange.js";

export const CLIENT_INFO = { name: "quenchz-prove", version: "0.1.0" };

export interface Bytes {
  readonly headers: readonly (readonly [string, string])[];
  readonly body: string;
  /** The JSON-RPC id, where the request has one. */
  readonly rpcId: number | null;
}

const COMMON: readonly (readonly [string, string])[] = [
  ["User-Agent", "quenchz-prove"],
  ["Accept-Encoding", "identity"],
];

/** A GET of a document that no credentials are needed for. */
export function documentBytes(): Bytes {
  return { headers: [...COMMON, ["Accept", "application/json"]], body: "", rpcId: null };
}

/** A POST of form fields (RFC 6749 appendix B); fields of one name stay in order. */
export function formBytes(fields: readonly (readonly [string, string])[]): Bytes {
  return {
    headers: [...COMMON, ["Content-Type", "application/x-www-form-urlencoded"], ["Accept", "application/json"]],
    body: new URLSearchParams(fields.map(([name, value]): [string, string] => [name, value])).toString(),
    rpcId: null,
  };
}

/**
 * A JSON-RPC message. Revision 2026-07-28 says its version, method and name in header fields and in `_meta`
 * (basic/transports/streamable-http); 2025-11-25 carries the id of a session that `initialize` opened.
 */
export function messageBytes({ method, params }: Ask, wire: Wire, rpcId: number, session: string | null): Bytes {
  const headers: [string, string][] = [
    ...COMMON.map(([name, value]): [string, string] => [name, value]),
    ["Content-Type", "application/json"],
    ["Accept", "application/json, text/event-stream"],
  ];
  let sent = params;
  if (method === "initialize") {
    sent = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: CLIENT_INFO, ...params };
  } else if (wire === "2026-07-28") {
    headers.push(["MCP-Protocol-Version", wire], ["Mcp-Method", method]);
    const name = params[method === "resources/read" ? "uri" : "name"];
    if (NAMED.includes(method) && typeof name === "string") headers.push(["Mcp-Name", fieldValue(name)]);
    const meta: JsonObject = {
      "io.modelcontextprotocol/protocolVersion": wire,
      "io.modelcontextprotocol/clientInfo": CLIENT_INFO,
      "io.modelcontextprotocol/clientCapabilities": {},
      ...objectOf(params._meta),
    };
    sent = { ...params, _meta: meta };
  } else {
    headers.push(["MCP-Protocol-Version", wire]);
    if (session !== null) headers.push(["Mcp-Session-Id", session]);
  }
  const answered = !method.startsWith("notifications/");
  const message: JsonObject = {
    jsonrpc: "2.0",
    ...(answered ? { id: rpcId } : {}),
    method,
    ...(Object.keys(sent).length > 0 ? { params: sent } : {}),
  };
  return { headers, body: JSON.stringify(message), rpcId: answered ? rpcId : null };
}

const NAMED = ["tools/call", "prompts/get", "resources/read"];

/** A name as a field value: itself where it is printable ASCII, else the Base64 form of the revision. */
export function fieldValue(text: string): string {
  if (/^(?! )[\x20-\x7e]*(?<! )$/.test(text) && !text.startsWith("=?base64?")) return text;
  return `=?base64?${Buffer.from(text, "utf8").toString("base64")}?=`;
}

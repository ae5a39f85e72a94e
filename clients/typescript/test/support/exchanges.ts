import { ask, type Exchange, type JsonObject } from "../../src/exchange.js";

export const JSON_FIELD: readonly [string, string] = ["Content-Type", "application/json"];

/** An exchange with a given answer. */
export function answered(
  body: string,
  {
    start = "HTTP/1.1 200 OK",
    headers = [JSON_FIELD],
    rpcId = 100_001,
    session,
  }: {
    start?: string;
    headers?: readonly (readonly [string, string])[];
    rpcId?: number | null;
    session?: string;
  } = {},
): Exchange {
  return {
    ask: ask("tools/call", null, { name: "x" }),
    role: "probe",
    request: {
      start: "POST /mcp HTTP/1.1",
      headers: session === undefined ? [] : [["Mcp-Session-Id", session]],
      body: "",
    },
    response: { start, headers, body },
    at: [0, 0.01, 0.02],
    rpcId,
  };
}

export const rpc = (members: JsonObject): string => JSON.stringify({ jsonrpc: "2.0", id: 100_001, ...members });

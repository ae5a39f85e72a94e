/** Servers that do nothing a client could rely on. None of them may be said to pass anything. */
import * as http from "node:http";
import * as net from "node:net";
import type { AddressInfo } from "node:net";

export interface Sentinel {
  readonly url: string;
  readonly close: () => Promise<void>;
}

async function listening(server: net.Server): Promise<Sentinel> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const sockets = new Set<net.Socket>();
  server.on("connection", (socket: net.Socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  return {
    url: `http://127.0.0.1:${port}/mcp`,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

type Answer = (body: string, request: http.IncomingMessage, response: http.ServerResponse) => void;

/** A server that answers every request in one way. */
export async function answering(answer: Answer): Promise<Sentinel> {
  return listening(
    http.createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", () => {
        answer(Buffer.concat(chunks).toString("utf8"), request, response);
      });
    }),
  );
}

const always =
  (status: number, body: string, headers: http.OutgoingHttpHeaders = {}) =>
  (): Promise<Sentinel> =>
    answering((_body, _request, response) => {
      response.writeHead(status, headers).end(body);
    });

const JSON_TYPE = { "Content-Type": "application/json" };

async function closedPort(): Promise<Sentinel> {
  const { url, close } = await listening(net.createServer());
  await close();
  return { url, close: () => Promise.resolve() };
}

const raw = (act: (socket: net.Socket) => void) => (): Promise<Sentinel> =>
  listening(
    net.createServer((socket) => {
      socket.on("error", () => undefined);
      act(socket);
    }),
  );

export const SENTINELS: Readonly<Record<string, () => Promise<Sentinel>>> = {
  "a closed port": closedPort,
  "a server that never answers": raw(() => undefined),
  "a server that hangs up": raw((socket) => socket.end()),
  "401 to everything": always(401, "", { "WWW-Authenticate": "Bearer" }),
  "403 to everything": always(403, ""),
  "404 to everything": always(404, ""),
  "429 to everything": always(429, "", { "Retry-After": "1" }),
  "500 to everything": always(500, "boom"),
  "503 with a JSON-RPC error to everything": always(
    503,
    '{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}',
    JSON_TYPE,
  ),
  "200 {} to everything": always(200, "{}", JSON_TYPE),
  "200 and an empty result to everything": always(200, '{"jsonrpc":"2.0","id":1,"result":{}}', JSON_TYPE),
  "200 and no body to everything": always(200, ""),
  "204 to everything": always(204, ""),
  "a redirect to itself": always(307, "", { Location: "/mcp" }),
  "bytes that are no HTTP": raw((socket) => socket.end(Buffer.from([0xff, 0x00, 0x13, 0x37, 0x0a, 0x0d]))),
  "a body that breaks off": raw((socket) =>
    socket.end("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"),
  ),
  "an echo": () =>
    answering((body, _request, response) => {
      response.writeHead(200, JSON_TYPE).end(body);
    }),
};

/** Listings such as a healthy server gives, so that a run gets past its beginning. */
export function listing(method: string): string | undefined {
  const tool = (name: string): object => ({
    name,
    inputSchema: { type: "object" },
    annotations: { readOnlyHint: true },
  });
  const results: Readonly<Record<string, object>> = {
    "server/discover": { protocolVersions: ["2026-07-28"], capabilities: {} },
    initialize: { protocolVersion: "2025-11-25", capabilities: {}, serverInfo: { name: "turncoat", version: "1" } },
    "tools/list": { tools: [tool("look")] },
    "prompts/list": { prompts: [] },
    "resources/list": { resources: [] },
    "resources/templates/list": { resourceTemplates: [] },
  };
  const result = results[method];
  return result && JSON.stringify({ jsonrpc: "2.0", id: 1, result });
}

/** Begins like a healthy server and gives every request after the first `healthy` ones one answer. */
export async function turncoat(healthy: number, status: number, body: string): Promise<Sentinel> {
  let requests = 0;
  return answering((text, _request, response) => {
    requests += 1;
    const { method = "" } = (text === "" ? {} : JSON.parse(text)) as { method?: string };
    const answer = requests <= healthy ? listing(method) : undefined;
    response.writeHead(answer === undefined ? status : 200, JSON_TYPE).end(answer ?? body);
  });
}

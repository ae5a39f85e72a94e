/**
 * One HTTP/1.1 exchange at a time over a kept connection, as evidence: `fetch` hides the case and the order of header
 * fields, so this is node:http, whose `rawHeaders` shows both.
 */
import * as http from "node:http";
import * as https from "node:https";
import { performance } from "node:perf_hooks";
import { eventData, type Message, parseJson, isObject } from "./exchange.js";

export interface Sent {
  readonly verb: string;
  readonly path: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: string;
}

/** An answer, or the reason why none came, with milliseconds of the performance clock. */
export interface Received {
  readonly message: Message;
  /** Why no whole answer came; empty when one did. */
  readonly failure: string;
  readonly at: readonly [sent: number, first: number, last: number];
}

export interface Transport {
  exchange(sent: Sent): Promise<Received>;
  close(): void;
}

/** Whether a URL stays on this machine. */
export function isLoopback({ hostname }: URL): boolean {
  return /^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname);
}

const SIZE_CAP = 16 * 1024 * 1024;
/** Milliseconds for which a stream that holds its answer may go on. */
const GRACE = 250;

/** Opens a transport to the origin of `url`; redirects are not followed. */
export function openTransport(url: URL, timeoutMs: number): Transport {
  const secure = url.protocol === "https:";
  const agent = new (secure ? https : http).Agent({ keepAlive: true, maxSockets: 1 });
  return {
    close: () => {
      agent.destroy();
    },
    exchange: async (sent) => {
      const received = await once(secure, agent, url, sent, timeoutMs);
      // The server closed a kept connection as the request was sent: it most probably never saw it.
      return received.failure.startsWith("ECONNRESET") && received.reused
        ? once(secure, agent, url, sent, timeoutMs)
        : received;
    },
  };
}

async function once(
  secure: boolean,
  agent: http.Agent,
  url: URL,
  { verb, path, headers, body }: Sent,
  timeoutMs: number,
): Promise<Received & { reused: boolean }> {
  return new Promise((resolve) => {
    const sentAt = performance.now();
    let firstAt = 0;
    let head: Message = { start: "", headers: [], body: "" };
    const chunks: Buffer[] = [];
    let size = 0;
    let done = false;
    let grace: NodeJS.Timeout | undefined;
    const content = Buffer.from(body, "utf8");
    const fields: Record<string, string> = Object.fromEntries(headers);
    if (verb === "POST") fields["Content-Length"] = String(content.length);
    const request = (secure ? https : http).request({
      agent,
      hostname: url.hostname.replace(/^\[|\]$/g, ""),
      port: url.port === "" ? (secure ? 443 : 80) : Number(url.port),
      method: verb,
      path,
      headers: fields,
    });
    const finish = (failure: string): void => {
      if (done) return;
      done = true;
      clearTimeout(limit);
      clearTimeout(grace);
      const last = performance.now();
      const message =
        failure === ""
          ? { ...head, body: Buffer.concat(chunks).toString("latin1") }
          : { start: "", headers: [], body: failure };
      resolve({ message, failure, at: [sentAt, firstAt || last, last], reused: request.reusedSocket });
      request.destroy();
    };
    const limit = setTimeout(() => {
      finish(`ETIMEDOUT: no whole answer within ${timeoutMs / 1000} s`);
    }, timeoutMs);
    request.on("error", (error: NodeJS.ErrnoException) => {
      finish(`${error.code ?? error.name}: ${error.message}`);
    });
    request.on("response", (response) => {
      firstAt = performance.now();
      const { rawHeaders } = response;
      const pairs: [string, string][] = [];
      for (let at = 0; at + 1 < rawHeaders.length; at += 2)
        pairs.push([rawHeaders[at] ?? "", rawHeaders[at + 1] ?? ""]);
      const start = `HTTP/${response.httpVersion} ${response.statusCode ?? 0} ${response.statusMessage ?? ""}`;
      head = { start, headers: pairs, body: "" };
      const streams = (response.headers["content-type"] ?? "").startsWith("text/event-stream");
      response.on("data", (chunk: Buffer) => {
        chunks.push(chunk);
        size += chunk.length;
        if (size > SIZE_CAP) finish(`EMSGSIZE: the answer is longer than ${SIZE_CAP} bytes`);
        else if (streams && !grace && holdsAnswer(Buffer.concat(chunks).toString("utf8"))) {
          grace = setTimeout(() => {
            finish("");
          }, GRACE);
        }
      });
      response.on("end", () => {
        finish("");
      });
      response.on("error", (error: NodeJS.ErrnoException) => {
        finish(`${error.code ?? error.name}: ${error.message}`);
      });
    });
    request.end(content);
  });
}

function holdsAnswer(text: string): boolean {
  return eventData(text).some((data) => {
    const message = parseJson(data);
    return isObject(message) && ("result" in message || "error" in message);
  });
}

/**
 * The official SDK's own OAuth client, from the challenge to an authorized call, on each wire. QUENCHZ_PYTHON names the
 * interpreter of the server and the issuer. With oidc-provider only after `make field`, which installs it.
 */
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Client, ClientCredentialsProvider, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { decodeJwt } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const ROOT = new URL("../../../../", import.meta.url);
const PYTHON = process.env.QUENCHZ_PYTHON ?? fileURLToPath(new URL(".venv/bin/python", ROOT));
const OIDC_PROVIDER = fileURLToPath(new URL("tests/field/oidc_provider/", ROOT));
const SECRET = randomUUID();
const WINDOW = { currency: "USD", from: "2026-03-30", to: "2026-04-10" };

interface Program {
  readonly url: string;
  readonly end: () => Promise<void>;
}

async function started(command: string, ...options: string[]): Promise<Program> {
  const env = { ...process.env, QUENCHZ_FIELD_SECRET_BROAD: SECRET };
  const child = spawn(command, options, { env, stdio: ["ignore", "pipe", "ignore"] });
  const ended = once(child, "exit");
  for await (const line of createInterface(child.stdout)) {
    const ready = / ready: (http.+)$/.exec(line)?.[1];
    if (ready === undefined) continue;
    return {
      url: ready,
      end: async () => {
        child.kill("SIGTERM");
        await ended;
      },
    };
  }
  throw new Error(`${options.join(" ")} ended before it was ready`);
}

/** A port that was free a moment ago: the resource is the URL that is dialled, so it must be known beforehand. */
async function freePort(): Promise<number> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, "close");
  return port;
}

const SERVERS = [
  {
    name: "the suite's issuer",
    authentication: "none",
    absent: false,
    start: () => started(PYTHON, "-m", "quenchz", "issuer", "--port", "0"),
  },
  {
    name: "oidc-provider",
    authentication: "client_secret_basic",
    // Skipped where nobody installed it (`make field` does), and never in CI: there it fails by not starting.
    absent: !existsSync(`${OIDC_PROVIDER}node_modules`) && process.env.CI === undefined,
    start: (resource: string) =>
      started("node", `${OIDC_PROVIDER}server.js`, "--resource", resource, "--client", "broad"),
  },
];

describe.each(SERVERS)("with $name", ({ authentication, absent, start }) => {
  let issuer: Program | undefined;
  let server: Program | undefined;
  let url: string;
  beforeAll(async () => {
    if (absent) return;
    const port = await freePort();
    url = `http://127.0.0.1:${port}/mcp`;
    issuer = await start(url);
    const options = ["--port", `${port}`, "--resource", url, "--trust-issuer", issuer.url];
    server = await started(PYTHON, "-m", "quenchz_reference", ...options);
    expect(server.url).toBe(url);
  });
  afterAll(async () => {
    await server?.end();
    await issuer?.end();
  });

  test.skipIf(absent).each(["2026-07-28", "2025-11-25"])("the official client is served on %s", async (wire) => {
    const steps: string[] = [];
    let form = new URLSearchParams();
    let sent = "";
    const walking: typeof fetch = async (address, init) => {
      const answer = await fetch(address, init);
      const headers = new Headers(init?.headers);
      const scheme = headers.get("authorization")?.split(" ")[0] ?? "none";
      const path = new URL(address instanceof Request ? address.url : address).pathname;
      steps.push(`${init?.method ?? "GET"} ${path} ${scheme} ${answer.status}`);
      if (path === "/token") form = new URLSearchParams(init?.body as URLSearchParams);
      if (scheme === "Bearer") sent = headers.get("authorization") ?? "";
      return answer;
    };
    const authProvider = new ClientCredentialsProvider({
      clientId: "broad",
      clientSecret: SECRET,
      expectedIssuer: issuer?.url ?? "",
    });
    const versionNegotiation = { mode: wire === "2026-07-28" ? { pin: wire } : ("legacy" as const) };
    const client = new Client({ name: "authorized", version: "1" }, { versionNegotiation });
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { authProvider, fetch: walking }));
    const { tools } = await client.listTools();
    const answer = await client.callTool({ name: "exchange_rates", arguments: WINDOW });
    const spoken = client.getNegotiatedProtocolVersion();
    await client.close();

    const basic = authentication === "client_secret_basic" ? "Basic" : "none";
    const found = steps.indexOf(`POST /token ${basic} 200`);
    expect(steps[0]).toBe("POST /mcp none 401");
    expect(steps.slice(1, found)).toEqual([
      "GET /.well-known/oauth-protected-resource/mcp none 200",
      "GET /.well-known/oauth-authorization-server none 200",
    ]);
    expect(steps.slice(found + 1).filter((step) => step.startsWith("POST /mcp"))).toSatisfy(
      (rest: string[]) => rest.length > 1 && rest.every((step) => /^POST \/mcp Bearer 20[02]$/.test(step)),
    );
    expect([form.get("grant_type"), form.getAll("resource")]).toEqual(["client_credentials", [url]]);
    expect(decodeJwt(sent.slice("Bearer ".length))).toMatchObject({ iss: issuer?.url, sub: "broad", aud: url });
    expect(spoken).toBe(wire);
    expect(tools.map(({ name }) => name)).toEqual(["exchange_rates", "latest_rate"]);
    expect(answer.structuredContent).toMatchObject({ coverage: { delivered_observations: 8 } });
  });
});

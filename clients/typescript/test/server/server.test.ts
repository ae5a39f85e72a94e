/** The reference server and the issuer as processes, on each wire. QUENCHZ_PYTHON names their interpreter. */
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Proof, prove, reportText, type Wire } from "../../src/index.js";
import { npx, unpack } from "../support/packed.js";

const PYTHON = process.env.QUENCHZ_PYTHON ?? fileURLToPath(new URL("../../../../.venv/bin/python", import.meta.url));

let folder: string;
let server: Program | undefined;
let issuer: Program | undefined;
let url: string;
let tokens: string;

interface Program {
  readonly url: string;
  readonly end: () => Promise<void>;
}

/** Starts a program of the Python side and waits for the line that says where it listens. */
async function started(...options: string[]): Promise<Program> {
  const child = spawn(PYTHON, ["-m", ...options], { stdio: ["ignore", "pipe", "ignore"] });
  const ended = new Promise<void>((resolve) =>
    child.once("exit", () => {
      resolve();
    }),
  );
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

beforeAll(async () => {
  if (!existsSync(PYTHON)) throw new Error(`${PYTHON} does not exist; set QUENCHZ_PYTHON to the server's interpreter`);
  folder = mkdtempSync(join(tmpdir(), "quenchz-"));
  tokens = join(folder, "tokens.json");
  issuer = await started("quenchz", "issuer", "--port", "0");
  const options = ["--port", "0", "--window", "1", "--tokens-file", tokens, "--trust-issuer", issuer.url];
  server = await started("quenchz_reference", ...options);
  url = server.url;
});

afterAll(async () => {
  await server?.end();
  await issuer?.end();
  rmSync(folder, { recursive: true });
});

const failed = ({ checks, properties }: Proof): string[] =>
  [...checks, ...properties]
    .filter(({ verdict }) => verdict !== "pass")
    .map(({ id, verdict, saw }) => `${id} ${verdict}: ${saw}`);

test.each<Wire>(["2026-07-28", "2025-11-25"])("the reference server passes 16 of 16 on %s", async (protocol) => {
  const history = join(folder, `${protocol}.jsonl`);
  const options = { protocol, history, seed: 20261130, issuer: issuer?.url ?? "" };
  const proof = await prove(url, tokens, options);
  expect(failed(proof)).toEqual([]);
  expect(proof.exit).toBe(0);
  expect(proof.run.protocol).toBe(protocol);
  expect(reportText(proof)).toContain("16 of 16 checks pass, 5 of 5 properties");
  const text = readFileSync(history, "utf8");
  expect(text).toContain(`"wire":"${protocol}"`);
  // The first hidden tool is full_history: its letters moved on by five places name the tool that never existed.
  expect(text).toContain('"name":"kzqq_mnxytwd"');
});

test("npx quenchz-prove proves it as well, and speaks the newer revision where none is named", async () => {
  const report = join(folder, "report.json");
  const options = [url, "--tokens-file", tokens, "--checks-only", "--json", report];
  const { code, out, err } = await npx(unpack(join(folder, "packed")), ...options);
  expect(out).toContain("16 of 16 checks pass, 0 of 0 properties");
  expect(out).toContain("revision 2026-07-28");
  expect(err).toMatch(/^plan: at most \d+ requests/);
  expect(code).toBe(0);
  expect(JSON.parse(readFileSync(report, "utf8"))).toMatchObject({ exit: 0 });
});

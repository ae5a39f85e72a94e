/** The reference server as a process, on each wire. QUENCHZ_PYTHON names its interpreter. */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Proof, prove, reportText, type Wire } from "../../src/index.js";

const PYTHON = process.env.QUENCHZ_PYTHON ?? fileURLToPath(new URL("../../../../.venv/bin/python", import.meta.url));
const READY = "quenchz reference ready: ";

let folder: string;
let server: ChildProcess;
let url: string;

beforeAll(async () => {
  if (!existsSync(PYTHON)) throw new Error(`${PYTHON} does not exist; set QUENCHZ_PYTHON to the server's interpreter`);
  folder = mkdtempSync(join(tmpdir(), "quenchz-"));
  const options = ["--port", "0", "--window", "1", "--tokens-file", join(folder, "tokens.json")];
  server = spawn(PYTHON, ["-m", "quenchz_reference", ...options], { stdio: ["ignore", "pipe", "inherit"] });
  if (!server.stdout) throw new Error("the server has no standard output");
  for await (const line of createInterface(server.stdout)) {
    if (line.startsWith(READY)) {
      url = line.slice(READY.length);
      return;
    }
  }
  throw new Error("the server ended before it was ready");
});

afterAll(async () => {
  const ended = new Promise((resolve) => server.once("exit", resolve));
  server.kill("SIGTERM");
  await ended;
  rmSync(folder, { recursive: true });
});

const failed = ({ checks, properties }: Proof): string[] =>
  [...checks, ...properties]
    .filter(({ verdict }) => verdict !== "pass")
    .map(({ id, verdict, saw }) => `${id} ${verdict}: ${saw}`);

test.each<Wire>(["2026-07-28", "2025-11-25"])("the reference server passes 16 of 16 on %s", async (protocol) => {
  const history = join(folder, `${protocol}.jsonl`);
  const proof = await prove(url, join(folder, "tokens.json"), { protocol, history, seed: 20261130 });
  expect(failed(proof)).toEqual([]);
  expect(proof.exit).toBe(0);
  expect(proof.run.protocol).toBe(protocol);
  expect(reportText(proof)).toContain("16 of 16 checks pass, 4 of 4 properties");
  expect(readFileSync(history, "utf8")).toContain(`"wire":"${protocol}"`);
});

test("with auto the newer revision is spoken", async () => {
  const proof = await prove(url, join(folder, "tokens.json"), { checksOnly: true });
  expect(failed(proof)).toEqual([]);
  expect(proof.run.protocol).toBe("2026-07-28");
});

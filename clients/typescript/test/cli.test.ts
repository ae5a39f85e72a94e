import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { main } from "../src/cli.js";
import { SENTINELS, turncoat } from "./support/sentinels.js";
import { jwt, tokensFile } from "./support/tokens.js";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "quenchz-"));
});
afterAll(() => {
  rmSync(folder, { recursive: true });
});

function written(name: string, content: unknown): string {
  const path = join(folder, name);
  writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
  return path;
}

async function run(...argv: string[]): Promise<{ code: number; out: string; err: string }> {
  const [out, err]: [string[], string[]] = [[], []];
  const code = await main(argv, { out: (text) => out.push(text), err: (text) => err.push(text) });
  return { code, out: out.join("\n"), err: err.join("\n") };
}

const URL = "http://127.0.0.1:1/mcp";
const FILE = tokensFile(URL);

test("--help shows the options and the exit codes", async () => {
  const { code, out, err } = await run("--help");
  expect([code, err]).toEqual([0, ""]);
  expect(out).toContain("usage: quenchz-prove URL --tokens-file FILE");
  expect(out).toContain("Proves 16 claims");
  expect(out).toContain("exit codes:");
});

describe("a first run that cannot begin says why in one sentence and exits with 2", () => {
  const expired = { ...FILE.callers.broad, token: jwt({ exp: 1_000_000_000 }) };
  test.each<[string, () => string[], RegExp]>([
    ["no URL", () => ["--tokens-file", "x"], /give one URL/],
    ["two URLs", () => [URL, URL], /give one URL/],
    ["no tokens file", () => [URL], /give --tokens-file FILE/],
    ["an unknown option", () => [URL, "--fast"], /Unknown option '--fast'; --help shows the options/],
    ["no number", () => [URL, "--tokens-file", "x", "--seed", "x"], /--seed is x; expected a whole number/],
    [
      "no revision",
      () => [URL, "--tokens-file", "x", "--protocol", "1"],
      /--protocol is 1; expected one of auto, 2026-07-28, 2025-11-25/,
    ],
    ["a missing file", () => [URL, "--tokens-file", join(folder, "none.json")], /none\.json does not exist/],
    ["a folder", () => [URL, "--tokens-file", folder], /cannot be read \(EISDIR\)/],
    ["no JSON", () => [URL, "--tokens-file", written("a.json", "{")], /a\.json is not JSON/],
    ["other JSON", () => [URL, "--tokens-file", written("b.json", {})], /b\.json is no tokens file/],
    [
      "an expired token",
      () => [URL, "--tokens-file", written("c.json", { ...FILE, callers: { ...FILE.callers, broad: expired } })],
      /The token of broad expired at 2001/,
    ],
    [
      "no URL that can be dialled",
      () => ["ftp://x", "--tokens-file", written("d.json", FILE)],
      /is no http or https URL/,
    ],
    [
      "somebody else's server",
      () => ["https://rates.invalid/mcp", "--tokens-file", written("e.json", FILE)],
      /is not this machine/,
    ],
    [
      "a history that cannot be written",
      () => [URL, "--tokens-file", written("f.json", FILE), "--history", join(folder, "no", "h")],
      /cannot be written \(ENOENT\)/,
    ],
  ])("%s", async (_what, argv, sentence) => {
    const { code, out, err } = await run(...argv());
    expect([code, out]).toEqual([2, ""]);
    expect(err).toMatch(sentence);
    expect(err).toMatch(/^quenchz-prove: [^\n]+\.$/);
  });
});

test("a run that is interrupted says so, and what it could not establish", async () => {
  const server = await turncoat(9, 500, "");
  const interrupt = new AbortController();
  const [out, err]: [string[], string[]] = [[], []];
  const streams = {
    out: (text: string) => out.push(text),
    err: (text: string) => {
      err.push(text);
      if (text.startsWith("P3")) interrupt.abort();
    },
  };
  const code = await main([server.url, "--tokens-file", written("h.json", FILE)], streams, interrupt.signal);
  await server.close();
  expect(code).toBe(3);
  expect(err.at(-1)).toMatch(/^P3 /);
  expect(out.join("\n")).toContain("interrupted: what is known so far");
});

test("a closed port is said to be closed, and the exit code is 3", async () => {
  const { url } = (await SENTINELS["a closed port"]?.()) ?? { url: "" };
  const { code, out } = await run(url, "--tokens-file", written("g.json", FILE), "--quiet", "--seed", "9");
  expect(code).toBe(3);
  expect(out).toMatch(/^No verdict is possible: [^\n]*ECONNREFUSED[^\n]*\.$/m);
  expect(out.split("\n").filter((line) => line !== "")).toHaveLength(3);
  expect(out).toContain("0 of 16 checks pass");
  expect(out).toContain("repeat with --seed 9");
});

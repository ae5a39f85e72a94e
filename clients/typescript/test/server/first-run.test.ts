/** A person's first run, of the packed package and through npx. No server is needed. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { npx, unpack } from "../support/packed.js";
import { SENTINELS } from "../support/sentinels.js";
import { jwt, tokensFile } from "../support/tokens.js";

let folder: string;
let installed: string;
let closed: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "quenchz-"));
  installed = unpack(folder);
  closed = (await SENTINELS["a closed port"]?.())?.url ?? "";
});
afterAll(() => {
  rmSync(folder, { recursive: true });
});

function written(name: string, content: unknown): string {
  const path = join(folder, name);
  writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
  return path;
}

test("npx quenchz-prove --help shows the usage, every option and the exit codes, and ends with 0", async () => {
  const { code, out, err } = await npx(installed, "--help");
  expect([code, err]).toEqual([0, ""]);
  expect(out).toMatch(/^usage: quenchz-prove URL --tokens-file FILE \[options\]$/m);
  for (const option of ["--protocol", "--issuer URL", "--json", "--history", "--quiet"]) expect(out).toContain(option);
  expect(out).toMatch(/^exit codes: 0 everything required passed;/m);
});

test("a closed port is said to be closed in one sentence, and the run ends with 3", async () => {
  const file = written("good.json", tokensFile(closed));
  const { code, out, err } = await npx(installed, closed, "--tokens-file", file, "--quiet");
  expect([code, err]).toEqual([3, ""]);
  expect(out).toMatch(/^No verdict is possible: no answer to [^\n]*\(ECONNREFUSED: [^\n]*\.$/m);
  expect(out).toContain("0 of 16 checks pass");
});

describe("what no run can begin with is said in one sentence, and the program ends with 2", () => {
  test.each<[string, () => string, RegExp]>([
    ["a file that is not there", () => join(folder, "none.json"), /none\.json does not exist; `quenchz serve/],
    ["a file of something else", () => written("b.json", { tokens: [] }), /b\.json is no tokens file: /],
    ["text that is no JSON", () => written("c.json", "{"), /c\.json is not JSON; expected a tokens file/],
    [
      "a token that has expired",
      () => {
        const file = tokensFile(closed);
        const broad = { ...file.callers.broad, token: jwt({ exp: 1_000_000_000 }) };
        return written("d.json", { ...file, callers: { ...file.callers, broad } });
      },
      /The token of broad expired at 2001-09-09T01:46:40\.000Z; write a fresh tokens file and run again\.$/m,
    ],
  ])("%s", async (_what, file, sentence) => {
    const { code, out, err } = await npx(installed, closed, "--tokens-file", file());
    expect([code, out]).toEqual([2, ""]);
    expect(err).toMatch(/^quenchz-prove: [^\n]+\.\n$/);
    expect(err).toMatch(sentence);
  });
});

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { CHECKS, PROPERTIES, WITH_ISSUER } from "../src/checks/index.js";
import { REQUIREMENTS } from "../src/requirements.js";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const SOURCES = ["src", "test"].flatMap((folder) =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => join(ROOT, folder, name)),
);

function importsOf(path: string): string[] {
  const text = readFileSync(path, "utf8");
  const [statements, calls] = [/\bfrom "([^"]+)";$/gm, /\bimport\("([^"]+)"\)/g];
  return [...text.matchAll(statements), ...text.matchAll(calls)].map(([, name]) => name ?? "");
}

test("there are sources to look at", () => {
  expect(SOURCES.length).toBeGreaterThan(20);
});

test.each(SOURCES.map((path) => relative(ROOT, path)))("%s imports nothing from outside this package", (name) => {
  const path = join(ROOT, name);
  const { dependencies, devDependencies } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as Record<
    "dependencies" | "devDependencies",
    Record<string, string>
  >;
  const known = Object.keys(name.startsWith("src") ? dependencies : { ...dependencies, ...devDependencies });
  for (const imported of importsOf(path)) {
    if (imported.startsWith(".")) expect(relative(ROOT, join(dirname(path), imported))).not.toMatch(/^\.\./);
    else if (!imported.startsWith("node:"))
      expect(
        known.some((one) => imported === one || imported.startsWith(`${one}/`)),
        imported,
      ).toBe(true);
  }
});

test("the imports are found at all", () => {
  expect(importsOf(join(ROOT, "src", "prove.ts"))).toContain("./checks/index.js");
});

test("the lock file names no registry", () => {
  expect(readFileSync(join(ROOT, "package-lock.json"), "utf8")).not.toContain('"resolved"');
});

describe("the checks", () => {
  test("are sixteen, P1 to P16 in order", () => {
    expect(CHECKS.map(({ id }) => id)).toEqual(Array.from({ length: 16 }, (_, at) => `P${at + 1}`));
  });

  test("and the properties have claims that are sentences, each its own", () => {
    const claims = [...CHECKS, ...PROPERTIES, WITH_ISSUER].map(({ claim }) => claim);
    expect(new Set(claims).size).toBe(claims.length);
    expect(claims.filter((claim) => !/^[A-Z].*\.$/.test(claim) || /should/i.test(claim))).toEqual([]);
  });

  test("and the properties have ids that stay, X1 to X4 and X5 with an issuer", () => {
    expect([...PROPERTIES, WITH_ISSUER].map(({ id }) => id)).toEqual(["X1", "X2", "X3", "X4", "X5"]);
  });

  test("cover every requirement that is described, and no other", () => {
    const named = new Set([...CHECKS, ...PROPERTIES].flatMap(({ requirements }) => requirements));
    expect([...named].sort()).toEqual(Object.keys(REQUIREMENTS).sort());
  });
});

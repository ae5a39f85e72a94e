import { expect, test } from "vitest";
import { CHECKS, PROPERTIES } from "../src/checks/index.js";
import { checkedUrl, levelOf } from "../src/prove.js";
import type { Made } from "../src/runner.js";
import { UsageError } from "../src/tokens-file.js";

test.each(["http://127.0.0.1:1/mcp", "http://127.8.0.1/", "http://localhost/mcp", "https://[::1]:9/mcp"])(
  "%s is this machine",
  (url) => {
    expect(checkedUrl(url, false).href).toBe(new URL(url).href);
  },
);

test.each(["http://127.0.0.1.example/", "https://rates.invalid/mcp", "http://0.0.0.0/", "http://10.0.0.1/"])(
  "%s is not, and its owner has to agree",
  (url) => {
    expect(() => checkedUrl(url, false)).toThrow(UsageError);
    expect(checkedUrl(url, true).href).toBe(new URL(url).href);
  },
);

test("a check counts at the level of its requirements, or at the most binding one that was violated", () => {
  const levels = Object.fromEntries([...CHECKS, ...PROPERTIES].map((check) => [check.id, levelOf(check, [])]));
  expect(levels).toMatchObject({ P1: "must", P2: "must", P3: "quenchz", P6: "must", P10: "quenchz", P16: "must" });
  const made = [{ check: "P6", outcome: "violated", level: "should" }] as Made[];
  expect(CHECKS.filter(({ id }) => id === "P6").map((check) => levelOf(check, made))).toEqual(["should"]);
});

import { afterEach, describe, expect, test } from "vitest";
import { type Proof, prove } from "../src/index.js";
import { type Sentinel, SENTINELS, turncoat } from "./support/sentinels.js";
import { tokensFile } from "./support/tokens.js";

let sentinel: Sentinel | undefined;
afterEach(async () => {
  await sentinel?.close();
  sentinel = undefined;
});

async function proofOf(started: Sentinel): Promise<Proof> {
  sentinel = started;
  return prove(started.url, tokensFile(started.url), { timeoutSeconds: 0.25, seed: 1 });
}

function passes({ checks, properties, findings }: Proof): unknown[] {
  return [
    ...[...checks, ...properties].filter(({ verdict }) => verdict === "pass").map(({ id }) => id),
    ...findings.filter(({ verdict }) => verdict === "pass").map(({ id }) => id),
  ];
}

describe("a server that does nothing passes nothing and establishes nothing", () => {
  test.each(Object.entries(SENTINELS))("%s", async (_name, start) => {
    const proof = await proofOf(await start());
    expect(passes(proof)).toEqual([]);
    expect(proof.exit).toBe(3);
    expect(proof.run.reached).toBe(false);
    expect([...proof.checks, ...proof.properties].map(({ verdict }) => verdict)).toEqual(Array(20).fill("untestable"));
  });
});

describe("a server that turns after its listings passes nothing", () => {
  // Nine requests: the handshake and four listings of each of two callers.
  test.each([
    [500, "boom"],
    [403, ""],
    [200, "{}"],
    [404, ""],
  ])("%i %j", async (status, body) => {
    const proof = await proofOf(await turncoat(9, status, body));
    expect(proof.run.requests).toBeGreaterThan(9);
    expect(passes(proof)).toEqual([]);
    expect(proof.exit).toBe(3);
  });
});

test("a server that answers 401 from then on is not said to refuse bad tokens", async () => {
  const proof = await proofOf(await turncoat(9, 401, ""));
  expect(passes(proof)).toEqual([]);
  expect(proof.checks.find(({ id }) => id === "P2")?.saw).toContain("the control failed");
});

test("a server that stops answering is asked a handful of requests more, not all", async () => {
  const started = await turncoat(9, 500, "");
  const url = started.url;
  await started.close();
  const proof = await prove(url, tokensFile(url), { timeoutSeconds: 0.25, seed: 1 });
  expect(proof.run.requests).toBeLessThanOrEqual(4);
});

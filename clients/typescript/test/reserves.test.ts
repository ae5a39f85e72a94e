import { describe, expect, test } from "vitest";
import { Budget, SORTS, type Sort } from "../src/checks/reserves.js";
import { HistoryWriter } from "../src/history.js";
import { type Made, Runner } from "../src/runner.js";
import { Subject } from "../src/subject.js";
import { castOf, type TokensFile } from "../src/tokens-file.js";
import type { Sent, Transport } from "../src/transport.js";
import { NOW, RESOURCE, tokensFile } from "./support/tokens.js";

/** The file's budget of 4 for the narrow caller, kept by the trailing window; `price` says what a call costs. */
class Ledger implements Transport {
  readonly asked: string[] = [];
  readonly #file: TokensFile;
  readonly #price: (name: string) => number;
  #taken: number[] = [];

  constructor(file: TokensFile, price: (name: string) => number) {
    this.#file = file;
    this.#price = price;
  }

  exchange({ body }: Sent): ReturnType<Transport["exchange"]> {
    const { params = {} } = JSON.parse(body) as { params?: { name?: string; uri?: string } };
    const name = params.name ?? params.uri ?? "";
    this.asked.push(name);
    const now = performance.now();
    this.#taken = this.#taken.filter((at) => now - at < this.#file.budget.window_seconds * 1000);
    const price = this.#price(name);
    const admitted = this.#taken.length + price <= 4;
    if (admitted) this.#taken.push(...Array<number>(price).fill(now));
    const answer = name === "look" ? '"result":{"content":[]}' : '"error":{"code":-32602,"message":"no"}';
    const message = {
      start: admitted ? "HTTP/1.1 200 OK" : "HTTP/1.1 429 Too Many Requests",
      headers: [["Content-Type", "application/json"]] as const,
      body: admitted ? `{"jsonrpc":"2.0","id":1,${answer}}` : "",
    };
    return Promise.resolve({ message, failure: "", at: [now, now, now] as const });
  }

  close(): void {
    this.#taken = [];
  }
}

async function priced(
  sort: Sort,
  price: (name: string) => number,
): Promise<{ made: readonly Made[]; asked: string[] }> {
  const file = tokensFile("http://127.0.0.1:1/mcp", {
    hidden: { tools: ["destroy", "zap"], prompts: ["audit"], resources: [], resource_templates: [] },
  });
  const history = new HistoryWriter(undefined, RESOURCE);
  const ledger = new Ledger(file, price);
  const subject = new Subject(new URL(file.url), file, castOf(file, NOW), ledger, history);
  subject.catalogue.set("broad", new Map([["tools", new Map([["ijxywtd", {}]])]]));
  const runner = new Runner(subject, history);
  await runner.table("P13", [new Budget(subject).price(sort)]);
  return { made: runner.made, asked: ledger.asked };
}

describe("the price of a call", () => {
  test.each(Object.keys(SORTS) as Sort[])("of the sort %s is one unit where every call costs one", async (sort) => {
    const { made } = await priced(sort, () => 1);
    expect(made.map(({ outcome, arguments: row }) => [outcome, row])).toEqual([
      ["held", { "!": "What", name: sort.toUpperCase() }],
    ]);
  });

  test("of a tool that never existed is asked for under the name that every client computes", async () => {
    // "destroy" moved on by five places is listed, so it is moved on by six.
    const { asked } = await priced("nonexistent", () => 1);
    expect([...new Set(asked)]).toEqual(["look", "jkyzxue"]);
  });

  test("of a tool that never existed is found to be another where it is free, or two units", async () => {
    for (const [price, signature] of [
      [0, "other calls are cheaper"],
      [2, "other calls are dearer"],
    ] as const) {
      const { made } = await priced("nonexistent", (name) => (name === "jkyzxue" ? price : 1));
      expect(made.map(({ phase, violation }) => [phase, violation?.signature])).toEqual([
        ["table", signature],
        ["confirm", signature],
      ]);
    }
  });
});

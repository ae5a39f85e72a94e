import { describe, expect, test } from "vitest";
import { BARE, difference, learnMask } from "../src/mask.js";
import { answered, JSON_FIELD } from "./support/exchanges.js";

const headed = (...more: (readonly [string, string])[]): { headers: (readonly [string, string])[] } => ({
  headers: [JSON_FIELD, ...more],
});

describe("two answers are compared byte for byte", () => {
  test("and the same bytes do not differ", () => {
    expect(difference(answered("{}"), answered("{}"), BARE)).toBeUndefined();
  });

  test.each([
    ["the status line", answered("{}"), answered("{}", { start: "HTTP/1.1 200 Okay" })],
    ["header 1", answered("{}"), answered("{}", { headers: [["content-type", "application/json"]] })],
    ["header 2", answered("{}"), answered("{}", headed(["X", "1"]))],
    ["the body", answered('{"a":1}'), answered('{"a":2}')],
    ["the body", answered("{}"), answered("{} ")],
    ["the body", answered('{"a":1,"b":2}'), answered('{"b":2,"a":1}')],
  ])("and %s shows", (part, left, right) => {
    expect(difference(left, right, BARE)?.part).toBe(part);
  });

  test("and Date, the request's own id and session do not show, while other numbers do", () => {
    const one = answered('{"id": 100001, "n": 100001}', {
      ...headed(["Date", "a"], ["Mcp-Session-Id", "s"]),
      session: "s",
    });
    const other = answered('{"id": 100002, "n": 100001}', {
      ...headed(["Date", "b"], ["Mcp-Session-Id", "t"]),
      session: "t",
      rpcId: 100_002,
    });
    expect(difference(one, other, BARE)).toBeUndefined();
    const counting = answered('{"id": 100002, "n": 100002}', {
      ...headed(["Date", "b"], ["Mcp-Session-Id", "t"]),
      session: "t",
      rpcId: 100_002,
    });
    expect(difference(one, counting, BARE)?.part).toBe("the body");
  });

  test("and each answer may echo its own name, but not the other's", () => {
    const [left, right] = [answered("no tool abc"), answered("no tool xyz")];
    expect(difference(left, right, BARE, ["abc", "xyz"])).toBeUndefined();
    expect(difference(left, right, BARE, ["xyz", "abc"])?.part).toBe("the body");
    expect(difference(left, right, BARE)?.part).toBe("the body");
  });
});

describe("a mask is learned from pairs of invented names", () => {
  const pair = (left: ReturnType<typeof answered>, right: ReturnType<typeof answered>) => ({
    left,
    right,
    names: ["abc", "xyz"] as const,
  });

  test("and holds the fields that vary and those that come and go", () => {
    const { mask, unmaskable } = learnMask([
      pair(answered("{}", headed(["X-Request", "1"])), answered("{}", headed(["X-Request", "2"]))),
      pair(answered("{}", headed(["Keep-Alive", "1"])), answered("{}")),
    ]);
    expect(mask).toEqual({ values: ["date", "x-request"], presence: ["keep-alive"] });
    expect(unmaskable).toBeUndefined();
  });

  test.each([
    ["a status", answered("{}"), answered("{}", { start: "HTTP/1.1 404 Not Found" })],
    ["a body", answered('{"nonce":1}'), answered('{"nonce":2}')],
    ["the case of a field's name", answered("{}", headed(["A", "1"])), answered("{}", headed(["a", "1"]))],
  ])("and never hides %s", (_what, left, right) => {
    expect(learnMask([pair(left, right)]).unmaskable).toBeDefined();
  });
});

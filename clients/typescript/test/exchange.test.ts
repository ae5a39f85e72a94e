import { describe, expect, test } from "vitest";
import { answerWords, askWords, ask, errorCodeOf, resultOf, statusOf } from "../src/exchange.js";
import { fieldValue, messageBytes } from "../src/wire.js";
import { answered, rpc } from "./support/exchanges.js";

const STREAM = { headers: [["content-type", "text/event-stream; charset=utf-8"] as const] };

describe("an answer is read", () => {
  test("from JSON", () => {
    expect(resultOf(answered(rpc({ result: { a: 1 } })))).toEqual({ a: 1 });
    expect(errorCodeOf(answered(rpc({ error: { code: -32602, message: "no" } })))).toBe(-32602);
  });

  test("from the last response of an event stream, past comments, ids and notifications", () => {
    const body = [
      ": hello",
      "id: 7",
      "",
      'data: {"method":"notifications/x"}',
      "",
      `data: ${rpc({ result: { b: 2 } })}`,
      "",
      "",
    ];
    expect(resultOf(answered(body.join("\n"), STREAM))).toEqual({ b: 2 });
    expect(resultOf(answered(body.join("\r\n"), STREAM))).toEqual({ b: 2 });
  });

  test("only as a result where the status is 200", () => {
    expect(resultOf(answered(rpc({ result: {} }), { start: "HTTP/1.1 201 Created" }))).toBeUndefined();
    expect(resultOf(answered(rpc({ result: [] })))).toBeUndefined();
  });

  test.each([
    ["HTTP/1.1 200 OK", 200],
    ["HTTP/1.1 429", 429],
    ["", 0],
    ["garbage", 0],
  ])("with the status of its first line: %j", (start, status) => {
    expect(statusOf(answered("", { start }))).toBe(status);
  });

  test.each([
    ["", "HTTP 200 with no body"],
    ["<html>", "HTTP 200 with a body that is no JSON-RPC response"],
    [rpc({ result: { isError: true } }), "HTTP 200 with a tool error"],
    [rpc({ error: { code: 1.5 } }), "HTTP 200 with a body that is no JSON-RPC response"],
  ])("in words: %j", (body, words) => {
    expect(answerWords(answered(body))).toBe(words);
  });
});

describe("a request is written", () => {
  const call = ask("tools/call", null, { name: "look", arguments: {} });

  test("on 2026-07-28 with its method and name in fields and its version in _meta", () => {
    const { headers, body, rpcId } = messageBytes(call, "2026-07-28", 100_007, null);
    expect(headers).toContainEqual(["Mcp-Method", "tools/call"]);
    expect(headers).toContainEqual(["Mcp-Name", "look"]);
    expect(rpcId).toBe(100_007);
    const sent = JSON.parse(body) as { params: { _meta: Record<string, unknown> } };
    expect(sent.params._meta["io.modelcontextprotocol/protocolVersion"]).toBe("2026-07-28");
  });

  test("on 2025-11-25 with its session and no name", () => {
    const { headers, body } = messageBytes(call, "2025-11-25", 100_007, "s");
    expect(headers).toContainEqual(["Mcp-Session-Id", "s"]);
    expect(headers.map(([name]) => name)).not.toContain("Mcp-Name");
    expect(body).not.toContain("_meta");
  });

  test("without an id where it is a notification", () => {
    const { body, rpcId } = messageBytes(ask("notifications/initialized", null), "2025-11-25", 100_007, null);
    expect(rpcId).toBeNull();
    expect(JSON.parse(body)).not.toHaveProperty("id");
  });

  test.each([
    ["plain", "plain"],
    ["", ""],
    [" led by a blank", "=?base64?IGxlZCBieSBhIGJsYW5r?="],
    ["größer", "=?base64?Z3LDtsOfZXI=?="],
    ["=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="],
  ])("with the name %j as a field value", (name, value) => {
    expect(fieldValue(name)).toBe(value);
  });

  test("in words", () => {
    expect(askWords(call)).toBe('POST tools/call "look" without credentials');
  });
});

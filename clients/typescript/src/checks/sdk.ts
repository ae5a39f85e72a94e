/** Check 16: a real client, the official SDK's own, lists and calls. */
import { Client, SdkHttpError, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { answerWords, ask, resultOf } from "../exchange.js";
import { ControlFailed, NotDeclared, Violation, Void } from "../outcomes.js";
import type { Example } from "../runner.js";
import type { Subject } from "../subject.js";
import { CLIENT_INFO } from "../wire.js";
import { atPointer, KNOWN } from "./certificates.js";
import type { Json } from "../exchange.js";

/** P16. The raw listing in the same example is the control: only then is a failure the SDK's or the server's. */
export function sdkListsAndCalls(subject: Subject, timeoutMs: number): Example {
  return {
    requirement: undefined,
    row: "the official SDK",
    arguments: null,
    units: 2,
    make: async () => {
      const { narrow } = subject.cast;
      const [tool] = subject.file.observations;
      if (!tool) throw new NotDeclared("tool that returns observations, which the SDK could call");
      const credential = subject.good(narrow);
      const raw = await subject.ask(ask("tools/list", credential), "control");
      if (!Array.isArray(resultOf(raw)?.tools)) throw new ControlFailed(`${narrow} lists the tools`, answerWords(raw));
      const arguments_ = { ...tool.arguments, [tool.from]: KNOWN.from, [tool.to]: KNOWN.to };
      const call = await subject.ask(
        ask("tools/call", credential, { name: tool.tool, arguments: arguments_ }),
        "control",
      );
      if (!resultOf(call)) throw new ControlFailed(`${narrow} calls ${tool.tool}`, answerWords(call));

      const client = new Client(CLIENT_INFO, {
        versionNegotiation: { mode: subject.wire === "2026-07-28" ? { pin: subject.wire } : "legacy" },
      });
      const transport = new StreamableHTTPClientTransport(subject.url, {
        requestInit: { headers: { Authorization: `Bearer ${credential.token}` } },
      });
      const options = { timeout: timeoutMs };
      let seen: { names: string[]; content: Json | undefined; wire: string | undefined };
      try {
        await client.connect(transport, options);
        const { tools } = await client.listTools(undefined, options);
        subject.charge(1);
        const answer = await client.callTool({ name: tool.tool, arguments: arguments_ }, options);
        seen = {
          names: tools.map(({ name }) => name),
          content: answer.structuredContent as Json | undefined,
          wire: client.getNegotiatedProtocolVersion(),
        };
      } catch (error) {
        const refusal = subject.file.budget.refusal_status;
        if (error instanceof SdkHttpError && error.status === refusal) throw new Void("a budget refusal");
        // The SDK quotes answers, and an answer may echo the token.
        const text = error instanceof Error ? `${error.name}: ${error.message}` : "an error";
        throw violation(subject.withoutTokens(text).slice(0, 200));
      } finally {
        await client.close().catch(() => undefined);
      }
      const missing = subject.file.granted.tools.filter((name) => !seen.names.includes(name));
      const observations = atPointer(seen.content, tool.observations);
      if (missing.length > 0) throw violation(`a listing without ${missing.join(", ")}`);
      if (!Array.isArray(observations) || observations.length === 0) throw violation("an answer without observations");
      if (seen.wire !== subject.wire) throw violation(`the revision ${seen.wire ?? "unknown"}`);
      return `${seen.names.length} tools listed, ${observations.length} observations called for, revision ${seen.wire}`;
    },
  };
}

function violation(received: string): Violation {
  return new Violation({
    held: "a good token, with which raw requests for the same are served",
    sent: "a listing and a call by the official SDK",
    received,
    expected: "the granted tools and an answer with observations",
    signature: "the SDK is not served",
  });
}

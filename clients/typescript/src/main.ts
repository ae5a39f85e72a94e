#!/usr/bin/env node
import { main } from "./cli.js";

const HARNESS_FAILED = 4;
const interrupt = new AbortController();
process.once("SIGINT", () => {
  interrupt.abort();
});

try {
  process.exitCode = await main(
    process.argv.slice(2),
    { out: (text) => process.stdout.write(`${text}\n`), err: (text) => process.stderr.write(`${text}\n`) },
    interrupt.signal,
  );
} catch (error) {
  process.stderr.write(
    `quenchz-prove failed: ${error instanceof Error ? (error.stack ?? error.message) : "unknown error"}\n`,
  );
  process.exitCode = HARNESS_FAILED;
}

/** Proves the claims of QUENCHZ about a remote MCP server. */
export type { Wire } from "./exchange.js";
export type { ExitCode, Level, Verdict } from "./outcomes.js";
export { prove, type ProveOptions } from "./prove.js";
export { type CheckResult, type Proof, reportData, reportText, type Run } from "./report.js";
export { type TokensFile, UsageError } from "./tokens-file.js";

/** The command line, apart from the process: arguments in, text and an exit code out. */
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { CHECKS } from "./checks/index.js";
import { type Wire, WIRES } from "./exchange.js";
import { LEVELS, type Level, USAGE } from "./outcomes.js";
import { prove, type ProveOptions } from "./prove.js";
import { reportData, reportText } from "./report.js";
import { UsageError } from "./tokens-file.js";

export const HELP = `usage: quenchz-prove URL --tokens-file FILE [options]

Proves ${CHECKS.length} claims about the remote MCP server at URL: who is admitted, what a denial gives away,
what a call costs, and whether answers account for every day; then properties drawn with a seed.

  --tokens-file FILE      callers, tokens and declarations, as \`quenchz serve --tokens-file FILE\` writes them
  --protocol REVISION     auto (default), ${WIRES.join(" or ")}
  --seed N                repeat the drawn examples of another run
  --level LEVEL           what is required: ${LEVELS.join(", ")} (default quenchz)
  --timeout SECONDS       to wait for one answer (default 15)
  --json FILE             write the report as JSON
  --history FILE          record every exchange, for \`quenchz judge FILE\`
  --allow-untestable ID   a check that may stay untestable; repeatable
  --checks-only           leave out the properties
  --issuer URL            a running issuer that the server trusts and that mints any audience, such as
                          \`quenchz issuer\`: adds the property X5 about spellings of the resource
  --owner-authorized      the server or the issuer is not on this machine, and its owner agreed
  --quiet                 no progress
  --help                  this text

exit codes: 0 everything required passed; 1 something required is violated; 2 usage or configuration;
3 something required could not be established, or nothing was judged; 4 the harness failed`;

export interface Streams {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
}

/** Runs the program and returns its exit code. */
export async function main(argv: readonly string[], { out, err }: Streams, signal?: AbortSignal): Promise<number> {
  try {
    const parsed = parsedArguments(argv);
    if (parsed === "help") {
      out(HELP);
      return 0;
    }
    const { url, tokensFile, json, quiet, options } = parsed;
    const proof = await prove(url, tokensFile, {
      ...options,
      ...(signal ? { signal } : {}),
      announce: quiet ? (): void => undefined : err,
    });
    out(reportText(proof));
    if (json !== undefined) writeReport(json, `${JSON.stringify(reportData(proof), null, 2)}\n`);
    return proof.exit;
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    err(`quenchz-prove: ${error.message}`);
    return USAGE;
  }
}

interface Parsed {
  readonly url: string;
  readonly tokensFile: string;
  readonly json: string | undefined;
  readonly quiet: boolean;
  readonly options: ProveOptions;
}

function parsedArguments(argv: readonly string[]): Parsed | "help" {
  let values, positionals;
  try {
    ({ values, positionals } = parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        "tokens-file": { type: "string" },
        protocol: { type: "string", default: "auto" },
        seed: { type: "string" },
        level: { type: "string", default: "quenchz" },
        timeout: { type: "string", default: "15" },
        json: { type: "string" },
        history: { type: "string" },
        "allow-untestable": { type: "string", multiple: true, default: [] },
        "checks-only": { type: "boolean", default: false },
        issuer: { type: "string" },
        "owner-authorized": { type: "boolean", default: false },
        quiet: { type: "boolean", default: false },
        help: { type: "boolean", short: "h", default: false },
      },
    }));
  } catch (error) {
    throw new UsageError(`${(error as Error).message.split(". ")[0] ?? "wrong options"}; --help shows the options.`);
  }
  if (values.help) return "help";
  const [url, ...more] = positionals;
  if (url === undefined || more.length > 0)
    throw new UsageError("give one URL, that of the MCP endpoint; --help shows how.");
  const tokensFile = values["tokens-file"];
  if (tokensFile === undefined) {
    throw new UsageError("give --tokens-file FILE; `quenchz serve --tokens-file FILE` writes one.");
  }
  const seed = values.seed === undefined ? undefined : whole("--seed", values.seed);
  return {
    url,
    tokensFile,
    json: values.json,
    quiet: values.quiet,
    options: {
      protocol: oneOf<"auto" | Wire>("--protocol", values.protocol, ["auto", ...WIRES]),
      level: oneOf<Level>("--level", values.level, LEVELS),
      timeoutSeconds: positive("--timeout", values.timeout),
      allowUntestable: values["allow-untestable"],
      checksOnly: values["checks-only"],
      ownerAuthorized: values["owner-authorized"],
      ...(seed === undefined ? {} : { seed }),
      ...(values.issuer === undefined ? {} : { issuer: values.issuer }),
      ...(values.history === undefined ? {} : { history: values.history }),
    },
  };
}

function oneOf<T extends string>(option: string, given: string, known: readonly T[]): T {
  const found = known.find((one) => one === given);
  if (found === undefined) throw new UsageError(`${option} is ${given}; expected one of ${known.join(", ")}.`);
  return found;
}

function whole(option: string, given: string): number {
  const number = Number(given);
  if (/^\d+$/.test(given) && number < 2 ** 31) return number;
  throw new UsageError(`${option} is ${given}; expected a whole number below ${2 ** 31}.`);
}

function positive(option: string, given: string): number {
  const number = Number(given);
  if (Number.isFinite(number) && number > 0) return number;
  throw new UsageError(`${option} is ${given}; expected a number of seconds above 0.`);
}

function writeReport(path: string, text: string): void {
  try {
    writeFileSync(path, text);
  } catch (error) {
    throw new UsageError(`${path} cannot be written (${(error as NodeJS.ErrnoException).code ?? "unknown error"}).`);
  }
}

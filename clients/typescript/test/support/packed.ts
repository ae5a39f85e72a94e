/** The package as npm would publish it, and run as a person does. */
import { execFile, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

export interface Ended {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** A child of `npm run` would else take the settings of that run for its own; and what is missing is not installed. */
const environment = (): NodeJS.ProcessEnv => ({
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.toLowerCase().startsWith("npm_"))),
  npm_config_update_notifier: "false",
  npm_config_yes: "false",
});

/**
 * Packs the package, which builds it, and unpacks it below `folder`. The dependencies are those of this checkout, so
 * that no registry is asked; that the package names them all is what test/package.test.ts looks at.
 */
export function unpack(folder: string): string {
  const run = (command: string, ...options: string[]): void => {
    const ended = spawnSync(command, options, { cwd: ROOT, env: environment(), encoding: "utf8" });
    if (ended.status !== 0) throw new Error(`${command} ${options.join(" ")} failed: ${ended.stderr}`);
  };
  mkdirSync(folder, { recursive: true });
  run("npm", "pack", "--silent", "--pack-destination", folder);
  const archive = readdirSync(folder).find((name) => name.endsWith(".tgz"));
  if (archive === undefined) throw new Error("npm pack left no archive");
  run("tar", "-xzf", join(folder, archive), "-C", folder);
  symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
  return join(folder, "package");
}

/** Runs `npx quenchz-prove` in the unpacked package, whose own program npx finds there; nothing is installed. */
export async function npx(folder: string, ...options: string[]): Promise<Ended> {
  return new Promise((resolve) => {
    const child = execFile(
      "npx",
      ["quenchz-prove", ...options],
      { cwd: folder, env: environment(), encoding: "utf8", maxBuffer: 2 ** 24 },
      (_error, out, err) => {
        resolve({ code: child.exitCode ?? -1, out, err });
      },
    );
  });
}

// The JSON Schemas are the only files shared with the Python side; the package carries copies of the two it needs.
import { copyFileSync, mkdirSync } from "node:fs";

const from = new URL("../../../spec/schemas/", import.meta.url);
const to = new URL("../dist/schemas/", import.meta.url);
mkdirSync(to, { recursive: true });
for (const name of ["tokens-file.json", "report.json", "history.json"]) {
  copyFileSync(new URL(name, from), new URL(name, to));
}

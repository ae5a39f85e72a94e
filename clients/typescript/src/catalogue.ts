/** What the callers list, and names beside it. Pure. */
import type { JsonObject } from "./exchange.js";
import { listOf, objectOf } from "./exchange.js";
import type { Cast, Kind, ObservationTool, TokensFile } from "./tokens-file.js";

/** The entries that one caller lists, by kind and name. */
export type Listing = Map<Kind, Map<string, JsonObject>>;
/** What each caller lists. */
export type Catalogue = Map<string, Listing>;

/** How a kind is listed: the method, the member of the result, the member that names an entry (MCP schema). */
export const LISTINGS: Record<Kind, { method: string; member: string; key: string }> = {
  tools: { method: "tools/list", member: "tools", key: "name" },
  prompts: { method: "prompts/list", member: "prompts", key: "name" },
  resources: { method: "resources/list", member: "resources", key: "uri" },
  resource_templates: { method: "resources/templates/list", member: "resourceTemplates", key: "uriTemplate" },
};

/** Order by code point, in which a history counts hidden things. */
export function byCodePoint(a: string, b: string): number {
  const [one, other] = [Buffer.from(a, "utf8"), Buffer.from(b, "utf8")];
  return Buffer.compare(one, other);
}

function names(catalogue: Catalogue, caller: string, kind: Kind): string[] {
  return [...(catalogue.get(caller)?.get(kind)?.keys() ?? [])];
}

/** Every name that some caller lists. */
export function listedNames(catalogue: Catalogue, kind: Kind): string[] {
  return [...catalogue.keys()].flatMap((caller) => names(catalogue, caller, kind));
}

/** What is declared hidden, and what the broad caller lists and the narrow one does not. */
export function hiddenOf(catalogue: Catalogue, file: TokensFile, cast: Cast, kind: Kind): string[] {
  const narrow = names(catalogue, cast.narrow, kind);
  const derived = names(catalogue, cast.broad, kind).filter((name) => !narrow.includes(name));
  return [...new Set([...derived, ...file.hidden[kind]])].sort(byCodePoint);
}

/** What the narrow caller lists and nothing declares hidden. */
export function grantedOf(catalogue: Catalogue, file: TokensFile, cast: Cast, kind: Kind): string[] {
  return names(catalogue, cast.narrow, kind)
    .filter((name) => !file.hidden[kind].includes(name))
    .sort(byCodePoint);
}

export function entryOf(catalogue: Catalogue, caller: string, kind: Kind, name: string): JsonObject {
  return catalogue.get(caller)?.get(kind)?.get(name) ?? {};
}

/** Whether a tool may be called with arguments that its schema accepts. */
export function mayRun(entry: JsonObject, name: string, file: TokensFile): boolean {
  return objectOf(entry.annotations).readOnlyHint === true || (file.may_call ?? []).includes(name);
}

/** Whether arguments can be left out so that a call cannot be valid. */
export function requiresSomething(entry: JsonObject): boolean {
  return listOf(objectOf(entry.inputSchema).required).length > 0;
}

/** Arguments that a tool's schema may well accept; an observing tool's sample arguments are used where they fit. */
export function plausibleArguments(entry: JsonObject, samples: readonly ObservationTool[]): JsonObject {
  const known = Object.assign({}, ...samples.map((sample) => sample.arguments)) as JsonObject;
  const properties = objectOf(objectOf(entry.inputSchema).properties);
  return Object.fromEntries(
    Object.entries(properties).map(([name, schema]) => [name, known[name] ?? plausibleValue(objectOf(schema))]),
  );
}

function plausibleValue(schema: JsonObject): JsonObject[string] {
  const given = schema.const ?? listOf(schema.enum)[0] ?? listOf(schema.examples)[0] ?? schema.default;
  if (given !== undefined) return given;
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  switch (type) {
    case "integer":
    case "number":
      return typeof schema.minimum === "number" ? schema.minimum : 1;
    case "boolean":
      return true;
    case "array":
      return [];
    case "object":
      return {};
    default:
      return schema.format === "date" ? "2026-04-01" : "USD";
  }
}

const ALPHABETS = ["abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"] as const;

/**
 * Writes a name beside `like`: each letter and digit is moved on in its own alphabet by the next of `shifts`, so that
 * length and alphabet stay. The same shifts give the same name.
 */
export function shiftedName(like: string, shifts: readonly number[]): string {
  return Array.from(like)
    .map((letter, at) => {
      const alphabet = ALPHABETS.find((one) => one.includes(letter));
      if (!alphabet) return letter;
      const shift = shifts[at % Math.max(1, shifts.length)] ?? 1;
      return alphabet[(alphabet.indexOf(letter) + shift) % alphabet.length] ?? letter;
    })
    .join("");
}

/** The `serial`-th invented name beside `like`, none of `taken`; `undefined` when there is none. */
export function inventedName(like: string, serial: number, taken: readonly string[]): string | undefined {
  for (let attempt = 0; attempt < 400; attempt += 1) {
    const shifts = Array.from(like, (_, at) => 1 + (scattered(serial * 401 + attempt, at) % 25));
    const name = shiftedName(like, shifts);
    if (name !== like && !taken.includes(name)) return name;
  }
  return undefined;
}

const [FEWEST_PLACES, MOST_PLACES] = [5, 25];

/**
 * The one invented name beside `like` that every client computes alike, since an example that asks for it does not
 * record it: each letter and digit moved on by five places, by six where that name is listed, and so on.
 */
export function agreedName(like: string, listed: readonly string[]): string | undefined {
  for (let places = FEWEST_PLACES; places <= MOST_PLACES; places += 1) {
    const name = shiftedName(like, [places]);
    if (name !== like && !listed.includes(name)) return name;
  }
  return undefined;
}

/** A number that looks like chance and is the same every time (a multiplicative hash). */
function scattered(serial: number, at: number): number {
  let mixed = Math.imul(serial + 1, 0x9e3779b1) ^ Math.imul(at + 1, 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x2c1b3c6d);
  return (mixed ^ (mixed >>> 13)) >>> 0;
}

/** Audiences that are not this resource, most of them near it: what property X5 asks an issuer for. Pure. */
import fc from "fast-check";

/** The audience to ask for: as many `resource` parameters (RFC 8707 §2), of which none need be a URI. */
export interface Spelling {
  /** How it differs from this resource, in words. */
  readonly way: string;
  readonly resources: readonly string[];
}

/** The parts of an http or https URI as it is written: URL classes would tidy what has to stay untidy. */
interface Parts {
  readonly scheme: string;
  readonly host: string;
  /** With its colon; "" where none is written. */
  readonly port: string;
  readonly path: string;
  /** Query and fragment. */
  readonly tail: string;
  readonly origin: string;
}

function partsOf(resource: string): Parts {
  const [, scheme = "", authority = "", path = "", tail = ""] =
    /^([^:/?#]*):\/\/([^/?#]*)([^?#]*)(.*)$/s.exec(resource) ?? [];
  const [, host = "", port = ""] = /^(.*?)(:\d*)?$/.exec(authority) ?? [];
  return { scheme, host, port, path, tail, origin: `${scheme}://${authority}` };
}

/** The path of a sibling called `name`. */
const besides = (path: string, name: string): string =>
  (/^(.*\/)[^/]+\/?$/.exec(path)?.[1] ?? (path.endsWith("/") ? path : `${path}/`)) + name;

/** The port with which a host is the same host, written another way. */
const samePorts = ({ scheme, port }: Parts): string[] => {
  const standard = scheme.toLowerCase() === "http" ? ":80" : ":443";
  if (port === "") return [standard, ":"];
  return [`:0${port.slice(1)}`, ...(port === standard ? [""] : [])];
};

/** A character as a percent-encoded octet (RFC 3986 §2.1). */
const percent = (letter: string): string => `%${letter.charCodeAt(0).toString(16).padStart(2, "0")}`;

/** The classic spellings, which every run asks for. */
export function classics(resource: string): Spelling[] {
  const parts = partsOf(resource);
  const { scheme, host, port, path, tail, origin } = parts;
  const at = (authority: string): string => `${scheme}://${authority}${path}${tail}`;
  const other = "https://other.example/mcp";
  const rows: readonly (readonly [string, ...string[]])[] = [
    ["what another server is called", other],
    ["our host with something after it", at(`${host}.evil.example${port}`)],
    ["our host with something before it", at(`evil-${host}${port}`)],
    ["our host as user information of another", at(`${host}${port}@evil.example`)],
    ["the same host at a port of its own", at(`${host}:8444`)],
    ["a path below ours", `${origin}${path}/admin${tail}`],
    ["ours and a letter more", `${resource}x`],
    ["ours and a letter less", resource.replace(/\/$/, "").slice(0, -1)],
    ["the bare origin", path === "" || path === "/" ? `${origin}/mcp` : origin],
    ["a neighbour in the same folder", `${origin}${besides(path, "other")}`],
    ["ours as a parameter of somebody else's URI", `https://evil.example/?for=${resource}`],
    ["ours with a query added", `${resource}?tenant=1`],
    ["a wildcard", "*"],
    ["the host in upper case", at(`${host.toUpperCase()}${port}`)],
    ["the scheme in upper case", `${scheme.toUpperCase()}${resource.slice(scheme.length)}`],
    ["one slash more or less at the end", slashed(parts)],
    ["our port written another way", at(`${host}${samePorts(parts)[0] ?? ""}`)],
    ["us, then another", resource, other],
    ["another, then us", other, resource],
    ["two others in a list", other, "https://third.example/mcp"],
    ["an empty string", ""],
    ["none at all"],
  ];
  return rows
    .map(([way, ...resources]): Spelling => ({ way, resources }))
    .filter((spelling) => !isExactly(spelling, resource));
}

function slashed({ path, tail, origin }: Parts): string {
  return `${origin}${path.endsWith("/") ? path.slice(0, -1) : `${path}/`}${tail}`;
}

/** Whether a spelling is no other spelling. */
export function isExactly({ resources }: Spelling, resource: string): boolean {
  return resources.length === 1 && resources[0] === resource;
}

const label = fc.string({
  unit: fc.constantFrom(...Array.from("abcdefghijklmnopqrstuvwxyz0123456789")),
  minLength: 1,
  maxLength: 8,
});

/** A text with some of its letters in the other case. */
const recased = (text: string): fc.Arbitrary<string> =>
  fc
    .array(fc.boolean(), { minLength: text.length, maxLength: text.length })
    .map((flips) =>
      Array.from(text, (letter, at) =>
        flips[at] ? (letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase()) : letter,
      ).join(""),
    );

/** URIs that are not ours by any reading, and texts that are none, by the way in which they differ. */
export function nearMisses(resource: string): Record<string, fc.Arbitrary<string>> {
  const { scheme, host, port, path, tail, origin } = partsOf(resource);
  const at = (authority: string): string => `${scheme}://${authority}${path}${tail}`;
  const pathed = (written: string): string => `${origin}${written}${tail}`;
  return {
    "another host": label.map((name) => at(`${name}.example${port}`)),
    "our host with something after it": fc
      .tuple(fc.constantFrom(".", "-", ""), label)
      .map(([joint, name]) => at(`${host}${joint}${name}.example${port}`)),
    "our host with something before it": fc
      .tuple(label, fc.constantFrom(".", "-", ""))
      .map(([name, joint]) => at(`${name}${joint}${host}${port}`)),
    "the parent of our host": fc.constant(at(host.replace(/^[^.]*\.?/, "") + port)),
    "another port": fc.integer({ min: 1, max: 65_535 }).map((number) => at(`${host}:${number}`)),
    "user information": fc
      .tuple(label, label)
      .chain(([name, word]) =>
        fc.constantFrom(
          at(`${name}@${host}${port}`),
          at(`${name}:${word}@${host}${port}`),
          at(`${host}@${name}.example`),
        ),
      ),
    "another scheme": fc
      .constantFrom("http", "https", "ftp", "ws", "wss", "mcp")
      .filter((name) => name !== scheme.toLowerCase())
      .map((name) => `${name}${resource.slice(scheme.length)}`),
    "a longer path": fc
      .tuple(fc.constantFrom("/", "", ".", ";", ":", "//"), label)
      .map(([joint, name]) => pathed(`${path}${joint}${name}`)),
    "a shorter path": fc
      .integer({ min: 1, max: Math.max(1, path.length) })
      .map((letters) => pathed(path.slice(0, -letters))),
    "the parent path": fc.constantFrom("", "/").map((end) => pathed(path.replace(/\/[^/]*\/?$/, "") + end)),
    "a sibling path": label.map((name) => pathed(besides(path, name))),
    "our path in another case": recased(path).map(pathed),
    "a query": fc
      .oneof(
        fc.constant("?"),
        label.map((name) => `?${name}=1`),
      )
      .map((query) => resource + query),
    "a fragment": fc
      .oneof(
        fc.constant("#"),
        label.map((name) => `#${name}`),
      )
      .map((part) => resource + part),
    "white space": fc
      .tuple(fc.constantFrom(" ", "\t", "\n", "\r\n", "\u00a0", "\u0000"), fc.nat({ max: resource.length }))
      .map(([space, before]) => resource.slice(0, before) + space + resource.slice(before)),
    "a wildcard": fc.constantFrom("*", `${resource}*`, `${origin}/*`, `${scheme}://*`, `${scheme}://*.${host}`, ".*"),
    "ours inside another": fc
      .tuple(label, fc.constantFrom("/", "/?for=", "/#"))
      .map(([name, joint]) => `https://${name}.example${joint}${resource}`),
    "two in one string": fc
      .tuple(fc.constantFrom(" ", ",", ", ", ";", "\n"), label, fc.boolean())
      .map(([joint, name, first]) => {
        const both = [resource, `https://${name}.example/mcp`];
        return (first ? both : both.reverse()).join(joint);
      }),
    "a very long one": fc.integer({ min: 300, max: LONGEST }).map((letters) => `${resource}/${"a".repeat(letters)}`),
    "the empty string": fc.constant(""),
    "any text": fc.string({ unit: "grapheme", minLength: 1, maxLength: 16 }),
  };
}

/** With more letters a token no longer fits into the header fields that some servers take. */
const LONGEST = 1500;

/** Spellings of ours that RFC 3986 §6.2.2 and §6.2.3 call equivalent, by the way in which they differ. */
export function respellings(resource: string): Record<string, fc.Arbitrary<string>> {
  const parts = partsOf(resource);
  const { scheme, host, port, path, tail, origin } = parts;
  const slashes = [...path.matchAll(/\//g)].map(({ index }) => index);
  const unreserved = [...path.matchAll(/[A-Za-z0-9._~-]/g)].map(({ index }) => index);
  const replaced = (from: number, to: number, text: string): string =>
    `${origin}${path.slice(0, from)}${text}${path.slice(to)}${tail}`;
  return {
    "host and scheme in another case": recased(`${scheme}://${host}`).map((text) => `${text}${port}${path}${tail}`),
    "our port written another way": fc
      .constantFrom(...samePorts(parts))
      .map((text) => `${scheme}://${host}${text}${path}${tail}`),
    "our trailing slash added or taken away": fc.constant(slashed(parts)),
    "dot segments": fc
      .tuple(fc.constantFrom(...(slashes.length > 0 ? slashes : [0])), fc.constantFrom("/.", "/x/..", "/./.", "/%2e"))
      .map(([slash, dots]) => replaced(slash, slash, dots)),
    "percent-encoding":
      unreserved.length === 0
        ? fc.constant(`${origin}/%2e${tail}`)
        : fc.tuple(fc.constantFrom(...unreserved), fc.boolean()).map(([letter, upper]) => {
            const encoded = percent(path[letter] ?? "");
            return replaced(letter, letter + 1, upper ? encoded.toUpperCase() : encoded);
          }),
  };
}

/** One string in any of these ways. */
function oneOf(ways: Record<string, fc.Arbitrary<string>>): fc.Arbitrary<Spelling> {
  return fc.oneof(
    ...Object.entries(ways).map(([way, texts]) => texts.map((text): Spelling => ({ way, resources: [text] }))),
  );
}

/**
 * What X5 draws from, one family after the other, so that what is found in one does not end the search in another:
 * other resources with lists and no audience among them, respellings of ours, and lists that hold ours.
 */
export function families(resource: string): fc.Arbitrary<Spelling>[] {
  const others = oneOf(nearMisses(resource));
  const texts = others.map(({ resources: [text = ""] }) => text).filter((text) => text !== resource);
  const lists = fc
    .array(texts, { minLength: 2, maxLength: 4 })
    .map((resources): Spelling => ({ way: "two others in a list", resources }));
  const none = fc.constant<Spelling>({ way: "none at all", resources: [] });
  const withUs = fc
    .tuple(fc.array(fc.oneof(texts, fc.constant(resource)), { minLength: 1, maxLength: 3 }), fc.nat({ max: 3 }))
    .map(([more, place]): Spelling => ({ way: "a list with us in it", resources: more.toSpliced(place, 0, resource) }));
  return [
    fc.oneof({ weight: 8, arbitrary: others }, { weight: 2, arbitrary: lists }, { weight: 1, arbitrary: none }),
    oneOf(respellings(resource)),
    withUs,
  ].map((family) => family.filter((spelling) => !isExactly(spelling, resource)));
}

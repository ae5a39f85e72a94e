import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { requirementOf } from "../src/checks/audience.js";
import { classics, families, nearMisses, respellings, type Spelling } from "../src/checks/spellings.js";

const RESOURCES = [
  "https://example.invalid/mcp",
  "https://example.invalid",
  "https://example.invalid/",
  "http://127.0.0.1:8931/a/mcp/",
  "https://example.invalid:443/mcp?x=1",
  "http://[::1]:80/mcp",
];

const requirement = ({ resources }: Spelling, resource: string): string => {
  const [first = null, ...more] = resources;
  const audience = more.length > 0 ? [...resources] : first;
  return requirementOf({ recipe: { caller: "broad", audience } }, resource);
};

const drawn = <T>(arbitrary: fc.Arbitrary<T>, count = 300): T[] => fc.sample(arbitrary, { numRuns: count, seed: 5 });

describe.each(RESOURCES)("beside %s", (resource) => {
  test("no classic spelling and no drawn one is the resource itself", () => {
    const all = [...classics(resource), ...families(resource).flatMap((family) => drawn(family))];
    expect(all.filter(({ resources }) => resources.length === 1 && resources[0] === resource)).toEqual([]);
  });

  test("classic spellings have names and texts of their own, and reach each requirement", () => {
    const rows = classics(resource);
    expect(new Set(rows.map(({ way }) => way)).size).toBe(rows.length);
    expect(new Set(rows.map(({ resources }) => JSON.stringify(resources))).size).toBe(rows.length);
    expect(new Set(rows.map((row) => requirement(row, resource)))).toEqual(
      new Set(["QZ-AUD-1", "QZ-AUD-2", "QZ-AUD-3", "QZ-AUD-4"]),
    );
  });

  test("every way of missing and of respelling is drawn, and the families stay apart", () => {
    const [others = [], alike = [], lists = []] = families(resource).map((family) => drawn(family, 900));
    const ways = (of: readonly Spelling[]): string[] => [...new Set(of.map(({ way }) => way))].sort();
    const pathless = /^https:\/\/[^/]*\/?$/.test(resource) ? ["a shorter path", "our path in another case"] : [];
    const apart = Object.keys(nearMisses(resource)).filter((way) => !pathless.includes(way));
    expect(ways(others)).toEqual(expect.arrayContaining([...apart, "two others in a list", "none at all"]));
    expect(ways(alike)).toEqual(Object.keys(respellings(resource)).sort());
    expect(new Set(alike.map((one) => requirement(one, resource)))).toEqual(new Set(["QZ-AUD-2"]));
    expect(new Set(lists.map((one) => requirement(one, resource)))).toEqual(new Set(["QZ-AUD-3"]));
    const places = new Set(lists.map(({ resources }) => resources.indexOf(resource)));
    expect([...places].sort()).toEqual([0, 1, 2, 3]);
    expect(others.filter(({ resources }) => resources.length > 1 && resources.includes(resource))).toEqual([]);
  });
});

test("the classic spellings of a plain resource are these", () => {
  const rows = classics("https://example.invalid/mcp").map(({ way, resources }) => [way, ...resources]);
  expect(rows).toEqual([
    ["what another server is called", "https://other.example/mcp"],
    ["our host with something after it", "https://example.invalid.evil.example/mcp"],
    ["our host with something before it", "https://evil-example.invalid/mcp"],
    ["our host as user information of another", "https://example.invalid@evil.example/mcp"],
    ["the same host at a port of its own", "https://example.invalid:8444/mcp"],
    ["a path below ours", "https://example.invalid/mcp/admin"],
    ["ours and a letter more", "https://example.invalid/mcpx"],
    ["ours and a letter less", "https://example.invalid/mc"],
    ["the bare origin", "https://example.invalid"],
    ["a neighbour in the same folder", "https://example.invalid/other"],
    ["ours as a parameter of somebody else's URI", "https://evil.example/?for=https://example.invalid/mcp"],
    ["ours with a query added", "https://example.invalid/mcp?tenant=1"],
    ["a wildcard", "*"],
    ["the host in upper case", "https://EXAMPLE.INVALID/mcp"],
    ["the scheme in upper case", "HTTPS://example.invalid/mcp"],
    ["one slash more or less at the end", "https://example.invalid/mcp/"],
    ["our port written another way", "https://example.invalid:443/mcp"],
    ["us, then another", "https://example.invalid/mcp", "https://other.example/mcp"],
    ["another, then us", "https://other.example/mcp", "https://example.invalid/mcp"],
    ["two others in a list", "https://other.example/mcp", "https://third.example/mcp"],
    ["an empty string", ""],
    ["none at all"],
  ]);
});

test("each way misses as it says", () => {
  const ways = { ...nearMisses("https://example.invalid/mcp"), ...respellings("https://example.invalid/mcp") };
  const patterns: Record<string, RegExp> = {
    "another host": /^https:\/\/[a-z0-9]+\.example\/mcp$/,
    "our host with something after it": /^https:\/\/example\.invalid[.-]?[a-z0-9]+\.example\/mcp$/,
    "our host with something before it": /^https:\/\/[a-z0-9]+[.-]?example\.invalid\/mcp$/,
    "the parent of our host": /^https:\/\/invalid\/mcp$/,
    "another port": /^https:\/\/example\.invalid:\d+\/mcp$/,
    "user information": /^https:\/\/([a-z0-9:]+@example\.invalid|example\.invalid@[a-z0-9]+\.example)\/mcp$/,
    "another scheme": /^(?!https:)[a-z]+:\/\/example\.invalid\/mcp$/,
    "a longer path": /^https:\/\/example\.invalid\/mcp(\/|\.|;|:|\/\/)?[a-z0-9]+$/,
    "a shorter path": /^https:\/\/example\.invalid(\/mc|\/m|\/|)$/,
    "the parent path": /^https:\/\/example\.invalid\/?$/,
    "a sibling path": /^https:\/\/example\.invalid\/[a-z0-9]+$/,
    "our path in another case": /^https:\/\/example\.invalid\/[mM][cC][pP]$/,
    "a query": /^https:\/\/example\.invalid\/mcp\?/,
    "a fragment": /^https:\/\/example\.invalid\/mcp#/,
    // eslint-disable-next-line no-control-regex -- NUL is one of those
    "white space": /[\s\u0000]/,
    "a wildcard": /\*/,
    "ours inside another": /^https:\/\/[a-z0-9]+\.example\/.*https:\/\/example\.invalid\/mcp$/,
    "two in one string": /^(?=.*https:\/\/example\.invalid\/mcp)(?=.*\.example\/mcp)/s,
    "a very long one": /^https:\/\/example\.invalid\/mcp\/a{300,1500}$/,
    "the empty string": /^$/,
    "any text": /./su,
    "host and scheme in another case": /^https:\/\/example\.invalid\/mcp$/i,
    "our port written another way": /^https:\/\/example\.invalid:(443)?\/mcp$/,
    "our trailing slash added or taken away": /^https:\/\/example\.invalid\/mcp\/$/,
    "dot segments": /^https:\/\/example\.invalid\/(\.|x\/\.\.|\.\/\.|%2e)\/mcp$/,
    "percent-encoding": /^https:\/\/example\.invalid\/(%6[dD]cp|m%63p|mc%70)$/,
  };
  expect(Object.keys(ways).sort()).toEqual(Object.keys(patterns).sort());
  for (const [way, texts] of Object.entries(ways)) {
    for (const text of drawn(texts, 60)) expect(text, way).toMatch(patterns[way] ?? /^never$/);
  }
});

/** A tokens file for servers that check no signature: its tokens are unsigned in all but form. */
import type { Json, JsonObject } from "../../src/exchange.js";
import type { TokensFile } from "../../src/tokens-file.js";

export const RESOURCE = "https://example.invalid/mcp";
export const NOW = 1_900_000_000;

const part = (value: Json): string => Buffer.from(JSON.stringify(value), "utf8").toString("base64url");

export function jwt(claims: JsonObject): string {
  return `${part({ alg: "ES256", typ: "at+jwt" })}.${part(claims)}.c2lnbmF0dXJl`;
}

export function tokensFile(url: string, change: Partial<TokensFile> = {}): TokensFile {
  const exp = 4_000_000_000;
  const caller = (sub: string, scopes: string[]): TokensFile["callers"][string] => ({
    scopes,
    reserve: 2,
    token: jwt({ sub, aud: RESOURCE, exp, jti: "1" }),
    fresh_tokens: [jwt({ sub, aud: RESOURCE, exp, jti: "2" })],
  });
  const bad = (claims: JsonObject): TokensFile["bad_tokens"][string] => ({
    caller: "broad",
    token: jwt({ sub: "broad", exp, ...claims }),
  });
  return {
    quenchz_tokens: 1,
    url,
    resource: RESOURCE,
    issuer: "https://issuer.invalid",
    callers: {
      broad: caller("broad", ["read", "write"]),
      narrow: caller("narrow", ["read"]),
      quiet: caller("quiet", ["read"]),
    },
    bad_tokens: {
      other_audience: bad({ aud: "https://other.invalid/mcp" }),
      two_audiences: bad({ aud: [RESOURCE, "https://other.invalid/mcp"] }),
      no_audience: bad({}),
      expired: bad({ aud: RESOURCE, exp: 1_000_000_000 }),
    },
    granted: { tools: ["look"], prompts: [], resources: [], resource_templates: [] },
    hidden: { tools: ["destroy"], prompts: [], resources: [], resource_templates: [] },
    budget: {
      limiter: "reserve",
      budget: 8,
      window_seconds: 0.05,
      reserves: { broad: 2, narrow: 2, quiet: 2 },
      pool: 2,
      unknown_callers: "pool",
      free_methods: [
        "initialize",
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "notifications/*",
      ],
      refusal_status: 429,
    },
    may_call: ["destroy"],
    observations: [
      {
        tool: "look",
        arguments: {},
        from: "from",
        to: "to",
        observations: "/observations",
        certificate: "/coverage",
        gap_causes: [],
        open_causes: [],
      },
    ],
    ...change,
  };
}

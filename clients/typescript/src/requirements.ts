/** The requirements of the law that this client has something to say about, in its own words. */
import type { Level } from "./outcomes.js";

export interface Norm {
  readonly source: string;
  readonly quote: string;
}

export interface Requirement {
  readonly level: Level;
  readonly claim: string;
  readonly norm: Norm;
  readonly contrary: Norm | null;
  readonly cost: string;
}

const mcpAudience: Norm = {
  source: "MCP 2026-07-28, basic/authorization, Token Handling",
  quote:
    "MCP servers MUST validate that access tokens were issued specifically for them as the intended audience, according to RFC 8707 Section 2.",
};
const mcpUppercase: Norm = {
  source: "MCP 2026-07-28, basic/authorization, Canonical Server URI",
  quote:
    "While the canonical form uses lowercase scheme and host components, implementations SHOULD accept uppercase scheme and host components for robustness and interoperability.",
};
const jwtAudience: Norm = {
  source: "RFC 7519 §4.1.3",
  quote: "Each principal intended to process the JWT MUST identify itself with a value in the audience claim.",
};
const stepUp: Norm = {
  source: "MCP 2026-07-28, basic/authorization, Runtime Insufficient Scope Errors",
  quote: "the server SHOULD respond with: HTTP 403 Forbidden status code",
};
const ours = (quote: string): Norm => ({ source: "the law of QUENCHZ", quote });
const free = "Nothing: no honest client is turned away.";
const longer = "Answers grow by their accounting.";

export const REQUIREMENTS = {
  "QZ-AUD-1": {
    level: "must",
    claim: "Whoever holds a token for some other resource gets nothing here.",
    norm: mcpAudience,
    contrary: null,
    cost: free,
  },
  "QZ-AUD-2": {
    level: "quenchz",
    claim: "A token whose audience only looks like this resource gets nothing: strings are compared, not URLs.",
    norm: ours("An audience is compared byte by byte."),
    contrary: mcpUppercase,
    cost: "An authorization server that writes another spelling has to be told the right one.",
  },
  "QZ-AUD-3": {
    level: "quenchz",
    claim: "A token that is good at several resources is good at none of them.",
    norm: ours("One token, one resource."),
    contrary: jwtAudience,
    cost: "An authorization server that writes lists has to be told to write one string.",
  },
  "QZ-AUD-4": {
    level: "must",
    claim: "A token that does not say this resource's name gets nothing.",
    norm: {
      source: "MCP 2026-07-28, basic/authorization/security-considerations",
      quote:
        "MCP servers MUST only accept tokens specifically intended for themselves and MUST reject tokens that do not include them in the audience claim or otherwise verify that they are the intended recipient of the token.",
    },
    contrary: null,
    cost: free,
  },
  "QZ-AUD-6": {
    level: "must",
    claim: "A token that has expired gets nothing.",
    norm: {
      source: "RFC 7519 §4.1.4",
      quote:
        'The "exp" (expiration time) claim identifies the expiration time on or after which the JWT MUST NOT be accepted for processing.',
    },
    contrary: null,
    cost: "Nothing beyond clock skew.",
  },
  "QZ-AUD-8": {
    level: "must",
    claim: "A 401 always tells how to authenticate: it has a Bearer challenge that can be read.",
    norm: {
      source: "RFC 6750 §3",
      quote: 'the resource server MUST include the HTTP "WWW-Authenticate" response header field',
    },
    contrary: null,
    cost: "Nothing.",
  },
  "QZ-AUD-9": {
    level: "must",
    claim: "Following a challenge without a token leads to metadata about this very resource.",
    norm: {
      source: "RFC 9728 §3.3",
      quote: 'The "resource" value returned MUST be identical to the protected resource\'s resource identifier value',
    },
    contrary: null,
    cost: "Nothing: a client has to discard metadata about another resource.",
  },
  "QZ-AUD-10": {
    level: "should",
    claim: "Who sent no token is not told that the token was bad.",
    norm: {
      source: "RFC 6750 §3.1",
      quote:
        "If the request lacks any authentication information [...], the resource server SHOULD NOT include an error code or other error information.",
    },
    contrary: null,
    cost: "Nothing.",
  },
  "QZ-AUD-12": {
    level: "must",
    claim: "Without credentials there is nothing to be had, session or not.",
    norm: {
      source: "MCP 2026-07-28, basic/authorization, Token Requirements",
      quote: "authorization MUST be included in every HTTP request from client to server.",
    },
    contrary: null,
    cost: "Nothing: discovery needs no token and happens elsewhere.",
  },
  "QZ-DEN-1": {
    level: "quenchz",
    claim: "From the answer nobody can tell a tool that is hidden from one that does not exist.",
    norm: ours("Hidden and nonexistent are the same bytes."),
    contrary: stepUp,
    cost: "No caller learns from a denial which scope it lacks.",
  },
  "QZ-DEN-4": {
    level: "must",
    claim: "No listing shows a caller what is hidden from it, however often it asks.",
    norm: {
      source: "MCP 2026-07-28, server/utilities/caching, Security Considerations",
      quote:
        "Server implementors: MUST apply appropriate per-primitive access controls, and MUST NOT rely on cacheScope alone to prevent unauthorized access to primitives.",
    },
    contrary: null,
    cost: "Nothing.",
  },
  "QZ-RSV-3": {
    level: "quenchz",
    claim:
      "A burst on a fresh budget gets the caller's reserve and the pool, and leaves the next caller its own reserve.",
    norm: ours("A burst stops at reserve plus pool."),
    contrary: null,
    cost: "Bursting shows how much of the pool was free.",
  },
  "QZ-RSV-4": {
    level: "quenchz",
    claim: "Every call has the same price, whether it is served, denied or wrong.",
    norm: ours("A price that depends on the answer tells the answer."),
    contrary: null,
    cost: "Callers pay for their mistakes.",
  },
  "QZ-CRT-2": {
    level: "quenchz",
    claim: "Whatever a window holds, its answer has a certificate.",
    norm: ours("No observations without a certificate."),
    contrary: null,
    cost: longer,
  },
  "QZ-CRT-3": {
    level: "quenchz",
    claim: "The days of the window are the delivered ones and the absent ones, each counted once.",
    norm: ours("requested = delivered + absent"),
    contrary: null,
    cost: longer,
  },
  "QZ-CRT-4": {
    level: "quenchz",
    claim: "What was to be expected either came or is called a gap.",
    norm: ours("expected is the sum of delivered and gaps"),
    contrary: null,
    cost: longer,
  },
  "QZ-CRT-5": {
    level: "quenchz",
    claim: "What a certificate says of the observations is true of the observations beside it.",
    norm: ours("Count and bounds are those of the observations."),
    contrary: null,
    cost: longer,
  },
  "QZ-CRT-6": {
    level: "quenchz",
    claim: "A window is called open if and only if something in it is still to come.",
    norm: ours("open if and only if something is due"),
    contrary: null,
    cost: longer,
  },
  "QZ-CRT-7": {
    level: "quenchz",
    claim: "Cut a window in two, and the two certificates add up to the one.",
    norm: ours("Certificates are additive."),
    contrary: null,
    cost: longer,
  },
} as const satisfies Record<string, Requirement>;

export type RequirementId = keyof typeof REQUIREMENTS;

export function invariantOf(id: RequirementId): "audience" | "denials" | "reserves" | "certificates" {
  if (id.startsWith("QZ-AUD")) return "audience";
  if (id.startsWith("QZ-DEN")) return "denials";
  return id.startsWith("QZ-RSV") ? "reserves" : "certificates";
}

/** Checks 1 to 7: who is let in, who is refused, and how a refusal looks. */
import { bearerOf, unreadable } from "../challenges.js";
import {
  answerWords,
  ask,
  askWords,
  type Exchange,
  fieldValues,
  type Json,
  objectOf,
  parseJson,
  resultOf,
  statusOf,
} from "../exchange.js";
import { ControlFailed, Untestable, Violation } from "../outcomes.js";
import { type Credential, encodedAudience, encodedExpiry, encodedRecipe, tuple } from "../recipe.js";
import type { RequirementId } from "../requirements.js";
import type { Example } from "../runner.js";
import type { Subject } from "../subject.js";
import type { BadToken } from "../tokens-file.js";

/** The control of this invariant: the good token, that of the tokens file by default, lists the tools. */
export async function goodTokenLists(subject: Subject, good = subject.good(subject.cast.broad)): Promise<void> {
  const answer = await subject.ask(ask("tools/list", good), "control");
  if (!Array.isArray(resultOf(answer)?.tools)) {
    throw new ControlFailed("a token for this resource lists the tools", answerWords(answer));
  }
}

function refused(answer: Exchange, held: string): void {
  const status = statusOf(answer);
  if (status === 401) return;
  let signature = "not refused";
  if (status >= 500) signature = "a server error in place of a refusal";
  else if (status === 403) signature = "403 in place of 401";
  throw new Violation({
    held,
    sent: askWords(answer.ask),
    received: `${answerWords(answer)}: ${signature}`,
    expected: "HTTP 401",
    signature,
  });
}

/** P1: every good token is admitted. There is no requirement for it: what it finds is needed by all others. */
export function admissions(subject: Subject): Example[] {
  const callers = Object.keys(subject.file.callers);
  return [
    {
      requirement: undefined,
      row: "every caller lists the tools",
      arguments: null,
      units: 0,
      make: async () => {
        for (const caller of callers) {
          const answer = await subject.ask(ask("tools/list", subject.good(caller)), "setup");
          if (!Array.isArray(resultOf(answer)?.tools)) {
            throw new Untestable(
              `the good token of ${caller} was answered ${answerWords(answer)}`,
              "write a fresh tokens file for this server",
            );
          }
        }
        return `${callers.join(", ")}: HTTP 200 with the tools`;
      },
    },
  ];
}

/** The requirement that a bad token belongs to, by what is wrong with it. */
export function requirementOf({ recipe }: Pick<Credential, "recipe">, resource: string): RequirementId {
  if (recipe.expiredFor !== undefined) return "QZ-AUD-6";
  const { audience } = recipe;
  if (Array.isArray(audience)) {
    if (audience.includes(resource)) return "QZ-AUD-3";
    // No MUST forbids to admit a list that names this resource in another spelling.
    return audience.some((one) => typeof one === "string" && respells(one, resource)) ? "QZ-AUD-2" : "QZ-AUD-4";
  }
  if (typeof audience !== "string" || audience === "") return "QZ-AUD-4";
  return respells(audience, resource) ? "QZ-AUD-2" : "QZ-AUD-1";
}

/** Whether two URIs are equivalent by RFC 3986 §6.2.2 and §6.2.3, or differ in the path's trailing slash only. */
function respells(text: string, resource: string): boolean {
  const normal = (uri: string): string | undefined => {
    if (!URL.canParse(uri) || /[\s#]/.test(uri)) return undefined;
    const { href } = new URL(uri);
    return href
      .replace(/%([0-9A-Fa-f]{2})/g, (escaped, hex: string) => {
        const letter = String.fromCharCode(Number.parseInt(hex, 16));
        return /[A-Za-z0-9._~-]/.test(letter) ? letter : escaped.toUpperCase();
      })
      .replace(/^([^?]*?)\/(\?|$)/, "$1$2");
  };
  return normal(text) !== undefined && normal(text) === normal(resource);
}

/** An audience in words, of which a long one is cut. */
export function audienceWords(audience: Json | undefined): string {
  const text = audience === undefined || audience === null ? "absent" : JSON.stringify(audience);
  return text.length <= SHOWN ? text : `${text.slice(0, SHOWN)}... (${text.length} characters)`;
}

/** Characters of an audience that are shown. */
const SHOWN = 240;

/** P2 to P4, and a drawn bad token: the good token is admitted, the same request with the bad one is not. */
export function refusal(
  subject: Subject,
  { name, credential }: BadToken,
  control: (subject: Subject) => Promise<void> = goodTokenLists,
): Example {
  const { resource } = subject.file;
  const { audience, expiredFor } = credential.recipe;
  const held =
    expiredFor === undefined
      ? `a token of ${credential.recipe.caller} whose aud is ${audienceWords(audience)}`
      : `a token of ${credential.recipe.caller} that expired ${expiredFor} s ago`;
  return {
    requirement: requirementOf(credential, resource),
    row: name.replaceAll("_", " "),
    arguments: expiredFor === undefined ? encodedAudience(audience, resource) : encodedExpiry(expiredFor),
    units: 0,
    make: async () => {
      await control(subject);
      const answer = await subject.ask(ask("tools/list", credential), "probe");
      refused(answer, held);
      return `${held}: HTTP 401`;
    },
  };
}

/** The example of a claim about a bad token that the file does not hold. */
export function missingToken(subject: Subject, requirement: RequirementId, name: string, audience: Json): Example {
  const { resource } = subject.file;
  const recipe = { caller: "", audience };
  return {
    requirement,
    row: name.replaceAll("_", " "),
    arguments: requirement === "QZ-AUD-8" ? encodedRecipe(recipe, resource) : encodedAudience(audience, resource),
    units: 0,
    make: () => Promise.reject(new Untestable(`the tokens file holds no bad token ${name}`, "add it under bad_tokens")),
  };
}

/** The refusal of a bad token, or of none, in the broad caller's session; anything else fails the control. */
async function theRefusal(subject: Subject, bad: Credential | null): Promise<Exchange> {
  await goodTokenLists(subject);
  const answer = await subject.ask(ask("tools/list", bad, {}, subject.cast.broad), "probe");
  if (statusOf(answer) !== 401)
    throw new ControlFailed("what is to be refused is refused with 401", answerWords(answer));
  return answer;
}

const reduced = (subject: Subject, bad: Credential | null): Example["arguments"] =>
  bad ? encodedRecipe(bad.recipe, subject.file.resource, "") : null;

/** P5 and part of P6: a refusal has a Bearer challenge. */
export function challenged(subject: Subject, bad: BadToken | undefined): Example {
  const row = bad ? bad.name.replaceAll("_", " ") : "no credentials";
  return {
    requirement: "QZ-AUD-8",
    row,
    arguments: reduced(subject, bad?.credential ?? null),
    units: 0,
    make: async () => {
      const answer = await theRefusal(subject, bad?.credential ?? null);
      const challenge = bearerOf(answer);
      const broken = unreadable(answer);
      if (challenge && broken === undefined) return `${row}: Bearer ${[...challenge.parameters.keys()].join(", ")}`;
      const [field] = fieldValues(answer.response, "www-authenticate");
      throw new Violation({
        held: row,
        sent: askWords(answer.ask),
        received: `HTTP 401 with ${field === undefined ? "no WWW-Authenticate" : `WWW-Authenticate ${broken ?? field}`}`,
        expected: "a Bearer challenge, in fields that follow RFC 9110 §11.6.1",
        signature: broken === undefined ? "no challenge for Bearer" : "a challenge that no client can read",
      });
    },
  };
}

/** Part of P6: nothing is had without credentials, asked between two requests that are let in. */
export function nothingWithoutCredentials(subject: Subject): Example {
  const { broad } = subject.cast;
  return {
    requirement: "QZ-AUD-12",
    row: "POST tools/list",
    arguments: tuple("POST", "tools/list"),
    units: 0,
    make: async () => {
      await goodTokenLists(subject);
      const bare = await subject.ask(ask("tools/list", null, {}, broad), "probe");
      const good = await subject.ask(ask("tools/list", subject.good(broad), {}, broad), "control");
      const status = statusOf(good);
      if (status < 200 || status >= 500 || (status >= 300 && status < 400) || status === 401 || status === 403) {
        throw new ControlFailed("the same request with a good token passes the gate", answerWords(good));
      }
      refused(bare, "no credentials");
      return "no credentials: HTTP 401";
    },
  };
}

/** Part of P6: who sent no token is not told of an error. */
export function noCodeWithoutCredentials(subject: Subject): Example {
  return {
    requirement: "QZ-AUD-10",
    row: "no credentials",
    arguments: null,
    units: 0,
    make: async () => {
      const answer = await theRefusal(subject, null);
      const challenge = bearerOf(answer);
      if (!challenge) throw new ControlFailed("the refusal has a Bearer challenge", answerWords(answer));
      const code = challenge.parameters.get("error");
      if (code === undefined) return "a challenge without an error code";
      throw new Violation({
        held: "no credentials",
        sent: askWords(answer.ask),
        received: `a challenge with the error code ${code}`,
        expected: "a challenge without an error code",
        signature: "an error is named to who sent no token",
      });
    },
  };
}

/** P7: from a refusal to metadata of this resource. */
export function metadata(subject: Subject, bad: BadToken | undefined): Example {
  const { resource } = subject.file;
  const row = bad ? bad.name.replaceAll("_", " ") : "no credentials";
  return {
    requirement: "QZ-AUD-9",
    row,
    arguments: reduced(subject, bad?.credential ?? null),
    units: 0,
    make: async () => {
      const answer = await theRefusal(subject, bad?.credential ?? null);
      const violation = (received: string, expected: string, signature: string): Violation =>
        new Violation({
          held: "the challenge of a refusal",
          sent: askWords(answer.ask),
          received,
          expected,
          signature,
        });
      const url = bearerOf(answer)?.parameters.get("resource_metadata");
      if (url === undefined) {
        throw violation("a refusal without resource_metadata", "the parameter resource_metadata", "no metadata named");
      }
      const document = await subject.fetchDocument(url, "probe");
      const text = Buffer.from(document.response.body, "latin1").toString("utf8");
      const named = statusOf(document) === 200 ? objectOf(parseJson(text)).resource : undefined;
      if (named === resource) return `${row}: ${url} names ${resource}`;
      throw violation(
        `${url} answered HTTP ${statusOf(document)} with the resource ${named === undefined ? "absent" : JSON.stringify(named)}`,
        `HTTP 200 with the resource ${resource}`,
        "metadata of another resource",
      );
    },
  };
}

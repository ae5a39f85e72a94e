/**
 * Symbolic values as a history holds them: plain JSON in which `"!"` tags a value of the law (spec/schemas/history.json).
 * A history shows a token as its recipe, never as itself.
 */
import { decodeJwt, errors } from "jose";
import type { Json, JsonObject } from "./exchange.js";

/** Returns a tagged value. */
export function tagged(tag: string, members: JsonObject = {}): JsonObject {
  return { "!": tag, ...members };
}

export const member = (kind: string, name: string): JsonObject => tagged(kind, { name });
export const tuple = (...of: Json[]): JsonObject => tagged("tuple", { of });
export const day = (iso: string): JsonObject => tagged("date", { iso });

/** JSON data as a history holds it: an object with a `"!"` of its own is wrapped, so that it cannot pose as a tag. */
export function plain(value: Json): Json {
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  const members = Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
  return "!" in value ? tagged("dict", { of: members }) : members;
}

/** How a token differs from one that must be admitted: in its audience, in its expiry, or not at all. */
export interface Recipe {
  readonly caller: string;
  /** The `aud` claim where it is not ours; `null` stands for no such claim. */
  readonly audience?: Json;
  /** Seconds between the token's expiry and now, where it has expired. */
  readonly expiredFor?: number;
}

/** A token with its recipe. */
export interface Credential {
  readonly recipe: Recipe;
  readonly token: string;
  /** Who minted it, where the tokens file did not hold it: no session of the file's caller is that of such a token. */
  readonly issuer?: string;
}

/** An audience as the history writes it: URIs relative to the resource where it is made of strings. */
export function encodedAudience(audience: Json | undefined, resource: string): JsonObject {
  const uri = (text: string): JsonObject =>
    text === resource
      ? tagged("Uri", { edit: member("Edit", "SAME"), text: "" })
      : tagged("Uri", { edit: member("Edit", "LITERAL"), text });
  const written = (form: string, uris: JsonObject[], literal = ""): JsonObject =>
    tagged("Audience", { form: member("AudienceForm", form), uris: tuple(...uris), literal });
  if (audience === undefined) return written("STRING", [uri(resource)]);
  if (audience === null) return written("ABSENT", []);
  if (typeof audience === "string") return written("STRING", [uri(audience)]);
  if (Array.isArray(audience) && audience.every((item) => typeof item === "string")) {
    return written("LIST", audience.map(uri));
  }
  return written("LITERAL", [], JSON.stringify(audience));
}

export function encodedExpiry(seconds: number): JsonObject {
  return tagged("Claim", { name: "exp", value: tagged("SecondsFromNow", { seconds: -seconds }) });
}

/** A recipe as the history writes it; `caller` may be left open where an example names none. */
export function encodedRecipe(recipe: Recipe, resource: string, caller = recipe.caller): JsonObject {
  return tagged("TokenRecipe", {
    caller,
    audience: encodedAudience(recipe.audience, resource),
    signature: member("Signature", "OWN"),
    claims: tuple(...(recipe.expiredFor === undefined ? [] : [encodedExpiry(recipe.expiredFor)])),
    without: tuple(),
    issuer: "trusted",
    serial: 0,
  });
}

/** The payload of a token, read without verifying it: the prover holds no key and judges no signature. */
export function payloadOf(token: string): JsonObject | undefined {
  try {
    return decodeJwt(token);
  } catch (error) {
    if (error instanceof errors.JWTInvalid) return undefined;
    throw error;
  }
}

/** The way in which a bad token differs from a good one, or `undefined` when neither audience nor expiry says. */
export function recipeOf(token: string, caller: string, resource: string, nowSeconds: number): Recipe | undefined {
  const payload = payloadOf(token);
  if (!payload) return undefined;
  const { aud, exp } = payload;
  const ours = aud === resource;
  const expired = typeof exp === "number" && exp <= nowSeconds;
  if (!ours && !expired) return { caller, audience: aud ?? null };
  if (ours && expired) return { caller, expiredFor: Math.max(1, Math.floor(nowSeconds - exp)) };
  return undefined;
}

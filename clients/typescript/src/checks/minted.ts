/** Property X5: what becomes of tokens that an issuer which the server trusts mints for another resource than this. */
import type { Json, JsonObject } from "../exchange.js";
import { type Issuer, type Minted, PROVIDE, shown } from "../issuer.js";
import { ControlFailed, Untestable } from "../outcomes.js";
import { encodedAudience } from "../recipe.js";
import type { Example } from "../runner.js";
import { type Subject, TRUST } from "../subject.js";
import { goodTokenLists, refusal, requirementOf } from "./audience.js";
import type { Spelling } from "./spellings.js";

/** Claims in which two tokens of one caller may differ besides the audience: those about time, and the token's id. */
const EACH_ITS_OWN = ["aud", "exp", "iat", "nbf", "jti"];

function constantClaims(payload: JsonObject): string {
  return JSON.stringify(
    Object.entries(payload)
      .filter(([name]) => !EACH_ITS_OWN.includes(name))
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );
}

/**
 * A token for exactly this resource.
 * @throws Untestable when the issuer mints none.
 */
export async function tokenForUs(
  issuer: Issuer,
  caller: string,
  scopes: readonly string[],
  resource: string,
): Promise<Minted> {
  const minted = await issuer.mint(caller, scopes, [resource]);
  const { aud } = minted.payload;
  if (aud === resource) return minted;
  throw new Untestable(
    `the issuer ${issuer.url} wrote the audience ${shown(aud)} where ${resource} was asked`,
    PROVIDE,
  );
}

/**
 * The example of one spelling: a token for exactly this resource is admitted, one for that spelling is refused. Both are
 * minted here, and the example belongs to the requirement that what the issuer *wrote* falls under.
 */
export async function mintedElsewhere(
  subject: Subject,
  issuer: Issuer,
  { way, resources }: Spelling,
): Promise<Example> {
  const { broad } = subject.cast;
  const { resource, callers } = subject.file;
  const scopes = callers[broad]?.scopes ?? [];
  try {
    const good = await tokenForUs(issuer, broad, scopes, resource);
    const bad = await issuer.mint(broad, scopes, resources);
    const audience = bad.payload.aud ?? null;
    if (audience === resource) throw new Untestable(`asked for ${way}, the issuer wrote our own audience`, PROVIDE);
    if (constantClaims(good.payload) !== constantClaims(bad.payload)) {
      throw new Untestable(`asked for ${way}, the issuer changed more than the audience`, PROVIDE);
    }
    const [control, probe] = [
      subject.minted({ caller: broad }, good.token, issuer.url),
      subject.minted({ caller: broad, audience }, bad.token, issuer.url),
    ];
    return refusal(subject, { name: way, credential: probe }, async () => {
      try {
        await goodTokenLists(subject, control);
      } catch (error) {
        if (!(error instanceof ControlFailed)) throw error;
        const wanted = `a token that ${issuer.url} minted for exactly this resource lists the tools`;
        throw new ControlFailed(wanted, error.received, TRUST);
      }
    });
  } catch (error) {
    if (!(error instanceof Untestable)) throw error;
    const [first = null, ...more] = resources;
    const asked: Json = more.length > 0 ? [...resources] : first;
    return {
      requirement: requirementOf({ recipe: { caller: broad, audience: asked } }, resource),
      row: way,
      arguments: encodedAudience(asked, resource),
      units: 0,
      make: () => Promise.reject(error),
    };
  }
}

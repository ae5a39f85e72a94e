/**
 * oidc-provider as an authorization server for one or more remote MCP servers: client credentials (RFC 6749 §4.4),
 * resource indicators (RFC 8707), JWT access tokens. It serves on a free loopback port and imports nothing of this
 * project. What is not set here keeps its default.
 *
 *   node server.js --resource URI [--resource URI ...] [--any-resource] [--alg ES256|RS256] --client NAME [...]
 *
 * A client's secret is in the environment variable QUENCHZ_FIELD_SECRET_NAME (NAME in capitals). Keys are made anew at
 * each start and are in no file. SIGTERM ends it with exit status 0.
 */
import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { parseArgs } from "node:util";
import { errors, Provider } from "oidc-provider";

const SCOPE = "rates:read rates:history rates:admin";
const LIFETIME_SECONDS = 3600;

const { values: options } = parseArgs({
  options: {
    resource: { type: "string", multiple: true, default: [] },
    "any-resource": { type: "boolean", default: false },
    alg: { type: "string", default: "ES256" },
    client: { type: "string", multiple: true, default: [] },
  },
});

const pairs = {
  ES256: () => generateKeyPairSync("ec", { namedCurve: "P-256" }),
  RS256: () => generateKeyPairSync("rsa", { modulusLength: 2048 }),
};

function configuration() {
  return {
    clients: options.client.map((name) => ({
      client_id: name,
      client_secret: process.env[`QUENCHZ_FIELD_SECRET_${name.toUpperCase()}`],
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
    })),
    // Both kinds, as a server that is changing from one to the other has them.
    jwks: { keys: Object.entries(pairs).map(([alg, make]) => ({ ...make().privateKey.export({ format: "jwk" }), alg })) },
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        // By default this refuses every resource: which there are is the operator's to say.
        getResourceServerInfo: (_context, resource) => {
          if (!options["any-resource"] && !options.resource.includes(resource)) throw new errors.InvalidTarget();
          return {
            scope: SCOPE,
            accessTokenFormat: "jwt",
            accessTokenTTL: LIFETIME_SECONDS,
            jwt: { sign: { alg: options.alg } },
          };
        },
      },
    },
  };
}

// The issuer identifier holds the port, so the port comes first.
const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  server.on("request", new Provider(issuer, configuration()).callback());
  console.log(`oidc-provider ready: ${issuer}`);
});
process.once("SIGTERM", () => {
  server.close();
  server.closeAllConnections();
});

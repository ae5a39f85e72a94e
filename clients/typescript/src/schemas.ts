/**
 * The JSON Schemas of spec/schemas, the only files that both sides read. A built package has its own copies beside
 * this module; a checkout reads them where they stand.
 */
import { existsSync, readFileSync } from "node:fs";
import { type AnySchemaObject, Ajv2020, type ErrorObject, type ValidateFunction } from "ajv/dist/2020.js";

export type SchemaName = "tokens-file" | "report" | "history";

/** Returns the validator of a schema; `T` is what a valid document is. */
export function validatorOf<T>(name: SchemaName): ValidateFunction<T> {
  const packed = new URL(`./schemas/${name}.json`, import.meta.url);
  const source = existsSync(packed) ? packed : new URL(`../../../spec/schemas/${name}.json`, import.meta.url);
  const ajv = new Ajv2020({ allErrors: false, strict: false, formats: { uri: (text: string) => URL.canParse(text) } });
  return ajv.compile<T>(JSON.parse(readFileSync(source, "utf8")) as AnySchemaObject);
}

/** The first thing that a schema minds, without the value: it could be a token. */
export function firstProblem(errors: ErrorObject[] | null | undefined): string {
  const [error] = errors ?? [];
  return error ? `${error.instancePath || "the document"} ${error.message ?? "does not fit"}` : "it does not fit";
}

import { type Failed, withNext } from "../../src/core/display.ts";

/** What a person reads of a result that failed; empty: it did not fail. */
export function failureText(result: { readonly ok: true } | Failed): string {
  return result.ok ? "" : withNext(result);
}

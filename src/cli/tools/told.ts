import { EXIT } from "../../core/errors.ts";
import { fail } from "../fail.ts";

/** For what answers null where it could not be done: it has been told why. */
export function told(reason: string, code: number): null {
  fail(reason, code);
  return null;
}

/** The person wants no more of it. */
export function stopped(): null {
  return told("stopped; nothing was changed", EXIT.failed);
}

import { modelInPath, NOTHING_READ, type RequestFields } from "../../../src/metering/request.ts";
import { MODEL } from "../prompts.ts";

export { modelInPath, NOTHING_READ };

const FIELDS: RequestFields = { ...NOTHING_READ, model: MODEL };

/** Reads nothing of a body. */
export function readRequest(): RequestFields {
  return FIELDS;
}

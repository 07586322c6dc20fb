import type { Secret } from "../../../secret.ts";
import { denialOf, jsonOf, otherShape } from "../answers.ts";
import type { ConsoleClient, ConsoleResponse } from "../console.ts";
import { ConsoleFault } from "../console.ts";
import { fieldAt, flagAt, type JsonObject } from "../json.ts";
import { withoutEcho } from "./envelope.ts";

/**
 * What a path answers to a key alone. null: this key is not let in, which is no reason to pass over the others. Must be
 * counted against the budget by whoever asks.
 */
export async function askWithKey(
  client: ConsoleClient,
  path: string,
  key: Secret,
  about: string,
): Promise<unknown> {
  const answer = withoutEcho(await client.send({ method: "GET", path, bearer: key }), key);
  if (denialOf(answer) !== null) return null;
  const body = knownJson(answer, about);
  // The facts of a key say `code: true` where all others say `success`.
  if (flagAt(body, "success") === false || flagAt(body, "code") === false) return null;
  const data = fieldAt(body, "data");
  if (data === undefined) throw otherShape(about, "data");
  // Go writes a list that was never filled as null.
  return data ?? [];
}

/** Asked after the status, which was answered as it should be: a web page now says that this path is not known. */
function knownJson(answer: ConsoleResponse, about: string): JsonObject {
  try {
    return jsonOf(answer, about);
  } catch (error) {
    const kind = error instanceof ConsoleFault ? error.kind : null;
    const notKnown =
      answer.status === 404 || (kind === "not-a-console" && answer.status === 200 && answer.text !== "");
    throw notKnown ? tooOld() : error;
  }
}

/** Up to v0.10.7 a key is asked for in the address, where everybody on the way would log it: never. null: not known. */
export function isTooOld(version: string | null): boolean | null {
  const [, major, minor, patch] = (/^v?(\d+)\.(\d+)\.(\d+)/.exec(version ?? "") ?? []).map(Number);
  if (major === undefined || minor === undefined || patch === undefined) return null;
  // v0.0.0 is what a build of one's own calls itself.
  if (major + minor + patch === 0) return null;
  return major === 0 && (minor < 10 || (minor === 10 && patch < 8));
}

export function tooOld(): ConsoleFault {
  return new ConsoleFault(
    "other-shape",
    "is of a version that wants the key in the address; give it an access token",
  );
}

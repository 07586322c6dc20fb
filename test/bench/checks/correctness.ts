import { createHash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { Candidate } from "../candidates/candidate.ts";
import { ask } from "../load/ask.ts";
import { download } from "../load/scripts.ts";
import type { Scene } from "../processes/scene.ts";
import { BODY_SIZES, DOWNLOAD_BYTES, KEY, plainAnswer, requestBody, streamBody } from "../upstream/bodies.ts";

/** What a candidate was seen to do before it is measured. A wrong one is not measured at all. */
export interface Checked {
  readonly faults: readonly string[];
  /** Whether bodies reach the upstream byte for byte; some write them anew. */
  readonly bodiesUnchanged: boolean;
}

const EVENTS = 5;

/** @param large whether the large answer is measured, and so looked at: with one of them it takes seconds. */
export async function check(scene: Scene, { ways }: Candidate, large: boolean): Promise<Checked> {
  const faults: string[] = [];
  const body = requestBody(BODY_SIZES.large);
  for (const size of [requestBody(BODY_SIZES.small), body]) {
    const plain = await ask(ways.plain, size);
    if (plain.status !== 200 || !sameJson(plain.body.toString(), plainAnswer()))
      faults.push(
        `a body of ${size.length} bytes is answered ${plain.status}, not with the upstream's answer`,
      );
  }
  const seen = await arrived(ways.stream, body);
  if (seen === null) faults.push("what arrives at the upstream cannot be told");
  else {
    if (!seen.authorization?.startsWith(`Bearer ${KEY}`))
      faults.push("the key does not arrive at the upstream");
    if (!isDeepStrictEqual(seen.json, JSON.parse(body))) faults.push("the body arrives changed");
  }
  faults.push(...(await streamFaults(ways.stream)));
  if (large) {
    const { ok, bytes } = await download(scene, ways.download);
    if (!ok || bytes < DOWNLOAD_BYTES) faults.push(`of the large answer only ${bytes} bytes arrive`);
  }
  return { faults, bodiesUnchanged: seen?.sha256 === createHash("sha256").update(body).digest("hex") };
}

interface Arrived {
  readonly authorization: string | null;
  readonly sha256: string;
  readonly json: unknown;
}

async function arrived(way: Candidate["ways"]["stream"], body: string): Promise<Arrived | null> {
  const { status, body: answer } = await ask(way, body);
  if (status !== 200) return null;
  const { choices } = JSON.parse(answer.toString()) as { choices: { message: { content: string } }[] };
  return JSON.parse(choices[0]?.message.content ?? "null") as Arrived | null;
}

async function streamFaults(way: Candidate["ways"]["stream"]): Promise<string[]> {
  const { status, contentType, body } = await ask(way, streamBody(EVENTS));
  const text = body.toString();
  const stamps = [...text.matchAll(/t=(\d+) /g)].map(([, stamp]) => BigInt(stamp ?? 0));
  const inOrder = stamps.every((stamp, at) => at === 0 || stamp > (stamps[at - 1] ?? 0n));
  const whole = stamps.length === EVENTS - 1 && inOrder && text.trimEnd().endsWith("data: [DONE]");
  const right = status === 200 && contentType.startsWith("text/event-stream") && whole;
  return right ? [] : [`a stream of ${EVENTS} events arrives with ${stamps.length}, status ${status}`];
}

function sameJson(one: string, other: string): boolean {
  try {
    return isDeepStrictEqual(JSON.parse(one), JSON.parse(other));
  } catch {
    return false;
  }
}

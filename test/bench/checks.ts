import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Target } from "./connection.ts";
import { PATHS, type Prompt, promptBody } from "./prompts.ts";
import type { Running, Session } from "./session.ts";

/** No figure counts when the answers are wrong or a record is missing. */

const KB = 1000;

/** Throws when a candidate answers anything other than the upstream does. */
export async function checkAnswers(session: Session, candidate: Running): Promise<void> {
  for (const prompt of promptsToCheck(candidate.converts)) {
    const expected = await answerTo(session.upstream, prompt);
    const answer = await answerTo(candidate.target, prompt);
    session.countSent(candidate.target, 1);
    const isSame = candidate.converts
      ? textOf(answer.body) === textOf(expected.body)
      : answer.body.equals(expected.body);
    if (expected.status === 200 && answer.status === 200 && isSame) continue;
    const request = `a ${prompt.protocol} request of ${prompt.bytes} bytes${prompt.stream === null ? "" : " for a stream"}`;
    const start = answer.body.toString("utf8", 0, 300);
    throw new Error(`${candidate.name} answers ${request} wrongly (status ${answer.status}): ${start}`);
  }
}

function promptsToCheck(converts: boolean): Prompt[] {
  const prompts: Prompt[] = [];
  for (const kilobytes of [1, 20, 100, 500]) {
    const bytes = kilobytes * KB;
    prompts.push({ protocol: "chat", bytes, modelLast: false, stream: null });
    prompts.push({ protocol: "chat", bytes, modelLast: true, stream: null });
  }
  const stream = { events: 300, paceMs: 0 };
  prompts.push({ protocol: "chat", bytes: 100 * KB, modelLast: false, stream });
  if (!converts) prompts.push({ protocol: "messages", bytes: 100 * KB, modelLast: false, stream });
  return prompts;
}

async function answerTo(target: Target, prompt: Prompt): Promise<{ status: number; body: Buffer }> {
  const url = `http://127.0.0.1:${target.port}${target.basePath}${PATHS[prompt.protocol]}`;
  const headers = { ...target.headers, "content-type": "application/json" };
  const response = await fetch(url, { method: "POST", headers, body: promptBody(prompt) });
  return { status: response.status, body: Buffer.from(await response.arrayBuffer()) };
}

/** The text of an answer, plain or streamed. A gateway that converts may write the JSON around it differently. */
function textOf(body: Buffer): string {
  const parts: string[] = [];
  for (const match of body.toString("utf8").matchAll(/"content": ?("(?:[^"\\]|\\.)*")/g))
    parts.push(JSON.parse(match[1] ?? '""') as string);
  return parts.join("");
}

/** Throws unless keybearer's usage log has exactly one record, with tokens and cost, for each request sent to it. */
export function checkUsageLog(session: Session, candidate: Running): void {
  const folder = join(candidate.folder, "state", "usage");
  const ids = new Set<string>();
  let records = 0;
  let metered = 0;
  for (const name of readdirSync(folder)) {
    if (!name.endsWith(".jsonl")) continue;
    for (const text of readFileSync(join(folder, name), "utf8").split("\n")) {
      if (!text.includes('"kind":"close"')) continue;
      const line = JSON.parse(text) as { id: string; tokens_from: string; cost_microdollars: number | null };
      ids.add(line.id);
      records += 1;
      if (line.tokens_from === "reported" && (line.cost_microdollars ?? 0) > 0) metered += 1;
    }
  }
  const sent = session.sentTo(candidate.target);
  const found = `keybearer's usage log: ${records} records with ${ids.size} ids, ${metered} with tokens and cost, for ${sent} requests`;
  if (records !== sent || ids.size !== sent || metered !== sent) throw new Error(found);
  session.log(found);
}

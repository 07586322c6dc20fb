import type { ShownRecord } from "../api.ts";
import { findMessage, type MessageId, type Values } from "./messages/messages.ts";

/** What happened, and what to do about it; null: nothing here. */
export interface Advice {
  readonly problem: MessageId;
  readonly next: MessageId | null;
  /** What goes into `next`. */
  readonly values: Values;
}

interface Refused {
  readonly refusal: string | null;
  readonly tool: string | null;
  readonly model: string | null;
}

/** null: a code that this page does not know, of a newer daemon. */
export function refusalAdvice({ refusal, tool, model }: Refused): Advice | null {
  if (refusal === null) return { problem: "refusal.none", next: null, values: {} };
  const problem = findMessage(`refusal.${refusal}`);
  if (problem === null) return null;
  const values = { tool: tool ?? "<tool>", model: model ?? "<model>" };
  return { problem, next: findMessage(`refusal-next.${refusal}`), values };
}

/** Why the gateway refused, and what to do; null: it gave no cause, or one of a newer daemon. */
export function causeMessage(record: Pick<ShownRecord, "cause" | "cause_detail">): MessageId | null {
  return findMessage(`cause.${record.cause_detail}`) ?? findMessage(`cause.${record.cause}`);
}

/** The same refusal several times. */
export interface RefusedGroup {
  /** The newest of them. */
  readonly record: ShownRecord;
  readonly times: number;
}

/** By tool, reason and model, the newest first: a client that tries again and again would hide every other refusal. */
export function refusedGroups(records: readonly ShownRecord[]): RefusedGroup[] {
  const groups = new Map<string, RefusedGroup>();
  for (const record of records) {
    const key = JSON.stringify([record.tool, record.refusal, record.model]);
    const group = groups.get(key);
    groups.set(key, { record: group?.record ?? record, times: (group?.times ?? 0) + record.requests });
  }
  return [...groups.values()];
}

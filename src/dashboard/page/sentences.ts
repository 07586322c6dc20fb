import type { ToolStatus } from "../../control/tool-status.ts";
import type { ListedEvent, Said } from "../../events/event.ts";
import { isUsedUp } from "../../limits/format.ts";
import { BLIND_SPOTS } from "../../mirror/report/notable.ts";
import { REASONS } from "../../mirror/verdict.ts";
import { joined, spanInWords, timeInWords } from "./format.ts";
import { limitName, type ShownLimit } from "./limits.ts";
import { findMessage, type MessageId, type Translate, type Values } from "./messages/messages.ts";
import { causeMessage } from "./refusals.ts";

/* What the daemon says in English, in the reader's language where a code or a state says it, too. */

interface Sentence {
  readonly text: string | null;
  /** What to do, in the daemon's words: mostly a command. null: nothing, or the text says it. */
  readonly next: string | null;
}

/** An event of another version has the daemon's own sentence. */
export function eventInWords({ said, message, next }: ListedEvent, now: number, t: Translate): Sentence {
  const id = said === undefined ? null : findMessage(`event.${said.code}`);
  if (said === undefined || id === null) return { text: message, next };
  const { more, cause = "", problem = "" } = said.values;
  const known = causeMessage({ cause: String(cause), cause_detail: null });
  const words = known === null ? gatewayProblem(String(problem), t) : t(known);
  const sentence = t(id, { ...valuesInWords(said, now, t), problem: words });
  const text = more === undefined ? sentence : t("event.more", { sentence, n: more });
  return { text, next };
}

function valuesInWords({ values }: Said, now: number, t: Translate): Values {
  const { limit, per = null } = values;
  const words: Record<string, string | number> = { ...values };
  for (const [name, value] of Object.entries(values)) {
    if (name.endsWith("_at")) words[name] = timeInWords(Number(value), now);
    if (name.endsWith("_ms")) words[name] = spanInWords(Number(value), t);
  }
  if (limit !== undefined) words.limit = limitName({ limit, per } as Pick<ShownLimit, "limit" | "per">, t);
  return words;
}

/** tool codex, key …a1b2, config.yaml */
export function subjectInWords(subject: string, t: Translate): string {
  const [type = "", name] = subject.split(" ", 2);
  const id = findMessage(`subject.${type}`);
  return id === null ? subject : t(id, { name: name ?? "" });
}

/** Why a gateway cannot be reached: "nothing listens there (ECONNREFUSED)". */
export function gatewayProblem(problem: string, t: Translate): string {
  const [, code = ""] = /\(([A-Z_]+)\)$/.exec(problem) ?? [];
  const id = findMessage(`network.${code}`);
  return id === null ? problem : `${t(id)} (${code})`;
}

/** Why a tool does not work, or soon may not. For what its page has a button, there is no more to say. */
export function toolProblem(tool: ToolStatus, now: number, t: Translate): Sentence {
  const { state, group, expires, limits, refused, why, next } = tool;
  switch (state) {
    case "disabled":
    case "no-token":
      return { text: t(`why.${state}`), next: null };
    case "expired":
      return { text: t("why.expired", { when: timeInWords(expires ?? now, now) }), next: null };
    case "group-disabled":
      return { text: t("why.group-disabled", { group: group ?? "" }), next };
    case "needs-trust":
      return { text: `${t("card.held.text")} ${why ?? ""}`, next: null };
    case "at-limit": {
      const full = limits.filter((limit) => limit.limit !== "concurrent" && isUsedUp(limit));
      const names = full.map((limit) => limitName(limit, t));
      return { text: t("why.at-limit", { limits: joined(names, t) }), next: null };
    }
    case "key-refused": {
      const known =
        refused === null ? null : causeMessage({ cause: refused.cause, cause_detail: refused.detail });
      return { text: known === null ? why : t(known), next };
    }
    default:
      return { text: why, next };
  }
}

/** Of "enable it in the console, or replace it: keybearer tools rotate codex" the command; null: it ends in none. */
export function commandIn(next: string): string | null {
  return /(?:^|: )(keybearer [^;:]+)$/.exec(next)?.[1] ?? null;
}

/** Why a row or a request has its verdict. */
export function reasonInWords(reason: string, t: Translate): string {
  return translated(reason, REASON_PARTS, t);
}

/** What the leak alarm cannot see. */
export function blindSpotInWords(spot: string, t: Translate): string {
  return translated(spot, BLIND_PARTS, t);
}

/** The parts of a sentence that are in a table of the daemon's, in the reader's language. */
function translated(sentence: string, parts: readonly Part[], t: Translate): string {
  let text = sentence;
  for (const { id, pattern } of parts) {
    const found = pattern.exec(text);
    if (found !== null) text = text.replace(found[0], () => t(id, { ...found.groups }));
  }
  return text;
}

interface Part {
  readonly id: MessageId;
  /** With the names and numbers that it can be about. */
  readonly pattern: RegExp;
}

function partsOf(prefix: "reason" | "blind", sentences: Readonly<Record<string, string>>): Part[] {
  return Object.entries(sentences).map(([code, words]) => {
    const source = words.replace(/[.()]/g, "\\$&").replace(/\{(\w+)\}/g, "(?<$1>[^\\s;]+)");
    return { id: `${prefix}.${code}` as MessageId, pattern: new RegExp(source) };
  });
}

const REASON_PARTS = partsOf("reason", REASONS);
const BLIND_PARTS = partsOf("blind", BLIND_SPOTS);

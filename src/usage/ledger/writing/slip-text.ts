import { jsonText } from "../../../logger.ts";
import type { Protocol } from "../../../refusal.ts";
import type { Opening } from "../../record.ts";
import { isSameOpeningKind, OPENING_KIND } from "./opening-parts.ts";
import { soundOpening } from "./sound.ts";

const COMMON: string[] = [...OPENING_KIND];

/** Writes openings as lines, each of them JSON. What many have in common is not made into text again for each. */
export class SlipText {
  #like: Opening | null = null;
  #common = "";

  /** It begins with the line break, so that it does not depend on how the one before it ended. */
  of(opening: Opening): string {
    if (this.#like === null || !isSameOpeningKind(this.#like, opening)) {
      this.#like = opening;
      this.#common = JSON.stringify(opening, COMMON).slice(1);
    }
    return (
      `\n{"id":${jsonText(opening.id)},"started_at":${opening.started_at},"waited_ms":${opening.waited_ms},` +
      `"held_tokens":${opening.held_tokens},"held_microdollars":${opening.held_microdollars},` +
      `"admitted_at":${opening.admitted_at},${this.#common}`
    );
  }
}

/** null: a line that was cut off, or none of ours. */
export function openingIn(line: string): Opening | null {
  let found: Partial<Record<keyof Opening, unknown>>;
  try {
    found = JSON.parse(line);
  } catch {
    return null;
  }
  if (found === null || typeof found !== "object") return null;
  const id = text(found.id);
  const startedAt = number(found.started_at);
  if (id === null || id === "" || startedAt === null) return null;
  return soundOpening({
    id,
    started_at: startedAt,
    tool: text(found.tool),
    gateway: text(found.gateway),
    group: text(found.group),
    multiplier: number(found.multiplier) ?? 1,
    key: text(found.key),
    protocol: (text(found.protocol) ?? "openai") as Protocol,
    method: text(found.method) ?? "",
    endpoint: text(found.endpoint) ?? "",
    model: text(found.model),
    process: text(found.process),
    waited_ms: number(found.waited_ms) ?? 0,
    held_tokens: number(found.held_tokens),
    held_microdollars: number(found.held_microdollars),
    admitted_at: number(found.admitted_at),
  });
}

function text(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function number(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}

import { jsonText } from "../../../logger.ts";
import type { Protocol } from "../../../refusal.ts";
import type { Opening } from "../../record.ts";
import { isSameOpeningKind, OPENING_KIND } from "./opening-parts.ts";
import { soundOpening } from "./sound.ts";

const COMMON: string[] = [...OPENING_KIND];
/** Of one unit of a text. */
const MOST_BYTES = 3;

/** At first; an id of ours and the numbers take less. */
const ROOM = 256;

/**
 * Writes openings as lines, each of them JSON, in the bytes of UTF-8. What many have in common is not made into text and
 * bytes again for each: it stands at the beginning of one buffer, and what is a record's own is written behind it.
 */
export class SlipText {
  #like: Opening | null = null;
  #bytes = Buffer.alloc(0);
  /** How many of the bytes hold what many have in common. */
  #common = 0;

  /** The last line, at their beginning. */
  get bytes(): Uint8Array {
    return this.#bytes;
  }

  /**
   * Answers how many bytes the line has. It begins with the line break, so that it does not depend on how the one before it
   * ended.
   */
  write(opening: Opening): number {
    if (this.#like === null || !isSameOpeningKind(this.#like, opening)) this.#begin(opening);
    const own =
      `,"id":${jsonText(opening.id)},"started_at":${opening.started_at},"waited_ms":${opening.waited_ms},` +
      `"held_tokens":${opening.held_tokens},"held_microdollars":${opening.held_microdollars},` +
      `"admitted_at":${opening.admitted_at}}`;
    this.#makeRoom(this.#common + own.length * MOST_BYTES);
    return this.#common + this.#bytes.write(own, this.#common);
  }

  #begin(opening: Opening): void {
    const common = `\n${JSON.stringify(opening, COMMON).slice(0, -1)}`;
    this.#like = opening;
    this.#common = 0;
    this.#makeRoom(common.length * MOST_BYTES + ROOM);
    this.#common = this.#bytes.write(common);
  }

  #makeRoom(size: number): void {
    if (this.#bytes.length >= size) return;
    const larger = Buffer.alloc(size);
    this.#bytes.copy(larger, 0, 0, this.#common);
    this.#bytes = larger;
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

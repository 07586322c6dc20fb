import type { Model } from "./models.ts";
import type { Ask } from "./protocols/protocol.ts";
import { CHARACTERS_PER_TOKEN, countTokens } from "./tokens.ts";

/** The words of an answer, and the tokens thought before the first of them. */
export interface Words {
  readonly pieces: readonly string[];
  readonly reasoning: number;
  readonly truncated: boolean;
}

const THOUGHT =
  "The person writes to the sandbox. No model is behind it, so greet them and say their words back. ";
/** What a cut may leave of a character outside the first plane; it would not survive UTF-8. */
const HALF_A_PAIR = /[\uD800-\uDBFF]$/;
const MOST_ECHOED = 120;

/** The same question always has the same answer, so that a run can be compared with another. */
export function friendlyAnswer(ask: Ask): string {
  // Only the beginning is looked at: the text may be as long as a body may be.
  const said = ask.lastUserText
    .slice(0, MOST_ECHOED * 10)
    .replace(/\s+/g, " ")
    .trim();
  const heard = said === "" ? "You sent no text." : `You wrote: ${shortened(said)}`;
  return (
    `Hello from the keybearer sandbox! This is ${ask.model}; no real model is behind it, ` +
    `so nothing you send here leaves this machine. ${heard}`
  );
}

export function wordsOf(answer: string, model: Model, maxTokens: number | null): Words {
  const wanted = model.reasons ? countTokens(THOUGHT) : 0;
  const reasoning = Math.min(wanted, maxTokens ?? wanted);
  const room = maxTokens === null ? Number.POSITIVE_INFINITY : (maxTokens - reasoning) * CHARACTERS_PER_TOKEN;
  const text = answer.length <= room ? answer : answer.slice(0, room).replace(HALF_A_PAIR, "");
  return { pieces: text.match(/\S+\s*|\s+/g) ?? [], reasoning, truncated: text.length < answer.length };
}

function shortened(text: string): string {
  // By code points, for the same reason.
  const points = [...text];
  return points.length <= MOST_ECHOED ? text : `${points.slice(0, MOST_ECHOED).join("")}…`;
}

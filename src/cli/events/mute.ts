import { parseDuration } from "../../config/values.ts";
import { askDaemon } from "../../control/client.ts";
import type { EventsAnswer, MuteRequest } from "../../control/routes.ts";
import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import { DAY_MS } from "../../core/units.ts";
import { fail, print } from "../ui/messages.ts";
import { commandPaths } from "../ui/stdio.ts";
import { timeOfDay } from "../ui/units.ts";

export interface MuteOptions {
  readonly for?: string;
  readonly off?: boolean;
}

const MAX_DAYS = 31;

/** `keybearer events mute` */
export async function mute(words: readonly string[], options: MuteOptions): Promise<void> {
  const subject = subjectOf(words);
  const now = Date.now();
  const until = readEnd(options, now);
  if (typeof until === "string") return fail(until, EXIT.usage);
  const request: MuteRequest = { subject, until };
  const asked = await askDaemon<Pick<EventsAnswer, "mutes">>(commandPaths(), "POST", "/mute", request);
  if (!asked.ok) return fail(asked, EXIT.failed);
  if (until === null) return print(`events of ${subject} are sent again`);
  print(`events of ${subject} are not sent until ${timeOfDay(until, now)}; ${advice.events()} lists them`);
  print(`to send them again: ${advice.unmute(subject)}`);
}

/** The name of a key begins with …, which most keyboards cannot type. */
function subjectOf(words: readonly string[]): string {
  return words.join(" ").replace(/^key (?!…)/, "key …");
}

/** null: it is muted no longer. A text: what is wrong. */
function readEnd(options: MuteOptions, now: number): number | null | string {
  if (options.off && options.for !== undefined) return "--for and --off exclude each other";
  if (options.off) return null;
  if (options.for === undefined) return "say how long: --for 8h, or --off";
  const read = parseDuration(options.for);
  if ("problem" in read) return `--for takes a time such as 8h: ${read.problem}`;
  if (read.value <= 0 || read.value > MAX_DAYS * DAY_MS)
    return `--for takes a time of at most ${MAX_DAYS} days, such as 8h`;
  return now + read.value;
}

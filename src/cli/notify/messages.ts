import { advice } from "../../core/advice.ts";
import type { ChannelStatus, NotifyStatus } from "../../notify/status.ts";
import { formatNote } from "../ui/messages.ts";
import { timeOfDay } from "../ui/units.ts";

/** alerts: desktop, ops. Then each channel that does not work or has something waiting. */
export function notifyLines(notify: NotifyStatus, now: number, width: number): string[] {
  const { channels, quiet, problem } = notify;
  const names = channels.map(({ name }) => name).join(", ");
  const hours = quiet ? "; quiet hours, so only critical ones are sent now" : "";
  const what = channels.length === 0 ? "alerts: sent nowhere" : `alerts: sent to ${names}${hours}`;
  const lines = [formatNote({ what, next: null }, width)];
  for (const channel of channels) {
    const described = describeChannel(channel, now);
    if (described === null) continue;
    const next = channel.next ?? (channel.state === "failing" ? advice.notifyTest(channel.name) : null);
    lines.push(formatNote({ what: `  ${channel.name}: ${described}`, next }, width));
  }
  if (problem !== null)
    lines.push(
      formatNote({ what: `  alerts that wait are kept in memory only: ${problem}`, next: null }, width),
    );
  return lines;
}

/** failing since 14:02: it answered 503; 3 wait. null: it works, and nothing waits. */
export function describeChannel(channel: ChannelStatus, now: number): string | null {
  const { state, since, why, waiting, lost } = channel;
  const parts: string[] = [];
  if (state === "failing") parts.push(`failing since ${timeOfDay(since ?? now, now)}: ${why}`);
  else if (why !== null) parts.push(why);
  // Without a desktop they wait until a person logs in, and nothing is wrong.
  if (waiting > 0 && state !== "absent") parts.push(`${waiting} ${waiting === 1 ? "waits" : "wait"}`);
  if (lost > 0) parts.push(`${lost} given up`);
  return parts.length === 0 ? null : parts.join("; ");
}

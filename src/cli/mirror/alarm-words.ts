import { alarmClaim, alarmRemedy } from "../../mirror/report/messages.ts";
import type { Alarm } from "../../mirror/report/shape.ts";
import { count } from "../../usage/reports/format.ts";
import { indentedNote } from "../ui/messages.ts";
import { printable, wrap } from "../ui/text.ts";
import { joinNames, money, timeOfDay } from "../ui/units.ts";

/** An alarm as `mirror`, `status` and `mirror sync` print it: what happened, why a suspicion is one, and what to do. */
export function alarmInWords(alarm: Alarm, now: number, width: number): string[] {
  const { certain, reason, gateway } = alarm;
  const below = (what: string, next: string | null = null) => indentedNote({ what, next }, width);
  return [
    wrap(printable(`${alarmWord(alarm)}  ${alarmSentence(alarm, now)}`), width),
    ...(certain || reason === null ? [] : below(`why: ${reason}`)),
    ...below(remedyInWords(alarm, now)),
    ...below("seen and handled", `keybearer mirror ack ${gateway}`),
  ];
}

export function alarmWord({ certain }: Alarm): string {
  return certain ? "ALARM" : "SUSPECTED";
}

/** key …a1b2 of codex was used outside keybearer: 3 requests, $0.42, models gpt-5.1, first 14:02, last 14:09 */
export function alarmSentence(alarm: Alarm, now: number): string {
  const { models, ips, billed_microdollars: billed } = alarm;
  const facts = [
    count(alarm.count, "request"),
    money(billed),
    ...(models.length === 0 ? [] : [`models ${joinNames(models)}`]),
    `first ${timeOfDay(alarm.first_at, now)}`,
    `last ${timeOfDay(alarm.last_at, now)}`,
    ...(ips.length === 0 ? [] : [`from ${joinNames(ips)}`]),
  ];
  return `${alarmClaim(alarm)}: ${facts.join(", ")}`;
}

export function remedyInWords(alarm: Alarm, now: number): string {
  return alarmRemedy(alarm, (at) => timeOfDay(at, now));
}

/** For several gateways: the certain ones first. */
export function certainFirst(alarms: readonly Alarm[]): Alarm[] {
  return alarms.toSorted((a, b) => Number(b.certain) - Number(a.certain));
}

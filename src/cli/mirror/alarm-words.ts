import { alarmRemedy } from "../../mirror/alarm.ts";
import type { Alarm } from "../../mirror/report/shape.ts";
import { count } from "../../usage/reports/format.ts";
import { wrapped } from "../columns.ts";
import { noteBelow } from "../note.ts";
import { visible } from "../table.ts";
import { listed, money, timeOfDay } from "./amounts.ts";

/** A key that somebody else uses: who, how much, since when, and what to do now. */
export function alarmInWords(alarm: Alarm, now: number, width: number): string[] {
  return [
    wrapped(visible(`ALARM  ${alarmSentence(alarm, now)}`), width),
    ...noteBelow({ what: alarmRemedy(alarm), next: null }, width),
    ...noteBelow({ what: "seen and handled", next: `keybearer mirror ack ${alarm.gateway}` }, width),
  ];
}

/** key …a1b2 of codex was used outside keybearer: 3 requests, $0.42, models gpt-5.1, first 14:02, last 14:09 */
export function alarmSentence(alarm: Alarm, now: number): string {
  const { key, tools, models, ips, billed_microdollars: billed } = alarm;
  const whose = tools.length === 0 ? "" : ` of ${listed(tools)}`;
  const facts = [
    count(alarm.count, "request"),
    money(billed),
    ...(models.length === 0 ? [] : [`models ${listed(models)}`]),
    `first ${timeOfDay(alarm.first_at, now)}`,
    `last ${timeOfDay(alarm.last_at, now)}`,
    ...(ips.length === 0 ? [] : [`from ${listed(ips)}`]),
  ];
  return `key ${key}${whose} was used outside keybearer: ${facts.join(", ")}`;
}

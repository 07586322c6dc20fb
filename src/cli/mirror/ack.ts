import { askDaemon } from "../../control/client.ts";
import { findPlaces } from "../../places.ts";
import { EXIT } from "../../start-failure.ts";
import { count } from "../../usage/reports/format.ts";
import { atTerminal, saysYes } from "../ask.ts";
import { screenOf, wrapped } from "../columns.ts";
import { fail } from "../fail.ts";
import { say } from "../say.ts";
import { visible } from "../table.ts";
import { alarmSentence } from "./alarm-words.ts";
import { readConsoles } from "./consoles.ts";

export async function ack(gateway: string | undefined): Promise<void> {
  // Whoever uses a stolen key on this machine must not be able to silence the alarm with a script.
  if (!atTerminal()) {
    const typed = gateway === undefined ? "" : ` ${gateway}`;
    return fail(
      `ack wants a person at a terminal. open one and type: keybearer mirror ack${typed}`,
      EXIT.usage,
    );
  }
  const { socket } = findPlaces();
  const reports = await readConsoles(socket, gateway);
  if (reports === null) return;
  const alarms = reports.flatMap((report) => report.alarms);
  if (alarms.length === 0) return say("there is no alarm to acknowledge");
  const now = Date.now();
  const { width } = screenOf(process.env, process.stdout.columns);
  for (const alarm of alarms)
    process.stdout.write(`${wrapped(visible(`${alarm.gateway}: ${alarmSentence(alarm, now)}`), width)}\n`);
  const standing = alarms.filter(({ replaced }) => !replaced).map(({ key }) => key);
  if (standing.length > 0)
    say(`${standing.join(" and ")} still works for whoever has it, until it is deleted in the console`);
  if (!(await saysYes("acknowledge this?"))) return fail("not acknowledged; nothing changed", EXIT.failed);
  let acknowledged = 0;
  // One by one, and up to what was shown: what came while the person read was not seen, and stays.
  for (const alarm of alarms) {
    const { gateway, key, last_at, count: seen } = alarm;
    const heard = { gateway, key, last_at, count: seen };
    const done = await askDaemon<{ acknowledged: number | null }>(socket, "POST", "/ack", heard);
    if (!done.ok) return fail(done.reason, EXIT.failed);
    if (done.value.acknowledged === null)
      return fail(`more came meanwhile than was shown → keybearer mirror ack ${gateway}`, EXIT.failed);
    acknowledged += done.value.acknowledged;
  }
  say(`acknowledged ${count(acknowledged, "row")}; the next one raises the alarm again`);
}

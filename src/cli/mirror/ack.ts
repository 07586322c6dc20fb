import { askDaemon } from "../../control/client.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths } from "../../core/paths.ts";
import { count } from "../../usage/reports/format.ts";
import { fail, print } from "../ui/messages.ts";
import { confirm } from "../ui/prompts.ts";
import { isInteractive, stdoutScreen } from "../ui/terminal.ts";
import { printable, wrap } from "../ui/text.ts";
import { alarmSentence, remedyInWords } from "./alarm-words.ts";
import { readConsoles } from "./consoles.ts";

export async function ack(gateway: string | undefined): Promise<void> {
  // A program that uses a stolen key on this machine must not be able to silence the alarm.
  if (!isInteractive()) {
    const typed = gateway === undefined ? "" : ` ${gateway}`;
    return fail(
      `ack needs a person at a terminal. open one and type: keybearer mirror ack${typed}`,
      EXIT.usage,
    );
  }
  const { socket } = findPaths();
  const reports = await readConsoles(socket, gateway);
  if (reports === null) return;
  const alarms = reports.flatMap((report) => report.alarms);
  if (alarms.length === 0) return print("there is no alarm to acknowledge");
  const now = Date.now();
  const { width } = stdoutScreen();
  for (const alarm of alarms)
    process.stdout.write(`${wrap(printable(`${alarm.gateway}: ${alarmSentence(alarm, now)}`), width)}\n`);
  for (const alarm of alarms)
    if (alarm.certain && !alarm.replaced)
      print(`${alarm.key} still works for others: ${remedyInWords(alarm, now)}`);
  if (!(await confirm("acknowledge this?"))) return fail("not acknowledged; nothing changed", EXIT.failed);
  let acknowledged = 0;
  // One by one, and only what was shown: rows that came meanwhile keep their alarm.
  for (const alarm of alarms) {
    const { gateway, key, certain, last_at, count: seen } = alarm;
    const heard = { gateway, key, certain, last_at, count: seen };
    const done = await askDaemon<{ acknowledged: number | null }>(socket, "POST", "/ack", heard);
    if (!done.ok) return fail(done.reason, EXIT.failed);
    if (done.value.acknowledged === null)
      return fail(`more rows came meanwhile → keybearer mirror ack ${gateway}`, EXIT.failed);
    acknowledged += done.value.acknowledged;
  }
  print(`acknowledged ${count(acknowledged, "row")}; the next one raises the alarm again`);
}

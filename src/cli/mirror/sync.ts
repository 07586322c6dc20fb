import { setTimeout as pause } from "node:timers/promises";
import { askDaemon } from "../../control/client.ts";
import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import type { ConsoleStatus, MirrorReport } from "../../mirror/report/shape.ts";
import { count } from "../../usage/reports/format.ts";
import { bar } from "../ui/chart.ts";
import { fail, formatNote, print, printLayout, printText } from "../ui/messages.ts";
import { agrees } from "../ui/prompts.ts";
import { commandPaths, stdio } from "../ui/stdio.ts";
import { isInteractive, type Screen, stdoutScreen } from "../ui/terminal.ts";
import { printable, truncate } from "../ui/text.ts";
import { readConsoles } from "./consoles.ts";
import {
  alarmLines,
  alarmSentence,
  colorAlarms,
  consoleProblem,
  formatProgress,
  formatRemedy,
  headline,
} from "./messages.ts";

const POLL_MS = 300;

/** `keybearer mirror sync` */
export async function sync(gateway: string | undefined): Promise<void> {
  const paths = commandPaths();
  const reports = await readConsoles(paths, gateway);
  if (reports === null) return;
  for (const report of reports) await syncOne(paths, report.gateway);
}

async function syncOne(paths: Paths, gateway: string): Promise<void> {
  const begun = await askDaemon<ConsoleStatus>(paths, "POST", `/sync/${encodeURIComponent(gateway)}`, {});
  if (!begun.ok) return fail({ ...begun, problem: `${gateway}: ${begun.problem}` }, EXIT.failed);
  const progress = new SyncProgress(gateway);
  const onInterrupt = () => {
    progress.clear();
    print(`the sync continues in the background → ${advice.mirror()}`);
    process.exit(EXIT.failed);
  };
  process.once("SIGINT", onInterrupt);
  const report = await waitForSync(paths, gateway, progress);
  process.off("SIGINT", onInterrupt);
  progress.clear();
  if (report !== null) printResult(report);
}

/** null: it can no longer be read, and the reason was printed. */
async function waitForSync(
  paths: Paths,
  gateway: string,
  progress: SyncProgress,
): Promise<MirrorReport | null> {
  for (;;) {
    const reports = await readConsoles(paths, gateway);
    const report = reports?.[0] ?? null;
    if (report === null || report.state !== "syncing") return report;
    progress.show(report);
    await pause(POLL_MS);
  }
}

function printResult(report: MirrorReport): void {
  const now = Date.now();
  const { width } = stdoutScreen();
  for (const alarm of report.alarms)
    printLayout(`${colorAlarms(alarmLines(alarm, now, width).join("\n"))}\n`);
  printText(`${report.gateway}: ${headline(report, now)}`);
  const problem = consoleProblem(report, now);
  if (problem === null) return;
  const note = formatNote(problem, width);
  if (report.state === "ok") stdio().stdout.write(`${note}\n`);
  else fail(note, EXIT.failed);
}

const BAR_WIDTH = 30;

/** On a terminal a bar that grows, otherwise a line for each change. */
class SyncProgress {
  readonly #gateway: string;
  readonly #screen: Screen = stdoutScreen();
  readonly #isTerminal = stdio().stdout.isTTY === true;
  #shown = "";

  constructor(gateway: string) {
    this.#gateway = gateway;
  }

  show(status: ConsoleStatus): void {
    const { progress } = status;
    const text = printable(`${this.#gateway}: reading${formatProgress(status, Date.now())}`);
    if (text === this.#shown) return;
    this.#shown = text;
    if (!this.#isTerminal) {
      print(text);
      return;
    }
    const drawn = progress?.total ? progressBar(progress.done, progress.total, this.#screen.utf8) : "";
    stdio().stdout.write(`\r\u001b[K${truncate(`${drawn}${text}`, this.#screen.width - 1)}`);
  }

  clear(): void {
    if (this.#isTerminal && this.#shown !== "") stdio().stdout.write("\r\u001b[K");
  }
}

function progressBar(done: number, total: number, utf8: boolean): string {
  // The console may get more rows while it is read, so done may exceed total.
  const drawn = bar(Math.min(done, total), total, BAR_WIDTH, utf8).padEnd(BAR_WIDTH);
  return utf8 ? `▕${drawn}▏ ` : `[${drawn}] `;
}

/** `keybearer mirror ack` */
export async function ack(gateway: string | undefined): Promise<void> {
  // A program on this machine that uses a stolen key must not be able to silence the alarm.
  if (!isInteractive()) {
    const typed = advice.mirrorAck(gateway ?? null);
    return fail(`ack needs a person at a terminal. open one and type: ${typed}`, EXIT.usage);
  }
  const paths = commandPaths();
  const reports = await readConsoles(paths, gateway);
  if (reports === null) return;
  const alarms = reports.flatMap((report) => report.alarms);
  if (alarms.length === 0) return print("there is no alarm to acknowledge");
  const now = Date.now();
  for (const alarm of alarms) printText(`${alarm.gateway}: ${alarmSentence(alarm, now)}`);
  for (const alarm of alarms)
    if (alarm.certain && !alarm.replaced)
      printText(`${alarm.key} still works for others: ${formatRemedy(alarm, now)}`);
  if (!(await agrees("acknowledge this?", "no", "acknowledged"))) return;
  let acknowledged = 0;
  // The daemon acknowledges only the rows that were shown here; rows that came since keep their alarm.
  for (const alarm of alarms) {
    const { gateway, key, certain, last_at } = alarm;
    const shown = { gateway, key, certain, last_at, count: alarm.count };
    const done = await askDaemon<{ acknowledged: number | null }>(paths, "POST", "/ack", shown);
    if (!done.ok) return fail(done, EXIT.failed);
    if (done.value.acknowledged === null)
      return fail(
        { problem: "more rows arrived in the meantime", next: advice.mirrorAck(gateway) },
        EXIT.failed,
      );
    acknowledged += done.value.acknowledged;
  }
  print(`acknowledged ${count(acknowledged, "row")}; the next one raises the alarm again`);
}

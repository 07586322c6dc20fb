import { setTimeout as wait } from "node:timers/promises";
import { askDaemon } from "../../control/client.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths } from "../../core/paths.ts";
import type { ConsoleStatus, MirrorReport } from "../../mirror/report/shape.ts";
import { bar } from "../ui/chart.ts";
import { fail, formatNote } from "../ui/messages.ts";
import { type Screen, stdoutScreen } from "../ui/terminal.ts";
import { printable, truncate, wrap } from "../ui/text.ts";
import { alarmInWords } from "./alarm-words.ts";
import { readConsoles } from "./consoles.ts";
import { headline, progressInWords, trouble } from "./headline.ts";

const BETWEEN_MS = 300;
const BAR_CELLS = 30;

export async function sync(gateway: string | undefined): Promise<void> {
  const { socket } = findPaths();
  const reports = await readConsoles(socket, gateway);
  if (reports === null) return;
  for (const report of reports) await syncOne(socket, report.gateway);
}

async function syncOne(socket: string, gateway: string): Promise<void> {
  const begun = await askDaemon<ConsoleStatus>(socket, "POST", `/sync/${encodeURIComponent(gateway)}`, {});
  if (!begun.ok) return fail(`${gateway}: ${begun.reason}`, EXIT.failed);
  const screen = stdoutScreen();
  const meter = createMeter(gateway, screen);
  const leave = () => {
    meter.clear();
    process.stdout.write("the sync goes on without you → keybearer mirror\n");
    process.exit(EXIT.failed);
  };
  process.once("SIGINT", leave);
  try {
    const report = await untilOver(socket, gateway, meter);
    meter.clear();
    if (report !== null) tell(report, screen);
  } finally {
    process.off("SIGINT", leave);
  }
}

async function untilOver(socket: string, gateway: string, meter: Meter): Promise<MirrorReport | null> {
  for (;;) {
    const reports = await readConsoles(socket, gateway);
    const [report] = reports ?? [];
    if (report === undefined || report.state !== "syncing") return report ?? null;
    meter.show(report.progress);
    await wait(BETWEEN_MS);
  }
}

function tell(report: MirrorReport, { width }: Screen): void {
  const now = Date.now();
  const lines = report.alarms.flatMap((alarm) => alarmInWords(alarm, now, width));
  lines.push(wrap(printable(`${report.gateway}: ${headline(report, now)}`), width));
  process.stdout.write(`${lines.join("\n")}\n`);
  const problem = trouble(report, now);
  if (problem === null) return;
  if (report.state === "ok") process.stdout.write(`${formatNote(problem, width)}\n`);
  else fail(formatNote(problem, width), EXIT.failed);
}

interface Meter {
  show(progress: ConsoleStatus["progress"]): void;
  clear(): void;
}

/** At a terminal one line that grows; elsewhere a line for each change. */
function createMeter(gateway: string, { width, utf8 }: Screen): Meter {
  const live = process.stdout.isTTY === true;
  let shown = "";
  return {
    show(progress) {
      const words = printable(`${gateway}: reading${progressInWords(progress)}`);
      if (words === shown) return;
      shown = words;
      if (!live) return void process.stdout.write(`${words}\n`);
      const drawn = progress?.total ? barOf(progress.done, progress.total, utf8) : "";
      process.stdout.write(`\r\u001b[K${truncate(`${drawn}${words}`, width - 1)}`);
    },
    clear() {
      if (live && shown !== "") process.stdout.write("\r\u001b[K");
    },
  };
}

/** The console may get more rows while it is read: no bar is longer than its frame. */
function barOf(done: number, total: number, utf8: boolean): string {
  const [left, right] = utf8 ? ["▕", "▏"] : ["[", "]"];
  return `${left}${bar(Math.min(done, total), total, BAR_CELLS, utf8).padEnd(BAR_CELLS)}${right} `;
}

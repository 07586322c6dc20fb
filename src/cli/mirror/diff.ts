import { askDaemon } from "../../control/client.ts";
import type { ComparedRow } from "../../mirror/report/shape.ts";
import { findPlaces } from "../../places.ts";
import { EXIT } from "../../start-failure.ts";
import { screenOf } from "../columns.ts";
import { fail } from "../fail.ts";
import { noteInWords } from "../note.ts";
import { diffInWords } from "./compared-words.ts";
import { readConsoles } from "./consoles.ts";
import { trouble } from "./headline.ts";

/** The daemon lists no more than this of a gateway. */
const MOST = 500;

export async function diff(gateway: string | undefined, options: { json?: boolean }): Promise<void> {
  const { socket } = findPlaces();
  const reports = await readConsoles(socket, gateway);
  if (reports === null) return;
  const asked = await askDaemon<ComparedRow[]>(socket, "GET", "/mirrordiff");
  if (!asked.ok) return fail(asked.reason, EXIT.failed);
  const rows = asked.value.filter((row) => gateway === undefined || row.gateway === gateway);
  if (options.json) return void process.stdout.write(`${JSON.stringify(rows, null, 2)}\n`);
  const now = Date.now();
  const screen = screenOf(process.env, process.stdout.columns);
  const lines = [rows.length === 0 ? "no row that was compared differs" : diffInWords(rows, now, screen)];
  const full = reports.filter(
    (report) => rows.filter((row) => row.gateway === report.gateway).length >= MOST,
  );
  for (const report of full)
    lines.push(`of ${report.gateway} only ${MOST} are shown: the foreign ones first, then the newest`);
  // Nothing that differs says nothing where nothing could be compared.
  for (const report of reports) {
    const problem = trouble(report, now);
    if (problem !== null && report.state !== "ok")
      lines.push(noteInWords({ ...problem, what: `${report.gateway}: ${problem.what}` }, screen.width));
  }
  process.stdout.write(`${lines.map((line) => line.trimEnd()).join("\n")}\n`);
}

import { once } from "node:events";
import { followTail, type TailEnd } from "../../control/client.ts";
import type { TailLine } from "../../control/tail.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths, type Paths } from "../../core/paths.ts";
import { type Connection, IndexFault, indexFault, openIndexForReading } from "../../usage/index/database.ts";
import type { UsageRecord } from "../../usage/record.ts";
import { exact, jsonText } from "../../usage/reports/format.ts";
import {
  endedSince,
  exportedRecord,
  lastEnded,
  type Mark,
  type Missed,
  markOf,
} from "../../usage/reports/records.ts";
import { exitOnClosedOutput, fail } from "../ui/messages.ts";
import { screenOf } from "../ui/terminal.ts";
import { printable, truncate } from "../ui/text.ts";
import { bringUpToDate } from "./log-file.ts";
import { tailLine } from "./tail-line.ts";

const AGAIN_MS = 500;
/** Ids that were printed, so that none is printed twice: once from the database and once live. */
const MOST_REMEMBERED = 10_000;
/** How much of what was missed is made up for. */
const MOST_MISSED = 1000;

export async function tail(options: { lines: string; json?: boolean }): Promise<void> {
  if (!/^\d{1,5}$/.test(options.lines))
    return fail(`-n takes a whole number, not "${options.lines}"`, EXIT.usage);
  exitOnClosedOutput();
  process.once("SIGINT", () => process.exit(EXIT.ok));
  process.once("SIGTERM", () => process.exit(EXIT.ok));
  const paths = findPaths();
  const { socket } = paths;
  const printer = createPrinter(paths, Number(options.lines), options.json === true);
  let told = "";
  const tell = (words: string) => {
    if (words !== told) process.stderr.write(`${printable(words)}\n`);
    told = words;
  };

  for (;;) {
    const { reason, final } = await followOnce(socket, async (line) => {
      if ("following" in line) {
        if (told !== "") tell("following keybearer again");
        told = "";
      } else if ("lost" in line)
        process.stderr.write(`${line.lost} records came too fast to be shown live\n`);
      if ("record" in line) printer.print(line.record);
      else await printer.catchUp();
    });
    if (final) return fail(reason, EXIT.failed);
    await printer.catchUp();
    tell(`${reason}; waiting for it (Ctrl-C ends)`);
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

/** Follows one connection. While our output is not read, the next line is not taken from the daemon. */
async function followOnce(socket: string, take: (line: TailLine) => Promise<void>): Promise<TailEnd> {
  const lines = followTail(socket);
  for (;;) {
    const next = await lines.next();
    if (next.done) return next.value;
    await take(next.value);
    if (process.stdout.writableNeedDrain) await once(process.stdout, "drain");
  }
}

interface Printer {
  print(record: UsageRecord): void;
  /** Prints what the database has that was not printed: at first the last few, later what was missed. */
  catchUp(): Promise<void>;
}

function createPrinter(paths: Paths, first: number, json: boolean): Printer {
  const printed = new Set<string>();
  let mark: Mark | null = null;
  let sinceMark = 0;

  function print(record: UsageRecord): void {
    if (printed.has(record.id)) return;
    printed.add(record.id);
    const [oldest] = printed;
    if (printed.size > MOST_REMEMBERED && oldest !== undefined) printed.delete(oldest);
    if (json) process.stdout.write(`${jsonText(exportedRecord(record))}\n`);
    else process.stdout.write(`${fit(tailLine(record))}\n`);
    // Before ids are forgotten that the database would be asked for again.
    sinceMark += 1;
    if (sinceMark > MOST_REMEMBERED / 2) read(setMark);
  }

  function setMark(db: Connection["db"]): void {
    mark = markOf(db);
    sinceMark = 0;
  }

  /** What cannot be read is not made up for; the live lines go on. */
  function read(work: (db: Connection["db"]) => void): void {
    let connection: Connection | null = null;
    try {
      connection = openIndexForReading(paths.index);
      work(connection.db);
    } catch (error) {
      if (!(indexFault(error) instanceof IndexFault)) throw error;
    } finally {
      connection?.close();
    }
  }

  const begin = (db: Connection["db"]): Missed => ({ records: lastEnded(db, first), more: null });

  async function catchUp(): Promise<void> {
    await bringUpToDate(paths);
    read((db) => {
      const { records, more } = mark === null ? begin(db) : endedSince(db, mark, MOST_MISSED, printed);
      setMark(db);
      if (more !== null) process.stderr.write(`${moreInWords(more)}\n`);
      for (const record of records) print(record);
    });
  }

  return { print, catchUp };
}

function moreInWords({ count, since }: NonNullable<Missed["more"]>): string {
  return `${exact(count)} more were missed: keybearer usage export --since ${new Date(since).toISOString()}`;
}

function fit(line: string): string {
  const { columns, isTTY } = process.stdout;
  return isTTY ? truncate(line, screenOf(process.env, columns).width) : line;
}

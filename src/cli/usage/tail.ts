import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { followTail, type TailEnd } from "../../control/client.ts";
import type { TailLine } from "../../control/tail.ts";
import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { exact } from "../../core/units.ts";
import type { UsageRecord } from "../../usage/record.ts";
import { jsonText } from "../../usage/reports/format.ts";
import { endedSince, exportedRecord, lastEnded, type Mark, readMark } from "../../usage/reports/records.ts";
import { exitOnClosedOutput, fail, notice } from "../ui/messages.ts";
import { commandPaths, stdio } from "../ui/stdio.ts";
import { outputWidth } from "../ui/terminal.ts";
import { catchUpIndex, type IndexDatabase, readIndex } from "./index-file.ts";
import { recordLine } from "./record-line.ts";

const RETRY_MS = 500;
/** This many ids are remembered, so that a record is not printed from the index and live. */
const MAX_REMEMBERED = 10_000;
/** This many of the missed records are printed. */
const MAX_MISSED = 1000;

/** `keybearer usage tail` */
export async function tail(options: { lines: string; json?: boolean }): Promise<void> {
  if (!/^\d{1,5}$/.test(options.lines))
    return fail(`-n takes a whole number, not "${options.lines}"`, EXIT.usage);
  exitOnClosedOutput();
  process.once("SIGINT", () => process.exit(EXIT.ok));
  process.once("SIGTERM", () => process.exit(EXIT.ok));
  const paths = commandPaths();
  const printer = new RecordPrinter(paths, Number(options.lines), options.json === true);
  let waitingFor: string | null = null;

  const handleLine = async (line: TailLine) => {
    if ("record" in line) return printer.print(line.record);
    if ("following" in line && waitingFor !== null) {
      notice("following keybearer again");
      waitingFor = null;
    }
    if ("lost" in line) notice(`${line.lost} records came too fast to be shown live`);
    await printer.catchUp();
  };

  for (;;) {
    const end = await followOnce(paths.socket, handleLine);
    if (end.final) return fail(end, EXIT.failed);
    const { problem } = end;
    await printer.catchUp();
    if (problem !== waitingFor) notice(`${problem}; waiting for it (Ctrl-C ends)`);
    waitingFor = problem;
    await pause(RETRY_MS);
  }
}

/** Follows one connection. While our output is not read, the next line stays with the daemon. */
async function followOnce(socket: string, handleLine: (line: TailLine) => Promise<void>): Promise<TailEnd> {
  const lines = followTail(socket);
  for (;;) {
    const next = await lines.next();
    if (next.done) return next.value;
    await handleLine(next.value);
    if (stdio().stdout.writableNeedDrain) await once(stdio().stdout, "drain");
  }
}

/** Prints each record once, whether it comes live or from the index. */
class RecordPrinter {
  readonly #paths: Paths;
  readonly #firstCount: number;
  readonly #json: boolean;
  readonly #printed = new Set<string>();
  /** What the index had when it was last read; null: it was not read yet. */
  #mark: Mark | null = null;
  #printedSinceMark = 0;

  constructor(paths: Paths, firstCount: number, json: boolean) {
    this.#paths = paths;
    this.#firstCount = firstCount;
    this.#json = json;
  }

  async print(record: UsageRecord): Promise<void> {
    this.#write(record);
    // The mark moves before ids are forgotten that the index would return again.
    if (this.#printedSinceMark > MAX_REMEMBERED / 2) await this.#read((db) => this.#setMark(db));
  }

  /** Prints what the index has and was not printed: at first the last records, later those that were missed. */
  async catchUp(): Promise<void> {
    await catchUpIndex(this.#paths);
    await this.#read((db) => {
      const records = this.#mark === null ? lastEnded(db, this.#firstCount) : this.#missed(db, this.#mark);
      this.#setMark(db);
      for (const record of records) this.#write(record);
    });
  }

  #missed(db: IndexDatabase, mark: Mark): readonly UsageRecord[] {
    const { records, more } = endedSince(db, mark, MAX_MISSED, this.#printed);
    if (more !== null) {
      const since = new Date(more.since).toISOString();
      notice(`${exact(more.count)} more were missed: ${advice.usageExport(since)}`);
    }
    return records;
  }

  #write(record: UsageRecord): void {
    if (this.#printed.has(record.id)) return;
    this.#printed.add(record.id);
    this.#printedSinceMark += 1;
    const [oldest] = this.#printed;
    if (this.#printed.size > MAX_REMEMBERED && oldest !== undefined) this.#printed.delete(oldest);
    const line = this.#json ? jsonText(exportedRecord(record)) : recordLine(record, outputWidth());
    stdio().stdout.write(`${line}\n`);
  }

  #setMark(db: IndexDatabase): void {
    this.#mark = readMark(db);
    this.#printedSinceMark = 0;
  }

  async #read(work: (db: IndexDatabase) => void): Promise<void> {
    // If the index cannot be read, what was missed is not printed; live records still are.
    await readIndex(this.#paths, work);
  }
}

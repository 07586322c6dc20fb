import { once } from "node:events";
import { createWriteStream, rmSync } from "node:fs";
import type { Writable } from "node:stream";
import { finished } from "node:stream/promises";
import { EXIT, errorMessage, hasCode } from "../../core/errors.ts";
import { exact } from "../../core/units.ts";
import type { UsageRecord } from "../../usage/record.ts";
import { jsonText } from "../../usage/reports/format.ts";
import {
  countRecords,
  csvHead,
  csvRecord,
  exportedRecord,
  type Filter,
  pagesOf,
} from "../../usage/reports/records.ts";
import { exitOnClosedOutput, fail, failNull, notice } from "../ui/messages.ts";
import { ProgressLine } from "../ui/progress.ts";
import { commandPaths, exitCode, stdio } from "../ui/stdio.ts";
import { type FilterOptions, filterOf, parsePeriod, resolveFilter, thisMachine } from "./filter.ts";
import { hasUsageLog, type IndexDatabase, noUsageLog, withIndex } from "./index-file.ts";

export interface ExportOptions extends FilterOptions {
  readonly json?: boolean;
  readonly jsonl?: boolean;
  readonly csv?: boolean;
  readonly output?: string;
}

/** `keybearer usage export` */
export async function exportRecords(options: ExportOptions): Promise<void> {
  const formats = [options.json, options.jsonl, options.csv].filter((format) => format === true);
  if (formats.length > 1) return fail("--json, --jsonl or --csv, not several", EXIT.usage);
  exitOnClosedOutput();
  const parsed = parsePeriod(options, Date.now(), null);
  if (!parsed.ok) return fail(parsed, EXIT.usage);
  const filter = filterOf(options, parsed.period);
  const format = options.csv ? CSV : options.jsonl ? JSONL : JSON_ARRAY;
  const output = await openOutput(options.output);
  if (output === null) return;
  try {
    await writeExport(filter, format, output.stream);
    if (output.stream.errored !== null) throw output.stream.errored;
    if (exitCode() === EXIT.ok) await output.finish();
    else output.discard();
  } catch (error) {
    output.discard();
    // handleOutputErrors() reports an error of stdout.
    if (error !== stdio().stdout.errored)
      fail(`the export was not finished: ${errorMessage(error)}`, EXIT.failed);
  }
}

interface Format {
  readonly begin: string;
  readonly between: string;
  readonly end: string;
  readonly record: (record: UsageRecord) => string;
}

const JSON_ARRAY: Format = {
  begin: "[",
  between: ",",
  end: "\n]\n",
  record: (record) => `\n${jsonText(exportedRecord(record))}`,
};
const JSONL: Format = {
  begin: "",
  between: "",
  end: "",
  record: (record) => `${jsonText(exportedRecord(record))}\n`,
};
const CSV: Format = { begin: csvHead(), between: "", end: "", record: csvRecord };

async function writeExport(filter: Filter, format: Format, stream: Writable): Promise<void> {
  const paths = commandPaths();
  const machine = filter.machines.length > 0 ? await thisMachine(paths) : null;
  if (!hasUsageLog(paths)) {
    const resolved = await resolveFilter(filter, null, paths, machine);
    if (!resolved.ok) return fail(resolved.problem, EXIT.failed);
    stream.write(format.begin + format.end);
    notice(noUsageLog(paths));
    return;
  }
  await withIndex(paths, async (db) => {
    const resolved = await resolveFilter(filter, db, paths, machine);
    if (!resolved.ok) return fail(resolved.problem, EXIT.failed);
    try {
      await writeRecords(db, resolved.filter, format, stream);
    } catch (error) {
      // A full disk under the output is not the index's problem. The caller reports it.
      if (stream.errored === null) throw error;
    }
  });
}

/** The progress of an export is shown once it has taken this long. */
const PROGRESS_AFTER_MS = 2000;
const PROGRESS_EVERY_MS = 250;

/** Reads the next page once the reader has taken this one, so memory does not grow with the number of records. */
async function writeRecords(
  db: IndexDatabase,
  filter: Filter,
  format: Format,
  stream: Writable,
): Promise<void> {
  const progress = new ProgressLine();
  let nextProgress = performance.now() + PROGRESS_AFTER_MS;
  let total: number | null = null;
  let written = 0;
  stream.write(format.begin);
  for (const page of pagesOf(db, filter)) {
    const text = page.map(format.record).join(format.between);
    const hasRoom = stream.write(written === 0 ? text : `${format.between}${text}`);
    written += page.length;
    if (performance.now() > nextProgress) {
      nextProgress = performance.now() + PROGRESS_EVERY_MS;
      total ??= Math.max(1, countRecords(db, filter));
      const percent = Math.min(100, Math.floor((written / total) * 100));
      progress.show(`${exact(written)} of ${exact(total)} records, ${percent} %`);
    }
    // A stream that has failed never drains.
    if (stream.errored) throw stream.errored;
    if (hasRoom) await new Promise((resolve) => setImmediate(resolve));
    else await once(stream, "drain");
  }
  stream.write(format.end);
  progress.clear();
}

interface Output {
  readonly stream: Writable;
  finish(): Promise<void>;
  /** Leaves no unfinished file that could be taken for the whole. */
  discard(): void;
}

async function openOutput(file: string | undefined): Promise<Output | null> {
  if (file === undefined || file === "-")
    return { stream: stdio().stdout, finish: async () => {}, discard: () => {} };
  const stream = createWriteStream(file, { flags: "wx", mode: 0o600 });
  try {
    await once(stream, "open");
  } catch (error) {
    const message = hasCode(error, "EEXIST")
      ? {
          problem: `${file} exists already and was left as it is`,
          next: "name another file, or remove it first",
        }
      : `cannot write ${file}: ${errorMessage(error)}`;
    return failNull(message, EXIT.failed);
  }
  // writeRecords() checks stream.errored. Without a listener an error between two writes would end the process.
  stream.on("error", () => {});
  const discard = () => {
    stream.destroy();
    rmSync(file, { force: true });
  };
  const onInterrupt = () => {
    discard();
    process.exit(130);
  };
  process.once("SIGINT", onInterrupt);
  const finish = async () => {
    stream.end();
    await finished(stream);
    process.off("SIGINT", onInterrupt);
  };
  return { stream, finish, discard };
}

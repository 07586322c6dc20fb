import { once } from "node:events";
import { createWriteStream, rmSync } from "node:fs";
import type { Writable } from "node:stream";
import { finished } from "node:stream/promises";
import { EXIT, errorMessage, hasCode } from "../../core/errors.ts";
import type { Connection } from "../../usage/index/database.ts";
import { EXPORTED, type UsageRecord } from "../../usage/record.ts";
import { csvLine, exact, jsonText } from "../../usage/reports/format.ts";
import { countRecords, exportedRecord, type Filter, pagesOf } from "../../usage/reports/records.ts";
import { exitOnClosedOutput, fail } from "../ui/messages.ts";
import { printable } from "../ui/text.ts";
import { withLog } from "./log-file.ts";
import { type FilterOptions, periodOf } from "./report.ts";

export interface ExportOptions extends FilterOptions {
  readonly json?: boolean;
  readonly jsonl?: boolean;
  readonly csv?: boolean;
  readonly output?: string;
}

export async function exportRecords(options: ExportOptions): Promise<void> {
  const forms = [options.json, options.jsonl, options.csv].filter((form) => form === true);
  if (forms.length > 1) return fail("--json, --jsonl or --csv, not several", EXIT.usage);
  exitOnClosedOutput();
  const asked = periodOf(options, Date.now(), null);
  if (!asked.ok) return fail(asked.reason, EXIT.usage);
  const filter = { period: asked.period, tools: options.tool ?? [], models: options.model ?? [] };
  const form = options.csv ? CSV : options.jsonl ? JSONL : JSON_ARRAY;
  const into = await openOutput(options.output);
  if (into === null) return;
  try {
    await withLog(
      async (db) => {
        try {
          await write(db, filter, form, into.stream);
        } catch (error) {
          // A full disk under the output is no fault of the index. It is reported below.
          if (into.stream.errored === null) throw error;
        }
      },
      (words) => {
        into.stream.write(form.begin + form.end);
        process.stderr.write(`${printable(words)}\n`);
      },
    );
    if (into.stream.errored !== null) throw into.stream.errored;
    if (process.exitCode === undefined || process.exitCode === EXIT.ok) await into.done();
    else into.discard();
  } catch (error) {
    into.discard();
    // Of stdout endWithOutput() speaks.
    if (error !== process.stdout.errored)
      fail(`the export was not finished: ${errorMessage(error)}`, EXIT.failed);
  }
}

interface Form {
  readonly begin: string;
  readonly between: string;
  readonly end: string;
  readonly record: (record: UsageRecord) => string;
}

const JSON_ARRAY: Form = {
  begin: "[",
  between: ",",
  end: "\n]\n",
  record: (record) => `\n${jsonText(exportedRecord(record))}`,
};
const JSONL: Form = {
  begin: "",
  between: "",
  end: "",
  record: (record) => `${jsonText(exportedRecord(record))}\n`,
};
const CSV: Form = {
  begin: csvLine(EXPORTED),
  between: "",
  end: "",
  record: (record) => csvLine(EXPORTED.map((name) => record[name])),
};

/** A page at a time, and not the next before the reader has taken this one: memory stays the same for a million. */
async function write(db: Connection["db"], filter: Filter, form: Form, stream: Writable): Promise<void> {
  const progress = createProgress(() => countRecords(db, filter));
  let written = 0;
  stream.write(form.begin);
  for (const page of pagesOf(db, filter)) {
    const text = page.map(form.record).join(form.between);
    const more = stream.write(written === 0 ? text : `${form.between}${text}`);
    written += page.length;
    progress.show(written);
    // A stream that has failed never drains.
    if (stream.errored) throw stream.errored;
    if (more) await new Promise((resolve) => setImmediate(resolve));
    else await once(stream, "drain");
  }
  stream.write(form.end);
  progress.end();
}

const PATIENCE_MS = 2000;

/** Only at a terminal, and only for what takes long enough to wonder. */
function createProgress(total: () => number): { show(written: number): void; end(): void } {
  const began = performance.now();
  let all: number | null = null;
  let shown = 0;
  return {
    show(written) {
      const now = performance.now();
      if (!process.stderr.isTTY || now - began < PATIENCE_MS || now - shown < 250) return;
      shown = now;
      all ??= Math.max(1, total());
      const share = Math.min(100, Math.floor((written / all) * 100));
      process.stderr.write(`\r${exact(written)} of ${exact(all)} records, ${share} %`);
    },
    end() {
      if (shown > 0) process.stderr.write("\r\x1b[K");
    },
  };
}

interface Output {
  readonly stream: Writable;
  /** Everything is written. */
  done(): Promise<void>;
  /** Nothing half-finished is left to be taken for the whole. */
  discard(): void;
}

async function openOutput(file: string | undefined): Promise<Output | null> {
  if (file === undefined || file === "-") {
    return { stream: process.stdout, done: async () => {}, discard: () => {} };
  }
  const stream = createWriteStream(file, { flags: "wx", mode: 0o600 });
  try {
    await once(stream, "open");
  } catch (error) {
    const there = hasCode(error, "EEXIST");
    fail(
      there
        ? `${file} is there already, and is left as it is → name another file, or remove it first`
        : `cannot write ${file}: ${errorMessage(error)}`,
      EXIT.failed,
    );
    return null;
  }
  // Checked where it matters. Without a listener an error between two writes would end the process.
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
  return {
    stream,
    async done() {
      stream.end();
      await finished(stream);
      process.off("SIGINT", onInterrupt);
    },
    discard,
  };
}

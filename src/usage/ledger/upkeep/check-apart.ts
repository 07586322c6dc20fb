import { statSync } from "node:fs";
import { createRequire } from "node:module";
import { Worker } from "node:worker_threads";
import { attachStatement } from "../connect.ts";
import { faultOf, LedgerFault } from "../fault.ts";

/** Run by the worker as it stands: a file of its own would have another name before and after the build. */
const CHECK = `
  const { parentPort, workerData } = require("node:worker_threads");
  const Database = require(workerData.library);
  const db = new Database(":memory:", { timeout: 5000 });
  try {
    db.exec(workerData.attach);
    const [words] = db.prepare("PRAGMA log.quick_check(1)").raw().get();
    db.exec("DETACH log");
    parentPort.postMessage({ words });
  } catch (error) {
    parentPort.postMessage({ words: error.message, rawCode: error.rawCode });
  }
`;

/** The database's library: the file it begins with, and every file it needs, as they were when this process read them. */
export interface LoadedLibrary {
  readonly entry: string;
  readonly stamps: ReadonlyMap<string, string>;
}

/** To be called as soon as the library is loaded. */
export function loadedLibrary(): LoadedLibrary {
  const require = createRequire(import.meta.url);
  const entry = require.resolve("libsql");
  const native = Object.keys(require.cache).filter((path) => path.endsWith(".node"));
  return { entry, stamps: new Map([entry, ...native].map((path) => [path, stampOf(path)])) };
}

function stampOf(path: string): string {
  const found = statSync(path, { throwIfNoEntry: false });
  return found === undefined ? "gone" : [found.dev, found.ino, found.size, found.mtimeMs].join(" ");
}

/**
 * Reads a whole log and says whether it is damaged, on another thread: a large one takes seconds. null: it is fine,
 * or that could not be told.
 *
 * Throws once the package was replaced on disk: the worker would load another SQLite beside the one that runs, and when
 * one of them closes a file, the locks of the other are gone (POSIX keeps them by process, SQLite's "how to corrupt" 2.2.1).
 */
export function checkApart(
  file: string,
  library: LoadedLibrary,
): { readonly found: Promise<LedgerFault | null>; stop(): void } {
  for (const [path, stamp] of library.stamps) {
    if (stampOf(path) !== stamp)
      throw new Error("keybearer was replaced on disk: it is checked after the next start");
  }
  const workerData = { library: library.entry, attach: attachStatement(file, "ro") };
  // Nothing of the parent's: its loaders, if any, are not needed, and its environment holds nothing for it.
  const worker = new Worker(CHECK, { eval: true, workerData, execArgv: [], env: {} });
  worker.unref();
  let stop = () => {};
  const found = new Promise<LedgerFault | null>((done) => {
    worker.once("message", (message) => done(judge(message)));
    worker.once("error", () => done(null));
    worker.once("exit", () => done(null));
    // Not waited for: SQLite ends its own call first.
    stop = () => {
      void worker.terminate();
      done(null);
    };
  });
  return { found, stop: () => stop() };
}

function judge(message: { readonly words: string; readonly rawCode?: number }): LedgerFault | null {
  if (message.words === "ok") return null;
  if (message.rawCode === undefined)
    return new LedgerFault("corrupt", `it is damaged (${firstLine(message.words)})`);
  const fault = faultOf(message);
  return fault.kind === "corrupt" ? fault : null;
}

function firstLine(text: string): string {
  return text.split("\n", 1)[0] ?? "";
}

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

/**
 * Reads a whole log and says whether it is damaged, on another thread: a large one takes seconds. null: it is fine,
 * or that could not be told.
 */
export function checkApart(file: string): { readonly found: Promise<LedgerFault | null>; stop(): void } {
  const library = createRequire(import.meta.url).resolve("libsql");
  const workerData = { library, attach: attachStatement(file, "ro") };
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

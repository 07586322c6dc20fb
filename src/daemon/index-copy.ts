import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { rm } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import { HttpError } from "../core/errors.ts";
import type { Paths } from "../core/paths.ts";

interface IndexCopyDeps {
  readonly paths: Paths;
  /** Brings the index up to date. */
  readonly catchUp: () => Promise<unknown>;
}

/**
 * Sends a copy of the usage index, which owners of the system service cannot open. Another process makes it: that of a large
 * index takes seconds, in which requests would wait. One at a time.
 */
export function createIndexCopy({
  paths,
  catchUp,
}: IndexCopyDeps): (response: ServerResponse) => Promise<void> {
  let isBusy = false;
  return async (response) => {
    if (isBusy) throw new HttpError(409, "the usage log is being read for another report: try again");
    isBusy = true;
    const copy = join(paths.run, `index-${randomBytes(8).toString("hex")}.db`);
    try {
      await catchUp();
      const program = [...process.execArgv, process.argv[1] ?? "", "__copy-index", paths.index, copy];
      await promisify(execFile)(process.execPath, program, { timeout: 60_000 });
      response.writeHead(200, { "content-type": "application/vnd.sqlite3" });
      await pipeline(createReadStream(copy), response);
    } finally {
      isBusy = false;
      await rm(copy, { force: true });
    }
  };
}

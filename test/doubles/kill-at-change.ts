import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";

/*
 * For `node --import`: kills its own process, as kill -9 does, at the KILL_AT-th moment right before or right after a name in a folder
 * changes. Every write that others can see is such a change, because files are replaced by a rename.
 */
const at = Number(process.env.KILL_AT);
let moments = 0;

function reach(): void {
  moments += 1;
  if (moments === at) process.kill(process.pid, "SIGKILL");
}

type Change = (...args: never[]) => unknown;

function watched(change: Change): Change {
  return (...args) => {
    reach();
    const done = change(...args);
    if (!(done instanceof Promise)) {
      reach();
      return done;
    }
    return done.finally(reach);
  };
}

const synchronous = fs as unknown as Record<string, Change>;
const asynchronous = fs.promises as unknown as Record<string, Change>;
for (const name of ["renameSync", "linkSync", "unlinkSync"])
  synchronous[name] = watched(synchronous[name] as Change);
for (const name of ["rename", "link", "unlink"]) asynchronous[name] = watched(asynchronous[name] as Change);
syncBuiltinESMExports();

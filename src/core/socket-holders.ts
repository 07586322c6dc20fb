import { readdirSync, readlinkSync, statSync } from "node:fs";
import { setImmediate } from "node:timers/promises";
import { hasCode } from "./errors.ts";

/* Which process holds a socket: one whose files in /proc/<pid>/fd list it. Linux only. */

/**
 * The files of processes are read synchronously: 400 processes with 5,000 files take 15 to 25 ms so, and ten times that with
 * a promise for each file. After this long, others have their turn.
 */
const SLICE_MS = 1;

/** How many files of processes one search looks at: about 150 ms. */
const MAX_FILES = 50_000;

/** From a user namespace no other process is shown, and each attempt to read one takes 0.1 ms. */
const MAX_DENIED = 20;
const DENIED = Symbol("denied");
const OWN_PID = String(process.pid);

/** Programs that call once call again. A search of one of these takes 0.1 ms. */
const MAX_REMEMBERED = 32;

/** A file of a process that is a socket. */
export interface Holder {
  readonly pid: number;
  /** /proc/4711/fd/20. While it leads to the socket, the process is the same. */
  readonly file: string;
  /** What that link says. */
  readonly target: string;
}

interface Search {
  readonly found: Promise<Holder | null>;
  resolve(holder: Holder | null): void;
}

/**
 * Goes through the processes of this user, those that were found last first, and then the newest. One search serves all callers
 * that wait, as with the table of connections: one that comes meanwhile waits for the next.
 */
export class SocketHolders {
  /** By what the link of a file to the socket says. */
  #waiting = new Map<string, Search>();
  #isRunning = false;
  /** The ids of the processes found last, the latest first. */
  #remembered: readonly string[] = [];

  /** null: no process of this user holds it, or the system does not show that. */
  find(inode: string): Promise<Holder | null> {
    const target = `socket:[${inode}]`;
    let search = this.#waiting.get(target);
    if (search === undefined) {
      let resolve: Search["resolve"] = () => {};
      const found = new Promise<Holder | null>((done) => {
        resolve = done;
      });
      search = { found, resolve };
      this.#waiting.set(target, search);
    }
    if (!this.#isRunning) void this.#run();
    return search.found;
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    while (this.#waiting.size > 0) {
      const searches = this.#waiting;
      this.#waiting = new Map();
      await this.#search(searches);
      for (const { resolve } of searches.values()) resolve(null);
    }
    this.#isRunning = false;
  }

  /** Leaves the searches that found nothing. */
  async #search(searches: Map<string, Search>): Promise<void> {
    let files = 0;
    let denied = 0;
    let isAllowed = false;
    let sliceEnd = performance.now() + SLICE_MS;
    for (const pid of this.#listPids()) {
      for (const file of listFiles(pid)) {
        const path = `/proc/${pid}/fd/${file}`;
        const target = readLink(path);
        if (target === DENIED) {
          denied += 1;
          break;
        }
        isAllowed = true;
        const search = target === null ? undefined : searches.get(target);
        if (target !== null && search !== undefined) {
          searches.delete(target);
          this.#remember(pid);
          search.resolve({ pid: Number(pid), file: path, target });
          if (searches.size === 0) return;
        }
        files += 1;
        if (files >= MAX_FILES) return;
        if (performance.now() > sliceEnd) {
          await setImmediate();
          sliceEnd = performance.now() + SLICE_MS;
        }
      }
      if (denied >= MAX_DENIED && !isAllowed) return;
    }
  }

  /** The remembered ones first: if they are enough, /proc is not listed. keybearer has thousands of sockets, and comes last. */
  *#listPids(): Generator<string> {
    const remembered = this.#remembered;
    yield* remembered;
    for (const pid of listNumbers("/proc")) if (pid !== OWN_PID && !remembered.includes(pid)) yield pid;
    yield OWN_PID;
  }

  #remember(pid: string): void {
    if (this.#remembered[0] === pid) return;
    const others = this.#remembered.filter((other) => other !== pid);
    this.#remembered = [pid, ...others].slice(0, MAX_REMEMBERED);
  }
}

/** The numbers of the open files of a process; none if it is another user's, or gone. */
function listFiles(pid: string): string[] {
  const folder = `/proc/${pid}/fd`;
  // Asking whose it is costs less than failing to read it.
  return userOf(folder) === process.geteuid?.() ? listNumbers(folder) : [];
}

function userOf(folder: string): number | null {
  try {
    return statSync(folder, { throwIfNoEntry: false })?.uid ?? null;
  } catch {
    // The process ended at this moment.
    return null;
  }
}

/** The largest first: it is the newest process, or the newest file. */
function listNumbers(folder: string): string[] {
  try {
    const names = readdirSync(folder).filter((name) => name >= "0" && name < ":");
    return names.sort((one, other) => Number(other) - Number(one));
  } catch {
    // The process has ended, or the system does not show its files.
    return [];
  }
}

/** null: the file was closed meanwhile. */
function readLink(path: string): string | typeof DENIED | null {
  try {
    return readlinkSync(path);
  } catch (error) {
    return hasCode(error, "EACCES", "EPERM") ? DENIED : null;
  }
}

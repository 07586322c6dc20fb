import { execFile } from "node:child_process";
import { readlink, realpath, stat } from "node:fs/promises";
import type { Socket } from "node:net";
import { setImmediate } from "node:timers/promises";
import { promisify } from "node:util";
import type { Snapshot } from "../config/snapshot.ts";
import type { Clock } from "../core/clock.ts";
import { shortenHome } from "../core/display.ts";
import { findRepository, readBranch } from "../core/git.ts";
import type { ConnectionOwner, ProcessLookup } from "../core/process-lookup.ts";
import { Semaphore } from "../core/semaphore.ts";
import { loggablePlace } from "./loggable.ts";

/*
 * In which folder the program works that sends a request, and on which branch. Imported only if `usage.project` asks for it.
 * docs/sessions.md has what it costs.
 */

/** A kept connection's branch is read again after this long. */
const BRANCH_MS = 60_000;

/** A file system that hangs stops one lookup and those behind it, and not the daemon's other reading. This many may wait. */
const MAX_WAITING = 1000;

interface ProjectDeps {
  readonly clock: Clock;
  /** The person's home folder. */
  readonly home: string;
  readonly processLookup: Pick<ProcessLookup, "of">;
}

/** Where a process works. */
interface Place {
  /** The root of the repository, else the working folder, as `path` shows it. */
  readonly project: string;
  readonly branch: string | null;
}

/** What a record has of it. */
type ShownPlace = { readonly [name in keyof Place]: string | null };

const UNKNOWN: ShownPlace = { project: null, branch: null };

/** What is known so far of the process behind one connection. */
export class CallerProject {
  owner: ConnectionOwner | null = null;
  place: Place | null = null;
  /** Where HEAD is; null: not known, or there is none. */
  gitFolder: string | null = null;
  branchReadAt = 0;
  isReading = false;
  #shown = UNKNOWN;
  #shownPlace: Place | null = null;
  #shownFor: Snapshot | null = null;

  /** As it may be recorded. Determined once for each configuration and place. */
  show(snapshot: Snapshot): ShownPlace {
    const { place } = this;
    if (place === null) return UNKNOWN;
    if (this.#shownPlace !== place || this.#shownFor !== snapshot) {
      const { project, branch } = place;
      this.#shown = {
        project: loggablePlace(
          snapshot.config.usage.project === "name" ? lastPart(project) : project,
          snapshot,
        ),
        branch: branch === null ? null : loggablePlace(branch, snapshot),
      };
      this.#shownPlace = place;
      this.#shownFor = snapshot;
    }
    return this.#shown;
  }
}

function lastPart(folder: string): string {
  return folder.slice(folder.lastIndexOf("/") + 1) || folder;
}

export class ProjectLookup {
  readonly #deps: ProjectDeps;
  readonly #known = new WeakMap<Socket, CallerProject>();
  readonly #oneAtATime = new Semaphore(1);
  #waiting = 0;
  #homes: Promise<readonly string[]> | null = null;

  constructor(deps: ProjectDeps) {
    this.#deps = deps;
  }

  /** Begins the lookup at a connection's first request, and returns at once with what is known. Never throws. */
  of(socket: Socket): CallerProject {
    let caller = this.#known.get(socket);
    if (caller === undefined) {
      caller = new CallerProject();
      this.#known.set(socket, caller);
      void this.#begin(caller, (found) => this.#lookUp(socket, found));
    } else if (caller.gitFolder !== null && this.#isOld(caller)) {
      void this.#begin(caller, (found) => this.#readBranchAgain(found));
    }
    return caller;
  }

  #isOld({ branchReadAt, isReading }: CallerProject): boolean {
    return !isReading && this.#deps.clock.elapsed() - branchReadAt >= BRANCH_MS;
  }

  async #begin(caller: CallerProject, read: (caller: CallerProject) => Promise<void>): Promise<void> {
    if (this.#waiting >= MAX_WAITING) return;
    this.#waiting += 1;
    caller.isReading = true;
    try {
      // First the request goes out.
      await setImmediate();
      await read(caller);
    } catch {
      // The process or its folder is gone, or is not shown: nothing is known of it, and its record says so.
    } finally {
      caller.isReading = false;
      this.#waiting -= 1;
    }
  }

  async #lookUp(socket: Socket, caller: CallerProject): Promise<void> {
    caller.owner = await this.#deps.processLookup.of(socket);
    if (caller.owner === null) return;
    const { pid } = caller.owner;
    await this.#oneAtATime.run(async () => {
      // It may have waited behind others.
      if (!socket.destroyed) await this.#findPlace(caller, pid);
    });
  }

  async #findPlace(caller: CallerProject, pid: number): Promise<void> {
    const folder = await workingFolder(pid);
    if (folder === null) return;
    const repository = await findRepository(folder);
    const project = await this.#fromHome(repository?.root ?? folder);
    caller.branchReadAt = this.#deps.clock.elapsed();
    caller.gitFolder = repository?.gitFolder ?? null;
    const branch = caller.gitFolder === null ? null : await readBranch(caller.gitFolder);
    caller.place = { project, branch };
  }

  async #readBranchAgain(caller: CallerProject): Promise<void> {
    caller.branchReadAt = this.#deps.clock.elapsed();
    await this.#oneAtATime.run(async () => {
      const { place, gitFolder } = caller;
      if (place === null || gitFolder === null) return;
      const branch = await readBranch(gitFolder);
      if (branch !== place.branch) caller.place = { ...place, branch };
    });
  }

  /** The kernel shows folders with links resolved, and the home folder may be a link. */
  async #fromHome(folder: string): Promise<string> {
    const { home } = this.#deps;
    this.#homes ??= realpath(home).then(
      (real) => [home, real],
      () => [home],
    );
    for (const one of await this.#homes) {
      if (folder === one) return "~";
      const short = shortenHome(folder, one);
      if (short !== folder) return short;
    }
    return folder;
  }
}

/** null: another folder is at that path for keybearer, as for a program in a container, or the folder was removed. */
async function workingFolder(pid: number): Promise<string | null> {
  if (process.platform !== "linux") return await workingFolderByLsof(pid);
  const link = `/proc/${pid}/cwd`;
  const folder = await readlink(link);
  const theirs = await stat(link, { bigint: true });
  const ours = await stat(folder, { bigint: true });
  return theirs.dev === ours.dev && theirs.ino === ours.ino ? folder : null;
}

/** For macOS, where it was never run. */
async function workingFolderByLsof(pid: number): Promise<string | null> {
  const args = ["-a", "-p", String(pid), "-d", "cwd", "-Fn"];
  const { stdout } = await promisify(execFile)("/usr/sbin/lsof", args, { timeout: 5000 });
  return /^n(\/.*)$/m.exec(stdout)?.[1] ?? null;
}

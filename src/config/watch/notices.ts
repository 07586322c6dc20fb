import { join, resolve } from "node:path";
import { type FSWatcher, watch } from "chokidar";
import { errorCode } from "../../core/errors.ts";
import { type Step, sameSteps } from "./trail.ts";

export interface Notices {
  /** Replaces what is watched. Cheap when it is what is watched already. */
  aim(steps: readonly Step[]): void;
  /** Resolves when notifications for the newest aim come in, or never will. */
  ready(): Promise<void>;
  close(): Promise<void>;
}

export interface NoticesOptions {
  /** Something happened to one of the names, or nothing did: look. */
  readonly onNotice: () => void;
  /** Called at most once; there are no notices after it. */
  readonly onRefused: (reason: string) => void;
}

/**
 * The system's notifications for some names in some folders. A file is watched itself, and anew whenever another
 * one has taken its name: watching its folder would see that too, but chokidar stats a whole folder on each event
 * in it (measured: a thousand files, of which one is written 20 times a second, cost half a core). The folder is
 * watched where there is no file, or a link, which the system would see through.
 */
export function createNotices({ onNotice, onRefused }: NoticesOptions): Notices {
  const closing = new Set<Promise<void>>();
  let aimed: readonly Step[] = [];
  let running: Running | undefined;
  let over = false;

  function stop(): void {
    if (running === undefined) return;
    const closed = running.stop().finally(() => closing.delete(closed));
    closing.add(closed);
    running = undefined;
  }

  /** Out of descriptors or inotify watches. Trying again would most likely fail again, and cost the rest its share. */
  function refuse(error: unknown): void {
    if (over) return;
    over = true;
    stop();
    onRefused(
      `the system refuses file notifications (${errorCode(error)}): looking about once a second instead`,
    );
  }

  return {
    aim(steps) {
      if (over || sameSteps(steps, aimed)) return;
      aimed = steps;
      // In this order: chokidar shares one handle per path, which may still hold what was moved away from there.
      stop();
      if (steps.length > 0) running = run(steps, { onNotice, onError: refuse });
    },
    async ready() {
      // A folder that was replaced meanwhile begins another run.
      for (let seen: Running | undefined; seen !== running; ) {
        seen = running;
        await seen?.ready;
      }
    },
    async close() {
      over = true;
      stop();
      await Promise.all(closing);
    },
  };
}

/** What is watched to hear of one step. */
export function watchedFor({ folder, name, fileId }: Step): string {
  return fileId === null ? folder : join(folder, name);
}

interface Running {
  /** Also resolves when it is stopped before. */
  readonly ready: Promise<void>;
  stop(): Promise<void>;
}

interface RunOptions {
  readonly onNotice: () => void;
  readonly onError: (error: unknown) => void;
}

function run(steps: readonly Step[], { onNotice, onError }: RunOptions): Running {
  const targets = steps.map(watchedFor);
  const files = new Set(steps.filter(({ fileId }) => fileId !== null).map(watchedFor));
  const wanted = new Set([...targets, ...steps.map((step) => join(step.folder, step.name))]);
  const watcher: FSWatcher = watch([...new Set(targets)], {
    depth: 0,
    ignored: (path) => !wanted.has(resolve(path)),
    ignoreInitial: true,
    // The target of a link is a step of its own.
    followSymlinks: false,
    // Saves are settled by the reader; the 100 ms that chokidar would hold an unlink back come on top.
    atomic: false,
    // A folder that may be passed through but not listed is left to the poll; the others keep their notices.
    ignorePermissionErrors: true,
  });
  let markReady = (): void => {};
  const ready = new Promise<void>((done) => {
    markReady = done;
  });
  watcher.on("all", onNotice);
  // chokidar passes over what leaves the time of the last write as it was: a chmod, a copy that keeps its times.
  watcher.on("raw", (_event, _name, details) => {
    if (files.has(watchedPathIn(details))) onNotice();
  });
  watcher.on("error", onError);
  watcher.on("ready", () => {
    markReady();
    // What happened while the notifications were being set up was not notified.
    onNotice();
  });
  return {
    ready,
    stop() {
      markReady();
      const closed = watcher.close();
      // close() took all listeners away, and an error that comes in still would end the process.
      watcher.on("error", () => {});
      return closed;
    },
  };
}

function watchedPathIn(details: unknown): string {
  const has = typeof details === "object" && details !== null && "watchedPath" in details;
  return has ? String(details.watchedPath) : "";
}

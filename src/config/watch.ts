import { stat } from "node:fs/promises";
import { type FSWatcher, watch } from "chokidar";
import { background } from "../core/background.ts";
import { errorCode } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import type { Ticker } from "../core/ticker.ts";

interface FileWatchDeps {
  readonly ticker: Ticker;
  readonly log: Pick<Logger, "warn" | "error">;
  /** The content may still be the same: compare it. */
  readonly onChange: (path: string) => void;
}

/** A file must not change for this long before its change is reported, so that a save in several writes is read whole. */
const SETTLE_MS = 100;
/** A file that keeps changing is reported at this interval. */
const MAX_SETTLE_MS = 500;
/** stat() of a thousand files a second takes an eighth of a core, so only some are polled at each tick. */
const MAX_POLLED = 20;

/**
 * Reports when a file may have changed, however it is saved: in place, by a rename, through links, in a folder that was
 * replaced, on a network disk. stat() decides, once a second. The system's notifications, from chokidar, only make it
 * faster. They are asked for each file and not for its folder, because chokidar lists the whole folder at each event in it: in
 * a folder of a thousand files, one of them written 20 times a second, that took half a core.
 */
export class FileWatch {
  readonly #deps: FileWatchDeps;
  readonly #files = new Map<string, WatchedFile>();
  #stopPolling: (() => void) | null = null;
  #nextPolled = 0;
  #isRefused = false;
  #isClosed = false;

  constructor(deps: FileWatchDeps) {
    this.#deps = deps;
  }

  /** Replaces the set of followed files. They need not exist. The first one is polled at every tick. */
  follow(paths: readonly string[]): void {
    if (this.#isClosed) return;
    const { log, ticker, onChange } = this.#deps;
    for (const [path, file] of this.#files) {
      if (paths.includes(path)) continue;
      this.#files.delete(path);
      background(file.close(), log, `ending the watch of ${path}`);
    }
    for (const path of paths) {
      if (this.#files.has(path)) continue;
      const file = new WatchedFile(path, {
        log,
        onChange: () => onChange(path),
        onError: (error) => this.#giveUpNotifications(error),
      });
      if (this.#isRefused) file.stopNotifications();
      this.#files.set(path, file);
      file.checkSoon();
    }
    this.#stopPolling ??= ticker.every(1, () => this.#poll());
  }

  /** Resolves once every later change will be reported: read the files after it, not before. */
  async ready(): Promise<void> {
    await Promise.all([...this.#files.values()].map((file) => file.ready()));
  }

  /** Nothing is reported after this call. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#stopPolling?.();
    const files = [...this.#files.values()];
    this.#files.clear();
    await Promise.all(files.map((file) => file.close()));
  }

  #poll(): void {
    const [first, ...others] = this.#files.values();
    const start = this.#nextPolled;
    const polled = [...others.slice(start), ...others.slice(0, start)].slice(0, MAX_POLLED);
    this.#nextPolled = others.length === 0 ? 0 : (start + polled.length) % others.length;
    first?.checkSoon();
    for (const file of polled) file.checkSoon();
  }

  /** Out of descriptors or inotify watches. Trying again would most likely fail again, and cost other programs theirs. */
  #giveUpNotifications(error: unknown): void {
    if (this.#isRefused) return;
    this.#isRefused = true;
    for (const file of this.#files.values()) file.stopNotifications();
    const code = errorCode(error);
    this.#deps.log.warn(
      `the system refuses file notifications (${code}): keybearer checks the files every second instead`,
    );
  }
}

interface WatchedFileDeps {
  readonly log: FileWatchDeps["log"];
  readonly onChange: () => void;
  readonly onError: (error: unknown) => void;
}

class WatchedFile {
  readonly #path: string;
  readonly #deps: WatchedFileDeps;
  /** At the last stat(). */
  #seen: string | null = null;
  /** When onChange was last called. null: whatever comes next is a change. */
  #reported: string | null = null;
  #settleTimer: NodeJS.Timeout | undefined;
  #maxSettleTimer: NodeJS.Timeout | undefined;
  #checking: Promise<void> | null = null;
  #checkAgain = false;
  #notifications: Notifications | null = null;
  /** Watchers that are being closed. */
  readonly #closing = new Set<Promise<void>>();
  #mayNotify = true;
  #isClosed = false;

  constructor(path: string, deps: WatchedFileDeps) {
    this.#path = path;
    this.#deps = deps;
  }

  /** One stat() at a time, because on a hanging network disk they would pile up. A call during one causes one more. */
  check(): Promise<void> {
    this.#checkAgain = true;
    this.#checking ??= this.#checkUntilDone();
    return this.#checking;
  }

  checkSoon(): void {
    background(this.check(), this.#deps.log, `watching ${this.#path}`);
  }

  async ready(): Promise<void> {
    // A file that is replaced meanwhile gets new notifications.
    for (let waited: Notifications | null = null; ; ) {
      await this.check();
      if (this.#notifications === waited) return;
      waited = this.#notifications;
      await waited?.ready;
    }
  }

  stopNotifications(): void {
    this.#mayNotify = false;
    this.#watchFile(null);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#settleTimer);
    clearTimeout(this.#maxSettleTimer);
    this.stopNotifications();
    await Promise.all(this.#closing);
  }

  async #checkUntilDone(): Promise<void> {
    while (this.#checkAgain) {
      this.#checkAgain = false;
      const { version, file } = await identify(this.#path);
      if (this.#isClosed) break;
      this.#watchFile(file);
      if (this.#seen === null) this.#reported = version;
      else if (version !== this.#seen) this.#waitUntilSettled();
      this.#seen = version;
    }
    this.#checking = null;
  }

  #waitUntilSettled(): void {
    clearTimeout(this.#settleTimer);
    this.#settleTimer = setTimeout(
      () => background(this.#settle(), this.#deps.log, `watching ${this.#path}`),
      SETTLE_MS,
    );
    this.#maxSettleTimer ??= setTimeout(() => this.#reportUnsettled(), MAX_SETTLE_MS);
  }

  async #settle(): Promise<void> {
    this.#settleTimer = undefined;
    // Not every disk notifies of a change.
    await this.check();
    if (this.#settleTimer !== undefined || this.#isClosed) return;
    clearTimeout(this.#maxSettleTimer);
    this.#maxSettleTimer = undefined;
    if (this.#seen !== this.#reported) this.#report();
  }

  /**
   * Two writes within one tick of the disk's clock have the same times, so only a file that has rested is known by them.
   * This report does not count, and another one follows when it has.
   */
  #reportUnsettled(): void {
    this.#maxSettleTimer = setTimeout(() => this.#reportUnsettled(), MAX_SETTLE_MS);
    this.#report();
    this.#reported = null;
  }

  #report(): void {
    this.#reported = this.#seen;
    this.#deps.onChange();
  }

  /** Notifications are about one file, not about its name: another file under that name needs new ones. */
  #watchFile(file: string | null): void {
    const wanted = this.#mayNotify ? file : null;
    const current = this.#notifications;
    if ((current?.file ?? null) === wanted) return;
    if (current !== null) {
      const closed = current.close().finally(() => this.#closing.delete(closed));
      this.#closing.add(closed);
    }
    this.#notifications =
      wanted === null
        ? null
        : new Notifications(this.#path, wanted, {
            onChange: () => this.checkSoon(),
            onError: this.#deps.onError,
          });
  }
}

/** The system's notifications about one file. */
class Notifications {
  readonly file: string;
  /** Also resolves when they are closed. */
  readonly ready: Promise<void>;
  readonly #watcher: FSWatcher;
  #markReady = () => {};

  constructor(path: string, file: string, deps: Pick<WatchedFileDeps, "onChange" | "onError">) {
    this.file = file;
    this.ready = new Promise((done) => {
      this.#markReady = done;
    });
    this.#watcher = watch(path, {
      depth: 0,
      ignoreInitial: true,
      // Saves settle here; chokidar would delay an unlink by 100 ms more.
      atomic: false,
      // A file that may not be read is polled.
      ignorePermissionErrors: true,
    });
    this.#watcher.on("all", deps.onChange);
    this.#watcher.on("error", deps.onError);
    this.#watcher.on("ready", () => {
      this.#markReady();
      // What happened before this moment was not notified.
      deps.onChange();
    });
  }

  close(): Promise<void> {
    this.#markReady();
    const closed = this.#watcher.close();
    // close() has removed all listeners, and an error without a listener would end the process.
    this.#watcher.on("error", () => {});
    return closed;
  }
}

interface Identity {
  /** Changes with every save. */
  readonly version: string;
  /** The file itself; null where there is none. */
  readonly file: string | null;
}

async function identify(path: string): Promise<Identity> {
  try {
    const found = await stat(path, { bigint: true });
    // With its birth: a file that is deleted and created again mostly gets the same inode.
    const file = `${found.dev}:${found.ino}:${found.birthtimeNs}`;
    // ctime beside mtime: `cp -p` over a file of the same size restores mtime, and a chmod may make it readable.
    const version = `${file}:${found.size}:${found.mtimeNs}:${found.ctimeNs}`;
    return { version, file: found.isFile() ? file : null };
  } catch (error) {
    return { version: errorCode(error), file: null };
  }
}

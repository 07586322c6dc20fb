import { resolve } from "node:path";
import type { Ticker } from "../../core/ticker.ts";
import { createNotices, watchedFor } from "./notices.ts";
import { areToldOf } from "./own-disk.ts";
import { followTrail, glanceAt, type Step, sameSteps, type Trail } from "./trail.ts";

export interface FileWatchOptions {
  /** Called with the path as it was given to follow(). The content may still be the same: compare it. */
  readonly onChange: (path: string) => void;
  /** Called at most once, when the system refuses notifications and only the poll is left. */
  readonly onError?: (reason: string) => void;
  /** How often the files are looked at whatever the system tells. Default 1000. */
  readonly pollMs?: number;
  /** Looks at every beat instead, which keeps no process alive. */
  readonly ticker?: Ticker;
  /** How long a file must lie still before its change is told; at most five times this in a row. Default 100. */
  readonly settleMs?: number;
}

export interface FileWatch {
  /** Replaces the set of followed files. A file need not exist, nor its folder. */
  follow(paths: readonly string[]): void;
  /** Resolves once every change from here on will be told: read the files after it, not before. */
  ready(): Promise<void>;
  /** Ends it; no onChange comes after the call. Until then the watch keeps the process alive. */
  close(): Promise<void>;
}

/** Looking at a thousand files every second would cost an eighth of a core. */
const MOST_A_POLL = 20;

/** Where the system tells of every change, of so many polls one looks: each wakes an idle process once more. */
const SELDOM = 5;

/**
 * Tells when a file may have changed, whichever way it is written. The system's notifications only say when to
 * look; what counts is whether the trail to the file differs from the one last told. So an event too many does no
 * harm, and one too few costs a poll.
 */
export function createFileWatch(options: FileWatchOptions): FileWatch {
  const { onChange, onError, settleMs = 100 } = options;
  const files = new Map<string, FollowedFile>();
  const notices = createNotices({
    onNotice: () => lookAtAll(),
    onRefused: (reason) => {
      refused = true;
      onError?.(reason);
    },
  });
  let stopPoll: (() => void) | undefined;
  let polls = 0;
  let turnAt = 0;
  let aimed: readonly Step[] = [];
  /** The system tells of every change to what was last aimed at. */
  let told = false;
  let refused = false;
  let closed = false;

  function lookAtAll(): void {
    for (const file of files.values()) void file.look();
  }

  /** The poll is only a backstop: of very many files, a few at a time, and the first one always. */
  function lookAtSome(): void {
    const all = [...files.values()];
    const turn = Array.from(
      { length: Math.min(MOST_A_POLL, all.length) },
      (_, i) => all[(turnAt + i) % all.length],
    );
    turnAt = all.length === 0 ? 0 : (turnAt + turn.length) % all.length;
    for (const file of new Set([all[0], ...turn])) void file?.glance();
  }

  function poll(): void {
    polls += 1;
    if (!told || refused || polls % SELDOM === 0) lookAtSome();
  }

  function aim(): void {
    const each = [...files.values()].map((file) => file.steps());
    // Aimed once when the last of the new files has been looked at, not once for each.
    if (closed || !each.every((some) => some.length > 0)) return;
    const steps = each.flat();
    aimed = steps;
    told = false;
    notices.aim(steps);
    void areToldOf(steps.map(watchedFor)).then((all) => {
      if (aimed === steps) told = all;
    });
  }

  return {
    follow(paths) {
      if (closed) return;
      const wanted = new Set(paths);
      for (const [path, file] of files) {
        if (wanted.has(path)) continue;
        file.drop();
        files.delete(path);
      }
      for (const path of wanted) {
        if (files.has(path)) continue;
        const file = followFile(resolve(path), { settleMs, onSettled: () => onChange(path), onTrail: aim });
        files.set(path, file);
        void file.look();
      }
      aim();
      stopPoll ??= regularly(poll, options);
    },
    async ready() {
      await Promise.all([...files.values()].map((file) => file.look()));
      await notices.ready();
    },
    async close() {
      closed = true;
      stopPoll?.();
      for (const file of files.values()) file.drop();
      files.clear();
      await notices.close();
    },
  };
}

function regularly(work: () => void, { ticker, pollMs = 1000 }: FileWatchOptions): () => void {
  if (ticker !== undefined) return ticker.every(1, work);
  const timer = setInterval(work, pollMs);
  return () => clearInterval(timer);
}

/** Of so many glances one is a whole look: only that sees links which now lead to the same file another way. */
const GLANCES = 10;

interface FollowedFile {
  /** Resolves when a look that began after the call is over. */
  look(): Promise<void>;
  /** The same where the file seems to be another one than at the last glance. */
  glance(): Promise<void>;
  steps(): readonly Step[];
  drop(): void;
}

interface FollowOptions {
  readonly settleMs: number;
  readonly onSettled: () => void;
  readonly onTrail: () => void;
}

function followFile(path: string, { settleMs, onSettled, onTrail }: FollowOptions): FollowedFile {
  let trail: Trail | undefined;
  let told: string | undefined;
  let settling: NodeJS.Timeout | undefined;
  let overdue: NodeJS.Timeout | undefined;
  let looking: Promise<void> | undefined;
  let next: Promise<void> | undefined;
  let glanced: string | undefined;
  let glances = 0;
  let glancing = false;
  let dropped = false;

  async function lookOnce(): Promise<void> {
    const seen = await followTrail(path);
    if (dropped) return;
    const before = trail;
    trail = seen;
    if (before === undefined) told = seen.identity;
    else if (before.identity !== seen.identity) stir();
    if (before === undefined || !sameSteps(before.steps, seen.steps)) onTrail();
  }

  /** Still counted from the last change seen, so that a save in many small writes is told once, when it is whole. */
  function stir(): void {
    clearTimeout(settling);
    settling = setTimeout(settle, settleMs);
    overdue ??= setTimeout(tellUnsettled, settleMs * 5);
  }

  function settle(): void {
    clearTimeout(overdue);
    settling = undefined;
    overdue = undefined;
    if (trail?.identity !== told) tell();
  }

  /**
   * The file never lies still. What is told now is not remembered as told: two writes within one tick of the file
   * system's clock have the same times, so only a file that has rested is known by its identity.
   */
  function tellUnsettled(): void {
    overdue = setTimeout(tellUnsettled, settleMs * 5);
    tell();
    told = undefined;
  }

  function tell(): void {
    told = trail?.identity;
    onSettled();
  }

  /** One look at a time, on a hanging network drive too; a call during a look is worth one more after it. */
  function look(): Promise<void> {
    if (looking === undefined) {
      looking = lookOnce().finally(() => {
        looking = undefined;
      });
      return looking;
    }
    next ??= looking.then(() => {
      next = undefined;
      return look();
    });
    return next;
  }

  async function glance(): Promise<void> {
    if (glancing) return;
    glancing = true;
    const before = glanced;
    glanced = await glanceAt(path);
    glancing = false;
    glances += 1;
    if (glanced !== before || glances % GLANCES === 0) await look();
  }

  return {
    look,
    glance,
    steps: () => trail?.steps ?? [],
    drop() {
      dropped = true;
      clearTimeout(settling);
      clearTimeout(overdue);
    },
  };
}

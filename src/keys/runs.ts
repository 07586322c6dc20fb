import { setMaxListeners } from "node:events";
import type { KeySource } from "../config/schema.ts";
import { createGate } from "./gate.ts";
import { type ReadDeps, type Reading, readKey } from "./read.ts";
import { STOPPED } from "./sources/command.ts";

/** Reads sources, so many at once, and shares one run of a command or keychain among all who wait for the same. */
export interface Runs {
  read(source: KeySource, deps: ReadDeps & { readonly signal: AbortSignal }): Promise<Reading>;
}

interface Run {
  readonly reading: Promise<Reading>;
  readonly stop: AbortController;
  users: number;
}

/** Enough for every vault to be asked side by side, too few for a long list of tools to swamp the machine. */
const MOST_AT_ONCE = 16;
/** Each is a Node of its own: more at once are not sooner done. */
const MOST_KEYCHAINS = 4;
/** Longer timers fire at once. */
const LONGEST_TIMER = 2 ** 31 - 1;

export function createRuns(): Runs {
  const running = new Map<string, Run>();
  // Apart, so that a file need not wait behind commands that wait for a finger.
  const commands = createGate(MOST_AT_ONCE);
  const files = createGate(MOST_AT_ONCE);
  const keychains = createGate(MOST_KEYCHAINS);

  function start(id: string, source: KeySource, deps: ReadDeps): Run {
    const stop = new AbortController();
    const gate = source.kind === "keychain" ? keychains : commands;
    const reading = gate(() => readKey(source, { ...deps, signal: stop.signal }));
    const run = { reading, stop, users: 0 };
    running.set(id, run);
    void reading.finally(() => {
      if (running.get(id) === run) running.delete(id);
    });
    return run;
  }

  return {
    read(source, deps) {
      if (source.kind === "file") return files(() => readKey(source, deps));
      if (source.kind === "literal" || source.kind === "env") return readKey(source, deps);
      const id = idOf(source, deps);
      const run = running.get(id) ?? start(id, source, deps);
      run.users += 1;
      return untilLeft(run.reading, deps.signal, () => {
        run.users -= 1;
        if (run.users > 0) return;
        // Out of the list first: who comes now must not join a run that is being ended.
        if (running.get(id) === run) running.delete(id);
        run.stop.abort();
      });
    },
  };
}

/** What makes two readings the same one: a password is checked by other rules than a key. */
function idOf(source: KeySource, { withhold = [], password = false }: ReadDeps): string {
  // The keychain sees no variables that would have to be withheld.
  const withheld = source.kind === "keychain" ? [] : [...withhold].sort();
  return JSON.stringify([source, withheld, password]);
}

/** The reading, or at once a refusal when the one who asked no longer waits. */
function untilLeft(reading: Promise<Reading>, signal: AbortSignal, leave: () => void): Promise<Reading> {
  return new Promise((done) => {
    const onAbort = () => {
      leave();
      done({ ok: false, reason: STOPPED });
    };
    if (signal.aborted) return onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    void reading.then((result) => {
      signal.removeEventListener("abort", onAbort);
      done(result);
    });
  });
}

/** Waits for the work, but no longer than so many milliseconds. */
export async function atMost(work: Promise<unknown>, patience: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise((done) => {
    if (patience <= LONGEST_TIMER) timer = setTimeout(done, patience);
  });
  await Promise.race([work, over]).finally(() => clearTimeout(timer));
}

/** Everything a configuration reads listens to its one signal: many listeners are no leak here. */
export function newStop(): AbortController {
  const stop = new AbortController();
  setMaxListeners(0, stop.signal);
  return stop;
}

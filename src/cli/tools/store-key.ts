import { existsSync } from "node:fs";
import { describeSource } from "../../config/schema.ts";
import { askDaemon } from "../../control/client.ts";
import { systemClock } from "../../core/clock.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { StateLock } from "../../daemon/state-lock.ts";
import {
  forgetKey,
  isNamed,
  keychainThere,
  type Store,
  storeKey,
  tryKeychain,
} from "../../keys/stored-keys.ts";
import { Trust } from "../../keys/trust.ts";
import { canceled, fail, failNull, notice } from "../ui/messages.ts";
import type { Prompter } from "../ui/prompts.ts";
import { deferSignals } from "../ui/signals.ts";
import { commandPaths, stdio } from "../ui/stdio.ts";
import type { NewKey } from "./take-key.ts";

interface StoreOptions {
  readonly store?: string;
  readonly yes?: boolean;
}

/**
 * Where a new key is stored: as the options say, else where the old one was, else in the keychain if there is one. Asked before
 * the key, so that no key is typed for a keychain that does not accept it. null: the reason was printed.
 */
export async function chooseStore(
  options: StoreOptions,
  prompter: Prompter | null,
  before: Store | null = null,
): Promise<Store | null> {
  if (options.store !== undefined && options.store !== "file" && options.store !== "keychain")
    return failNull("--store takes keychain or file", EXIT.usage);
  if (commandPaths().mode === "system") {
    if (options.store !== "keychain") return "file";
    return failNull("the system service has no keychain: leave --store out", EXIT.usage);
  }
  const chosen = options.store ?? before;
  if (chosen === "file") return "file";
  const { there, problem: missing } = await keychainThere({ env: stdio().env });
  if (!there && chosen === null) return "file";
  const asked = options.yes ? null : prompter;
  if (there && chosen === null && asked !== null) return askStore(asked, "keychain");
  const absent = missing ?? { problem: "there is no keychain here", next: null };
  const problem = there ? await tryKeychain({ env: stdio().env }) : absent;
  if (problem === null) return "keychain";
  if (asked !== null && options.store === undefined) {
    notice(problem);
    return askStore(asked, "file");
  }
  const inFile = "--store file keeps the key in a file of your own";
  const next = problem.next === null ? inFile : `${problem.next}; or ${inFile}`;
  return failNull([{ problem: problem.problem, next }, "nothing was changed"], EXIT.failed);
}

/** Asks until the answer is a place that accepts a key. */
async function askStore(prompter: Prompter, usual: Store): Promise<Store | null> {
  const answer = await prompter.text(`where to keep the key, keychain or file [${usual}]: `);
  if (answer === null) return canceled();
  const said = answer.trim().toLowerCase() || usual;
  if (said === "file") return "file";
  if (said !== "keychain") return askStore(prompter, usual);
  const problem = await tryKeychain({ env: stdio().env });
  if (problem === null) return "keychain";
  notice(problem);
  return askStore(prompter, "file");
}

/**
 * Stores a key, then has config.yaml name it. If that fails, or the person presses Ctrl-C in between, the key is deleted again,
 * because nothing would show that it is there. False: the reason was printed.
 */
export function storeNamedKey(
  paths: Paths,
  newKey: NewKey,
  nameInConfig: () => Promise<boolean>,
): Promise<boolean> {
  const { key, place } = newKey;
  const env = stdio().env;
  return deferSignals(async (interrupted) => {
    const stored = await storeKey(place, key, { env });
    if (!stored.ok) {
      fail(
        [{ ...stored, problem: `the key was not stored: ${stored.problem}` }, "nothing was changed"],
        EXIT.failed,
      );
      return false;
    }
    await claimPlace(paths, newKey);
    if (interrupted()) fail("stopped; nothing was changed", EXIT.failed);
    else if (await nameInConfig()) {
      // Another command that had stored it may have deleted it before the file named it.
      if (!stored.made) await storeKey(place, key, { env });
      return true;
    }
    // Another command may have named it meanwhile.
    if (stored.made && !(await isNamed(paths, place))) {
      const deleted = await forgetKey(place, { env });
      if (!deleted.ok)
        notice({
          ...deleted,
          problem: `the key that was just stored is still in ${describeSource(place)}: ${deleted.problem}`,
        });
    }
    return false;
  });
}

/**
 * The daemon holds a key at a place that no tool used before, unless keybearer stored it there. So it gets a message, or reads it at
 * its next start. If neither succeeds, the key waits for `keybearer trust`.
 */
async function claimPlace(paths: Paths, { tool, place, origins }: NewKey): Promise<void> {
  const path = `/claim/${encodeURIComponent(tool)}`;
  const asked = await askDaemon(paths, "POST", path, { place, origins });
  // Without the file, the next start is the first one, or holds every key.
  if (asked.ok || asked.running || !existsSync(paths.trust)) return;
  let lock: StateLock | null = null;
  try {
    lock = StateLock.take(paths.lock);
    if (lock === null) return;
    const trust = new Trust({ file: paths.trust, clock: systemClock, ranBefore: () => true });
    trust.load();
    if (trust.isLost) return;
    trust.claim({ name: tool, source: place, origins, home: paths.own });
    await trust.settle();
  } catch {
    // The next start says what is wrong with the lock.
  } finally {
    lock?.release();
  }
}

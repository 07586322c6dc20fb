import { forgetKey, type KeyPlace, storeKey } from "../../keys/store.ts";
import type { Secret } from "../../secret.ts";
import { EXIT } from "../../start-failure.ts";
import { fail } from "../fail.ts";

/**
 * Stores a key, then does what makes config.yaml name it. Where that fails, or the person presses Ctrl-C in between,
 * the key is taken away again: one that no file names would lie there unseen. false: told why.
 */
export async function keepKey(place: KeyPlace, key: Secret, name: () => Promise<boolean>): Promise<boolean> {
  let interrupted = false;
  const interrupt = () => {
    interrupted = true;
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, interrupt);
  try {
    const stored = await storeKey(place, key, { env: process.env });
    if (!stored.ok) {
      fail(`the key was not stored: ${stored.reason}\nnothing was changed`, EXIT.failed);
      return false;
    }
    if (interrupted) fail("stopped; nothing was changed", EXIT.failed);
    else if (await name()) return true;
    await forgetKey(place, { env: process.env });
    return false;
  } finally {
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.off(signal, interrupt);
  }
}

import { loadConfig } from "../../config/load.ts";
import { describeSource } from "../../config/schema.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import { forgetKey, type KeyPlace, storeKey } from "../../keys/store.ts";
import { fail, notice } from "../ui/messages.ts";
import { isSameSource } from "./key-place.ts";
import { deferSignals } from "./to-the-end.ts";

/**
 * Stores a key, then does what makes config.yaml name it. Where that fails, or the person presses Ctrl-C in between,
 * the key is taken away again: one that no file names would lie there unseen. false: told why.
 */
export function keepKey(
  paths: Pick<Paths, "config" | "home">,
  place: KeyPlace,
  key: Secret,
  name: () => Promise<boolean>,
): Promise<boolean> {
  const env = process.env;
  return deferSignals(async (interrupted) => {
    const stored = await storeKey(place, key, { env });
    if (!stored.ok) {
      fail(`the key was not stored: ${stored.reason}\nnothing was changed`, EXIT.failed);
      return false;
    }
    if (interrupted()) fail("stopped; nothing was changed", EXIT.failed);
    else if (await name()) {
      // Whoever put it there may have taken it away before the file named it.
      if (!stored.made) await storeKey(place, key, { env });
      return true;
    }
    // Another command may have named what this one made: then it is theirs.
    if (stored.made && !(await isNamed(paths, place))) await takeAway(place);
    return false;
  });
}

async function takeAway(place: KeyPlace): Promise<void> {
  const gone = await forgetKey(place, { env: process.env });
  if (!gone.ok) notice(`the key that was just stored is still in ${describeSource(place)}: ${gone.reason}`);
}

/** A file that cannot be understood may name it. */
export async function isNamed(
  { config: file, home }: Pick<Paths, "config" | "home">,
  place: KeyPlace,
): Promise<boolean> {
  const { config, found } = await loadConfig(file, { home, strict: false });
  if (config === null) return found;
  return Object.values(config.tools).some(({ key }) => isSameSource(key, place));
}

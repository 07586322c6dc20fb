import { advice } from "../core/advice.ts";
import type { Clock } from "../core/clock.ts";
import { systemClock } from "../core/clock.ts";
import { type Failed, failed } from "../core/display.ts";
import { createConfig, type Edited, editFile, type Written, writeConfig } from "./edit-file.ts";
import { type ConfigPlace, readEffective, readText } from "./load.ts";

/* Changes the configuration that is in force: config.yaml, or what the system service applies over it. */

/** Saves a new text of the configuration, if the one in force is still the expected one. */
export async function saveConfig(
  place: ConfigPlace,
  expected: string,
  text: string,
  clock: Clock = systemClock,
): Promise<Written> {
  const { config, home, overrides } = place;
  if (overrides === null) return writeConfig(config, expected, text, clock);
  // First: what is written below replaces this text, and no later one.
  const applied = await readText(overrides);
  const root = await readText(config);
  const { text: before } = await readEffective(place);
  if (root.text === null || before !== expected) return STALE;
  const { overridesFor } = await import("./overrides.ts");
  const own = overridesFor(root.text, text, home);
  if (!own.ok) return { ...own, isStale: false };
  if (applied.text !== null) return writeConfig(overrides, applied.text, own.text, clock);
  const created = await createConfig(overrides, own.text);
  return created.ok || !created.isStale ? created : STALE;
}

const STALE: Written = {
  ...failed("the configuration was changed meanwhile", "run the command again"),
  isStale: true,
};

/** The same by an edit, which is made again if the configuration was changed meanwhile. */
export async function changeConfig<Result extends { readonly ok: true; readonly text: string }>(
  place: ConfigPlace,
  edit: (text: string) => Result | Failed,
  clock: Clock = systemClock,
): Promise<Edited<Result> | Failed> {
  if (place.overrides === null) return editFile(place.config, edit, clock);
  for (let attempt = 1; ; attempt += 1) {
    const read = await readEffective(place);
    if (read.text === null) return failed(read.problem, advice.check());
    const result = edit(read.text);
    if (!result.ok) return result;
    if (result.text === read.text) return { ok: true, result, changed: false };
    const saved = await saveConfig(place, read.text, result.text, clock);
    if (saved.ok) return { ok: true, result, changed: true };
    if (!saved.isStale || attempt === MAX_ATTEMPTS) return saved;
  }
}

const MAX_ATTEMPTS = 20;

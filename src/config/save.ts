import { advice } from "../core/advice.ts";
import type { Clock } from "../core/clock.ts";
import { systemClock } from "../core/clock.ts";
import { type Failed, failed } from "../core/display.ts";
import { errorMessage } from "../core/errors.ts";
import { stageFile } from "../core/private-file.ts";
import { type Edited, editFile, type Written, writeConfig } from "./edit-file.ts";
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
  const root = await readText(config);
  const { text: before } = await readEffective(place);
  if (root.text === null || before !== expected)
    return { ...failed("the configuration was changed meanwhile", "run the command again"), isStale: true };
  const { overridesFor } = await import("./overrides.ts");
  const own = overridesFor(root.text, text, home);
  if (!own.ok) return { ...own, isStale: false };
  try {
    const staged = await stageFile(overrides, own.text);
    staged.commit();
    return { ok: true };
  } catch (error) {
    return { ...failed(`${overrides} was not changed: ${errorMessage(error)}`), isStale: false };
  }
}

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

import type { Config } from "../../config/schema.ts";
import { parseDuration } from "../../config/values.ts";
import { advice } from "../../core/advice.ts";
import { systemClock } from "../../core/clock.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { dayName, dollars } from "../../core/units.ts";
import type { Store } from "../../keys/stored-keys.ts";
import type { KeyChange } from "../../lifecycle/lifecycle.ts";
import { endedText, type RotatableKey } from "../../lifecycle/renewal.ts";
import { durationInWords } from "../../limits/format.ts";
import type { RenewedSettings } from "../../mirror/consoles/console.ts";
import type { KeyReport, KeysAnswer } from "../../mirror/report/shape.ts";
import { askConsoles } from "../ask-consoles.ts";
import { loadHere } from "../config-here.ts";
import { checkConsoleAccess, requestChange } from "../console-changes.ts";
import { fail, type Message, notice, printJson } from "../ui/messages.ts";
import { confirm } from "../ui/prompts.ts";
import { stdio } from "../ui/stdio.ts";
import { isInteractive } from "../ui/terminal.ts";

/* Rotations that the running daemon makes through the gateway's console. The key is never typed or shown. */

export interface ConsoleRotation {
  readonly store: Store | null;
  readonly force: boolean;
  readonly yes: boolean;
  readonly json: boolean;
}

/**
 * Rotates one tool's key through the console. "manual": that is not possible, the reason was printed, and a person can type
 * the new key instead.
 */
export async function rotateAtConsole(
  paths: Paths,
  name: string,
  rotation: ConsoleRotation,
): Promise<"done" | "failed" | "manual"> {
  const access = await checkConsoleAccess(paths, name);
  if (!access.ok) {
    if (access.hasConsole)
      notice({
        problem: `the key cannot be rotated through the console: ${access.problem}`,
        next: access.next,
      });
    return "manual";
  }
  const { store, force, yes } = rotation;
  const checked = await requestChange<RotatableKey>(paths, `/rotation/${encodeURIComponent(name)}`, {
    store,
    force,
  });
  if (!checked.ok) {
    notice({
      problem: `the key cannot be rotated through the console: ${checked.problem}`,
      next: checked.next,
    });
    return "manual";
  }
  // A daemon from before an update does not say what is over.
  const { gateway, group, renewed = null } = checked.value;
  notice(
    `the console of ${gateway} makes a new key for ${name}${group === null ? "" : ` in group ${group}`}, with the same limits${(renewed?.expires_at ?? null) === null ? " and expiry" : ""}. ` +
      "the old one is deleted when its last request has ended",
  );
  // --yes does not agree to a new expiry or quota, which cost money. Without a terminal, the daemon refuses.
  const mustAsk = isInteractive() && (renewed !== null || !yes);
  if (mustAsk && !(await confirmRotation(name, renewed))) {
    fail("stopped; nothing was changed", EXIT.failed);
    return "failed";
  }
  const renew = renewed !== null && mustAsk;
  return (await send(paths, name, rotation, renew)) ? "done" : "failed";
}

function confirmRotation(name: string, renewed: RenewedSettings | null): Promise<boolean> {
  if (renewed === null) return confirm(`rotate the key of ${name} now?`, "yes");
  const ended = endedText(renewed);
  return confirm(`the key of ${name} ${ended}. make one with ${renewedText(renewed)}?`, "no");
}

/** the same quota, $20.00, and an expiry in 90 days, on 2027-02-16 */
function renewedText({ expires_at, quota }: RenewedSettings): string {
  const parts: string[] = [];
  if (quota !== null) parts.push(`the same quota, ${dollars(quota)}`);
  if (expires_at !== null) {
    const lifetime = durationInWords(expires_at - systemClock.now());
    parts.push(`an expiry in ${lifetime}, on ${dayName(expires_at)}`);
  }
  return parts.join(", and ");
}

/** For `--all` and `--older-than`: each tool in turn, whatever happens to the others. */
export async function rotateSeveral(
  paths: Paths,
  olderThan: string | undefined,
  rotation: ConsoleRotation,
): Promise<void> {
  const { config } = await loadHere(paths, { strict: false });
  const age = olderThan === undefined ? { value: 0 } : parseDuration(olderThan);
  if ("problem" in age) return fail({ problem: `--older-than: ${age.problem}`, next: age.next }, EXIT.usage);
  const access = await checkConsoleAccess(paths, null);
  if (!access.ok) return fail(access, EXIT.failed);
  const asked = await askConsoles<KeysAnswer>(paths, "GET", "/keys");
  if (!asked.ok) return fail(asked, EXIT.failed);
  for (const { gateway, why: problem } of asked.value.problems) notice(`${gateway}: ${problem}`);
  const chosen = chooseTools(asked.value.keys, config, age.value, rotation.force);
  if (chosen.length === 0) return notice("no key is to be rotated");
  notice(`to be rotated, one after the other: ${chosen.join(", ")}`);
  if (!rotation.yes && isInteractive() && !(await confirm("rotate them now?", "yes")))
    return fail("stopped; nothing was changed", EXIT.failed);
  for (const name of chosen) await send(paths, name, rotation, false);
}

function chooseTools(
  keys: readonly KeyReport[],
  config: Config | null,
  age: number,
  force: boolean,
): readonly string[] {
  const now = systemClock.now();
  const isOld = ({ created_at: created }: KeyReport) =>
    age === 0 || (created !== null && now - created >= age);
  const names = keys.filter(isOld).flatMap(({ tools }) => tools);
  return [...new Set(names)].filter((name) => {
    const tool = config?.tools[name];
    if (tool?.watchOnly === true || (tool?.keysElsewhere === true && !force)) {
      notice(`${name} is left out: its key is also used elsewhere`);
      return false;
    }
    return true;
  });
}

const OLD_KEY: Readonly<Record<KeyChange["state"], Message>> = {
  done: "the old key is deleted at the console, and the gateway refuses it",
  retiring: {
    problem: "the tool uses the new key. the old one is deleted when its last request has ended",
    next: advice.status(),
  },
  kept: "the old key stays at the console: another tool has it, too",
};

/** False: the reason was printed. @param renew a person agreed to a new expiry or quota */
async function send(
  paths: Paths,
  name: string,
  { store, force, json }: ConsoleRotation,
  renew: boolean,
): Promise<boolean> {
  const path = `/rotate/${encodeURIComponent(name)}`;
  // A daemon from before an update refuses unknown fields.
  const changed = await requestChange<KeyChange>(paths, path, { store, force, ...(renew ? { renew } : {}) });
  if (!changed.ok) {
    fail({ problem: `${name}: ${changed.problem}`, next: changed.next }, EXIT.failed);
    return false;
  }
  const { old, new: successor, state, why } = changed.value;
  if (json) printJson(changed.value);
  else stdio().stdout.write(`${name}: key ${old ?? "(none)"} → ${successor ?? "(none)"}\n`);
  notice(
    why === null
      ? OLD_KEY[state]
      : {
          problem: `the tool uses the new key. the old one is not deleted yet: ${why}`,
          next: advice.status(),
        },
  );
  return true;
}

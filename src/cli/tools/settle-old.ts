import { EXIT } from "../../core/errors.ts";
import { describeSource, type KeySource } from "../../core/key-source.ts";
import type { Secret } from "../../core/secret.ts";
import { forgetKey } from "../../keys/store.ts";
import { shellWord } from "../../keys/words.ts";
import { fail } from "../fail.ts";
import type { Effect } from "./effect.ts";
import { isNamed } from "./keep-key.ts";
import { ownPlace } from "./key-place.ts";
import type { Rotation } from "./rotate.ts";
import { tell } from "./tell.ts";

export interface Rotated extends Rotation {
  readonly fresh: { readonly key: Secret; readonly source: KeySource; readonly accepted: boolean };
  readonly effect: Effect;
  /** The key it had; null: it could not be had from here. */
  readonly old: Secret | null;
}

/** What became of the rotation, and of the old key: it is the only one that is known to work until another does. */
export async function settleOld(rotated: Rotated): Promise<void> {
  const { effect, fresh, old, gateway } = rotated;
  const isHeld = effect.state === "in force" && effect.tool?.state === "needs-trust";
  if (effect.state === "not in force") fail(`but ${effect.reason}`, EXIT.failed);
  else if (isHeld) fail(`but ${effect.tool?.why} → ${effect.tool?.next}`, EXIT.failed);
  else if (effect.state === "in force")
    tell("the running keybearer uses it from the next request on; those under way finish with the old one");
  const doubt = doubtIn(rotated, isHeld);
  await clearPlace(rotated, doubt);
  if (old === null || doubt !== null || fresh.key.equals(old)) return;
  tell(
    `now delete the old key ${old.fingerprint} in the gateway's console: until then whoever has it can spend` +
      (gateway.console === null ? "" : ", and the mirror raises an alarm when somebody does"),
  );
}

/** Why the new key may not do yet; null: the gateway takes it, and the daemon has it or will find it. */
function doubtIn({ effect, fresh }: Rotated, isHeld: boolean): string | null {
  if (isHeld) return "the new one is held";
  if (effect.state === "not in force") return "the new one is not in use yet";
  if (!fresh.accepted) return "the gateway has not accepted the new one";
  // The shell's variable is not the service's.
  if (effect.state === "not running" && fresh.source.kind === "env")
    return "whether keybearer will see the new one shows when it runs";
  return null;
}

async function clearPlace({ paths, tool, old }: Rotated, doubt: string | null): Promise<void> {
  const place = ownPlace(tool.key, paths);
  if (place === null || old === null) return;
  const where = describeSource(tool.key);
  if (await isNamed(paths, place))
    return tell(`the old key stays in ${where}: another tool has it from there`);
  if (doubt !== null) {
    const away =
      place.kind === "file"
        ? `rm ${shellWord(place.path)}`
        : "delete that entry in the keychain's own program";
    return tell(`the old key stays in ${where}: ${doubt}. once it works → ${away}`);
  }
  const gone = await forgetKey(place, { env: process.env });
  if (!gone.ok) tell(`the old key is still in ${where}: ${gone.reason}`);
}

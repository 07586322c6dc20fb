import { advice } from "../core/advice.ts";
import { EXIT } from "../core/errors.ts";
import type { Paths } from "../core/paths.ts";
import { heldKeyRemedy, type KeyAction, PAST } from "../lifecycle/key-action.ts";
import type { KeyReport, KeysAnswer } from "../mirror/report/shape.ts";
import { askConsoles } from "./ask-consoles.ts";
import { describeKey, requestChange } from "./console-changes.ts";
import { fail, failNull, printText } from "./ui/messages.ts";
import { canConfirm, confirm } from "./ui/prompts.ts";
import { commandPaths } from "./ui/stdio.ts";
import { joinNames } from "./ui/units.ts";

export interface ChangeOptions {
  readonly gateway?: string;
  readonly yes?: boolean;
}

/** `keybearer keys disable`, `enable` and `delete`: for a key that no tool holds. */
export async function changeKey(action: KeyAction, asked: string, options: ChangeOptions): Promise<void> {
  if (action === "delete" && !canConfirm(advice.deleteKey(asked), options)) return;
  const paths = commandPaths();
  const found = await findKey(paths, asked, options.gateway);
  if (found === null) return;
  const { gateway, ref } = found;
  const [tool] = found.tools;
  if (tool !== undefined)
    return fail(
      {
        problem: `key ${describeKey(found)} is the key of ${joinNames(found.tools)}`,
        next: heldKeyRemedy(tool, action),
      },
      EXIT.failed,
    );
  const question = `delete key ${describeKey(found)} at the console of ${gateway} for good?`;
  if (action === "delete" && !options.yes && !(await confirm(question, "no")))
    return fail("nothing was changed", EXIT.failed);
  const changed = await requestChange<KeyReport>(paths, "/changekey", { gateway, ref, action });
  if (!changed.ok)
    return fail(
      {
        problem: `key ${describeKey(found)} was not ${PAST[action]}: ${changed.problem}`,
        next: changed.next,
      },
      EXIT.failed,
    );
  printText(`key ${describeKey(found)} is ${PAST[action]} at the console of ${gateway}`);
}

/** null: there is no such key or several, and that was printed. */
async function findKey(paths: Paths, asked: string, gateway: string | undefined): Promise<KeyReport | null> {
  const answer = await askConsoles<KeysAnswer>(paths, "POST", "/refreshkeys", {});
  if (!answer.ok) return failNull(answer, EXIT.failed);
  const { keys, problems } = answer.value;
  const matches = keys.filter((key) => isNamed(key, asked) && (gateway ?? key.gateway) === key.gateway);
  const [first, second] = matches;
  if (first !== undefined && second === undefined) return first;
  if (first !== undefined)
    return failNull(
      `${matches.length} keys match ${asked}: name one by its ref, or by --gateway\n${matches.map(describeMatch).join("\n")}`,
      EXIT.failed,
    );
  const unread = problems.map(({ gateway, why, next }) => ({
    problem: `${gateway}: its keys cannot be listed: ${why}`,
    next,
  }));
  return failNull(
    [{ problem: `no console lists a key ${asked}`, next: advice.keys() }, ...unread],
    EXIT.failed,
  );
}

/** The dots of a fingerprint are hard to type, so they may be left out. */
function isNamed({ name, key, ref }: KeyReport, asked: string): boolean {
  return asked === name || asked === ref || asked === key || `…${asked}` === key;
}

function describeMatch(key: KeyReport): string {
  const holder = key.tools.length === 0 ? "not held here" : joinNames(key.tools);
  const account = key.account === undefined ? "" : `, account ${key.account}`;
  return `  ${key.ref}  ${describeKey(key)}, ${key.state}, ${holder}, gateway ${key.gateway}${account}`;
}

import { redactedDiff } from "../../clients/diff.ts";
import type { Writable } from "../../clients/settings-files.ts";
import { EXIT, errorMessage } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { terminalDeps, type WriteDeps } from "./means.ts";
import { lookAt, replace } from "./settings-file.ts";
import { createUndoStore, digestOf, type Kept } from "./undo-store.ts";

export interface UndoAsked {
  readonly paths: Paths;
  /** As the person typed it, for what to type next. */
  readonly tool: string;
  readonly client: Writable;
  readonly clientName: string;
  /** The person has said yes already. */
  readonly yes: boolean;
  /** Also where that loses what was changed in the file since. */
  readonly force: boolean;
}

/** Puts a client's settings back to what they were before the last --write. */
export async function undoSettings(asked: UndoAsked, deps: WriteDeps = terminalDeps()): Promise<void> {
  const { paths, client, clientName, force } = asked;
  const store = createUndoStore(paths.state, deps.clock);
  const kept = await store.newest(client).catch(errorMessage);
  if (typeof kept === "string") return deps.fail(kept, EXIT.failed);
  if (kept === null) {
    return deps.fail(`there is nothing to undo: ${clientName} was not set up with --write`, EXIT.failed);
  }
  const looked = await lookAt(kept.file);
  if (!looked.ok) return deps.fail(looked.reason, EXIT.failed);
  const { file } = looked;
  const now = file.found?.text ?? null;
  if (now === kept.before) {
    await store.drop(kept);
    return deps.print(`${kept.file} is as it was before already`, tokenStays(kept));
  }
  deps.print(...redactedDiff(kept.file, now, kept.before));
  const again = `keybearer use ${asked.tool} --for ${client} --undo`;
  if (!force && (now === null || digestOf(now) !== kept.written)) {
    const what = `${kept.file} was changed since, and going back would lose that; nothing changed`;
    return deps.fail(`${what}. to go back all the same: ${again} --force`, EXIT.failed);
  }
  const fault = await agreed(asked, deps, `${again}${force ? " --force" : ""} --yes`, kept);
  if (fault !== null) return deps.fail(fault.message, fault.code);
  const done = await replace(file, kept.before, file.found?.mode ?? kept.mode);
  if (!done.ok) return deps.fail(done.reason, EXIT.failed);
  await store.drop(kept);
  const result = kept.before === null ? "is removed, as it was not there before" : "is as it was before";
  deps.print(`${kept.file} ${result}: start ${clientName} anew`, tokenStays(kept));
}

/** null: the person wants it. */
async function agreed({ yes }: UndoAsked, deps: WriteDeps, again: string, { file, before }: Kept) {
  if (yes) return null;
  if (!deps.there()) {
    const message = `nobody is here to ask; nothing changed. if you are sure: ${again}`;
    return { message, code: EXIT.usage };
  }
  const question = before === null ? `remove ${file}?` : `put ${file} back?`;
  if (await deps.confirm(question)) return null;
  return { message: "not undone; nothing changed", code: EXIT.failed };
}

/** Other places may hold it by now, so it is not ended here. */
function tokenStays({ tool }: Kept): string {
  return `its token still works. find its name, then end it: keybearer tools tokens ${tool}, keybearer tools revoke ${tool} <name>`;
}

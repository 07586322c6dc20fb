import { type Assignment, assign, readAssignment } from "../../config/assignments.ts";
import { EXIT } from "../../core/errors.ts";
import { activeRevision, editChecked, reportEffect, waitUntilActive } from "../config-change.ts";
import { fail, print } from "../ui/messages.ts";
import { commandPaths } from "../ui/stdio.ts";

/** `tools set codex limits.spend=$5/day`: changes settings of a tool, if config.yaml is still valid with them. */
export async function set(
  tool: string,
  texts: readonly string[],
  options: { readonly config?: string },
): Promise<void> {
  const assignments: Assignment[] = [];
  for (const text of texts) {
    const assignment = readAssignment(tool, text);
    if ("problem" in assignment) return fail(assignment, EXIT.usage);
    assignments.push(assignment);
  }
  const paths = commandPaths(options.config);
  const revision = await activeRevision(paths);
  const isChanged = await editChecked(paths, (text) => assign(text, tool, assignments));
  if (isChanged === null) return;
  if (!isChanged) return print(`${tool} has these settings already`);
  reportEffect(await waitUntilActive(paths, tool, (_tool, current) => current > revision));
}

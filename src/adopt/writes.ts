import type { FieldSet, Surroundings } from "../clients/description.ts";
import { field } from "../clients/description.ts";
import { companionPaths, type FoundKey } from "../clients/find.ts";
import { emptyText, type Format, formatFor, type Path } from "../clients/format.ts";
import { findDescription } from "../clients/settings-files.ts";
import type { Edited } from "../clients/text-edit.ts";
import { type Edit, type FileEdits, planEdits, type ToolPlan } from "./plan.ts";

/* From tools to files: which files are written, in which order, and what each tool changes in them. */

/** A tool that can be called, and what its clients get. */
export interface ReadyTool {
  readonly plan: ToolPlan;
  readonly token: string;
  /** http://localhost:5397 */
  readonly origin: string;
  /** For clients whose settings name one; null: none is known. */
  readonly model: string | null;
  readonly small: string | null;
  /** Keys that its client would send beside the token. They are removed. */
  readonly losers: readonly FoundKey[];
}

/** What one tool changes in one file. Each has an undo record of its own. */
export interface Step {
  readonly tool: ToolPlan;
  readonly client: string;
  readonly fields: FieldSet;
  apply(text: string): Edited;
}

/** All changes of one file. They are one write, so no moment has half of them. */
export interface FileWrite {
  readonly path: string;
  readonly format: Format;
  readonly steps: readonly Step[];
}

/**
 * The files in the order of writing. First those after which a client uses its token, then those that only hold what does not
 * count any more. So each client works after each write.
 */
export function planWrites(tools: readonly ReadyTool[], where: Surroundings): FileWrite[] {
  const files = new Map<string, { path: string; format: Format; rank: number; steps: Step[] }>();
  const add: Add = (path, format, rank, step, isSecond = false) => {
    const id = isSecond ? `${path} again` : path;
    const known = files.get(id);
    if (known === undefined) files.set(id, { path, format, rank, steps: [step] });
    else {
      known.rank = Math.max(known.rank, rank);
      known.steps.push(step);
    }
  };
  for (const tool of tools) {
    for (const edits of mergeByFile(planEdits(tool.plan, tool))) {
      const { file, client, rank } = edits;
      if (file.format === "text") continue;
      add(file.path, file.format, rank, stepOf(tool.plan, client, file.format, edits.edits));
    }
    for (const place of tool.plan.places)
      if (place.field?.move === "rewrite") addRewrite(tool, place, where, add);
    for (const { client, file, path } of tool.losers) {
      if (file.format === "text") continue;
      const removal: Edit = { path, value: undefined, holds: "key", near: null };
      add(file.path, file.format, REMOVED, stepOf(tool.plan, client, file.format, [removal]));
    }
  }
  return [...files.values()].toSorted((one, other) => one.rank - other.rank);
}

/** @param isSecond the file is written twice, because another one comes in between */
type Add = (path: string, format: Format, rank: number, step: Step, isSecond?: boolean) => void;

/** What is removed comes last. */
const REMOVED = 100;

/** The client's settings as `use --write` writes them. Then the key goes from where it was. */
function addRewrite(tool: ReadyTool, place: FoundKey, where: Surroundings, add: Add): void {
  const { plan, origin, token, model, small } = tool;
  const { client, file, path } = place;
  const writes = findDescription(client)?.writes(where) ?? [];
  let isSecond = false;
  for (const [rank, settings] of writes.entries()) {
    const target = settings.files(where).find((each) => each === file.path) ?? settings.files(where).at(-1);
    if (target === undefined) continue;
    isSecond ||= target === file.path && rank < writes.length - 1;
    add(target, settings.format, rank, {
      tool: plan,
      client,
      fields: settings,
      apply: (text) => settings.merge(text, { origin, token, model, small, moved: path }),
    });
  }
  if (file.format === "text") return;
  const { format } = file;
  const removal: Step = {
    tool: plan,
    client,
    fields: {
      format,
      empty: emptyText(format),
      fields: [field(path, "key"), ...(place.field?.companions ?? []).map((companion) => field(companion))],
    },
    apply: (text) => removeKey(format, text, place, path),
  };
  add(file.path, format, REMOVED, removal, isSecond);
}

function removeKey(format: Format, text: string, place: FoundKey, path: Path): Edited {
  const editor = formatFor(format);
  let edited = editor.set(text, path, undefined);
  for (const companion of companionPaths(place, editor.at(text, [])))
    if (edited.ok) edited = editor.set(edited.text, companion, undefined);
  return edited;
}

/** Two places of one key may need the same edit, such as that of their common address. */
function mergeByFile(all: readonly FileEdits[]): FileEdits[] {
  const files = new Map<string, FileEdits>();
  for (const each of all) {
    const known = files.get(each.file.path);
    if (known === undefined) {
      files.set(each.file.path, each);
      continue;
    }
    const isNew = ({ path }: Edit) => !known.edits.some((edit) => samePath(edit.path, path));
    files.set(each.file.path, {
      ...known,
      edits: [...known.edits, ...each.edits.filter(isNew)],
      rank: Math.min(known.rank, each.rank),
    });
  }
  return [...files.values()];
}

function samePath(one: Path, other: Path): boolean {
  return one.length === other.length && one.every((part, depth) => part === other[depth]);
}

function stepOf(tool: ToolPlan, client: string, format: Format, edits: readonly Edit[]): Step {
  const fields = edits.map(({ path, holds }) => field(path, holds));
  return {
    tool,
    client,
    fields: { format, empty: emptyText(format), fields },
    apply: (text) => applyEdits(format, text, edits),
  };
}

/** What is set comes before what is removed, because a removal changes the numbers of the others in a list. */
function applyEdits(format: Format, text: string, edits: readonly Edit[]): Edited {
  const ordered = [
    ...edits.filter(({ value }) => value !== undefined),
    ...edits.filter(({ value }) => value === undefined),
  ];
  let edited: Edited = { ok: true, text };
  for (const { path, value, near } of ordered)
    if (edited.ok) edited = formatFor(format).set(edited.text, path, value, near ?? undefined);
  return edited;
}

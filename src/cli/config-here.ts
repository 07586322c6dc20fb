import { createHash } from "node:crypto";
import { statSync } from "node:fs";
import { type Edited, editFile, type Written, writeConfig } from "../config/edit-file.ts";
import { type Loaded, loadConfig, readText } from "../config/load.ts";
import { parseConfig } from "../config/parse.ts";
import { warning } from "../config/problems.ts";
import { askDaemon } from "../control/client.ts";
import type { ConfigAnswer } from "../control/routes.ts";
import { advice } from "../core/advice.ts";
import { systemClock } from "../core/clock.ts";
import { type Failed, failed } from "../core/display.ts";
import type { Paths } from "../core/paths.ts";
import { isOwners } from "./ui/stdio.ts";

/*
 * Reading and changing the configuration of whichever keybearer a command is for. An owner of the system service cannot open
 * its files, and asks the daemon; root edits them.
 */

interface LoadOptions {
  readonly strict: boolean;
}

/** As loadConfig(). */
export async function loadHere(paths: Paths, { strict }: LoadOptions): Promise<Loaded> {
  const { config: file, home, mode, overrides } = paths;
  if (!isOwners(paths)) return loadConfig(file, { home, mode, overrides, strict });
  const asked = await askDaemon<ConfigAnswer>(paths, "GET", "/config");
  if (!asked.ok) {
    const problem = { ...warning("", asked.problem, asked.next), severity: "error" as const };
    return { found: true, text: null, config: null, problems: [problem], parsed: null, overridden: [] };
  }
  const { text, overridden } = asked.value;
  const parsed = parseConfig(text, home);
  return { found: true, text, config: parsed.config, problems: parsed.problems, parsed, overridden };
}

/** Writes config.yaml. That of the system service stays readable for its user. */
export async function writeHere({ mode, config }: Paths, before: string, text: string): Promise<Written> {
  if (mode === "user") return writeConfig(config, before, text);
  const group = statSync(config, { throwIfNoEntry: false })?.gid;
  const access = group === undefined ? {} : { mode: 0o640, group };
  return writeConfig(config, before, text, systemClock, access);
}

type Edit<Result> = (text: string) => Result | Failed;
type Confirm = () => Promise<boolean>;
interface NewText {
  readonly ok: true;
  readonly text: string;
}

/**
 * Changes the configuration of the system service. Root's changes go to config.yaml, together with what was applied over the
 * tools that they are about. null: the person did not confirm it.
 */
export async function editSystem<Result extends NewText>(
  paths: Paths,
  edit: Edit<Result>,
  confirm?: Confirm,
): Promise<Edited<Result> | Failed | null> {
  return isOwners(paths) ? editAsOwner(paths, edit, confirm) : editAsRoot(paths, edit, confirm);
}

/** The same without asking anybody, for whichever keybearer it is. */
export async function changeHere<Result extends NewText>(
  paths: Paths,
  edit: Edit<Result>,
): Promise<Edited<Result> | Failed> {
  if (paths.mode === "user") return editFile(paths.config, edit);
  const edited = await editSystem(paths, edit);
  if (edited === null) throw new Error("an edit that asks nobody was not confirmed");
  return edited;
}

const MAX_ATTEMPTS = 20;

async function editAsOwner<Result extends NewText>(
  paths: Paths,
  edit: Edit<Result>,
  confirm: Confirm | undefined,
): Promise<Edited<Result> | Failed | null> {
  let asked = await askDaemon<ConfigAnswer>(paths, "GET", "/config");
  for (let attempt = 1; ; attempt += 1) {
    if (!asked.ok) return asked;
    const before = asked.value.text;
    const result = edit(before);
    if (!result.ok) return result;
    if (confirm !== undefined && !(await confirm())) return null;
    if (result.text === before) return { ok: true, result, changed: false };
    const saved = await askDaemon(paths, "POST", "/config", { before: digestOf(before), text: result.text });
    if (saved.ok) return { ok: true, result, changed: true };
    // A person has confirmed this change and no other.
    if (confirm !== undefined || attempt === MAX_ATTEMPTS) return saved;
    asked = await askDaemon<ConfigAnswer>(paths, "GET", "/config");
    // Another owner's command did not save meanwhile, so it was refused for another reason.
    if (asked.ok && asked.value.text === before) return saved;
  }
}

function digestOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

async function editAsRoot<Result extends NewText>(
  paths: Paths,
  edit: Edit<Result>,
  confirm: Confirm | undefined,
): Promise<Edited<Result> | Failed | null> {
  const { applyOverrides, onlyOverrides, toolsThatDiffer } = await import("../config/overrides.ts");
  const { config: file, home, overrides = null } = paths;
  const root = await readText(file);
  if (root.text === null) return failed(root.problem);
  const own = overrides === null ? null : await readText(overrides);
  const applied = own?.text ?? "";
  const all = applyOverrides(root.text, applied, home);
  if (!all.ok) return all;
  const wanted = edit(all.text);
  if (!wanted.ok) return wanted;
  if (confirm !== undefined && !(await confirm())) return null;
  if (wanted.text === all.text) return { ok: true, result: wanted, changed: false };
  const tools = toolsThatDiffer(all.text, wanted.text);
  const kept = onlyOverrides(applied, tools);
  if (typeof kept !== "string") return kept;
  const base = applyOverrides(root.text, kept, home);
  if (!base.ok) return base;
  const result = edit(base.text);
  if (!result.ok) return result;
  const written = await writeHere(paths, root.text, result.text);
  if (!written.ok) return written;
  if (kept !== "") {
    const forgotten = await askDaemon(paths, "POST", "/forget", { before: digestOf(kept), tools });
    if (!forgotten.ok)
      return failed(
        `${file} was changed, but an owner's changes stay over it: ${forgotten.problem}`,
        advice.systemService("status"),
      );
  }
  return { ok: true, result, changed: true };
}

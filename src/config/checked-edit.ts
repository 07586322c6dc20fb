import { advice } from "../core/advice.ts";
import { type Failed, failed } from "../core/display.ts";
import { type Change, compareConfigs } from "./compare.ts";
import type { EditResult } from "./edit.ts";
import { parseConfig } from "./parse.ts";
import { describeProblems } from "./problems.ts";

export interface CheckedEdit {
  readonly ok: true;
  readonly text: string;
  /** What it does to what tools and keys may do. */
  readonly change: Change;
}

/** Edits the text of a valid config.yaml. Fails if it is not valid afterwards. */
export function checkedEdit(
  before: string,
  edit: (text: string) => EditResult | Failed,
  home: string,
): CheckedEdit | Failed {
  const edited = edit(before);
  if (!edited.ok) return edited;
  const old = parseConfig(before, home).config;
  if (old === null) return failed("config.yaml has problems, so nothing was changed", advice.check());
  const { config, problems } = parseConfig(edited.text, home);
  if (config === null) {
    const errors = problems.filter(({ severity }) => severity === "error");
    return failed(`${describeProblems(errors)}\nnothing was changed`);
  }
  return { ok: true, text: edited.text, change: compareConfigs(old, config) };
}

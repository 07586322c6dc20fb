import { redactedDiff } from "../../clients/diff.ts";
import { assign, readAssigned, readAssignment } from "../../config/assignments.ts";
import { compareConfigs } from "../../config/compare.ts";
import type { EditResult } from "../../config/edit.ts";
import { editFile, writeConfig } from "../../config/edit-file.ts";
import {
  freeTokenName,
  removeToken,
  removeTool,
  setEnabled,
  setToken,
  tokenEntry,
} from "../../config/edit-tools.ts";
import { readText } from "../../config/load.ts";
import { planTool } from "../../config/new-tool.ts";
import { parseConfig } from "../../config/parse.ts";
import { describeProblems } from "../../config/problems.ts";
import { redactValidConfig } from "../../config/redact.ts";
import type { Config } from "../../config/schema.ts";
import { advice } from "../../core/advice.ts";
import { type Failed, quoteForShell, withNext } from "../../core/display.ts";
import { HttpError } from "../../core/errors.ts";
import { makeToken } from "../../core/token.ts";
import { freePlace, keychainThere, type Store, sourceText, tryKeychain } from "../../keys/stored-keys.ts";
import type { ActionOf } from "./action.ts";
import { byConsole } from "./daemon-plans.ts";
import { DONE, type Done, type Plan, type PlanDeps } from "./plan.ts";

/* Actions that edit config.yaml. A plan writes exactly the text whose difference the person saw. */

export async function planSet(deps: PlanDeps, { tool, settings }: ActionOf<"set">): Promise<Plan> {
  const texts = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
  const assignments = texts.map((text) => {
    const read = readAssignment(tool, text);
    if ("problem" in read) throw new HttpError(400, withNext(read));
    return read;
  });
  const edit = await prepare(deps, (text) => assign(text, tool, assignments));
  const names = assignments.map(({ path }) => path.join("."));
  const old = readAssigned(edit.before, tool, names);
  const before = names.map((name) => (old[name] === null ? null : `${name}=${old[name] ?? ""}`));
  const set = (values: readonly string[]) => advice.setTool(tool, values.map(quoteForShell).join(" "));
  return {
    what: `set ${texts.join(" ")} of ${tool}`,
    change: edit.change,
    diff: edit.diff,
    undo: before.includes(null) ? null : set(before.filter((text) => text !== null)),
    run: () => save(deps, edit),
  };
}

export async function planSwitch(
  deps: PlanDeps,
  { kind, tool }: ActionOf<"enable" | "disable">,
): Promise<Plan> {
  const enabled = kind === "enable";
  const edit = await prepare(deps, (text) => setEnabled(text, tool, enabled));
  return {
    what: `${kind} ${tool}`,
    change: edit.change,
    diff: edit.diff,
    undo: enabled ? advice.disable(tool) : advice.enable(tool),
    run: () => save(deps, edit),
  };
}

/** The page sees the hash only. `keybearer confirm` prints the token once it is saved. */
export async function planToken(deps: PlanDeps, { tool, name }: ActionOf<"token">): Promise<Plan> {
  const made = makeToken();
  let free = name;
  const edit = await prepare(deps, (text) => {
    free = freeTokenName(text, tool, name);
    return setToken(text, tool, tokenEntry(free, made), "add");
  });
  return {
    what: `make a token ${free} for ${tool}`,
    change: edit.change,
    diff: edit.diff,
    undo: advice.revoke(tool, free),
    run: async () => ({ ...(await save(deps, edit)), token: made }),
  };
}

export async function planRevoke(deps: PlanDeps, { tool, name }: ActionOf<"revoke">): Promise<Plan> {
  const edit = await prepare(deps, (text) => removeToken(text, tool, name));
  return {
    what: `revoke token ${name} of ${tool}`,
    change: edit.change,
    diff: edit.diff,
    undo: null,
    run: () => save(deps, edit),
  };
}

/**
 * The tool is saved first, with a place for its key that is still empty. Then the console makes the key. If that fails, the
 * tool is removed again.
 */
export async function planCreate(
  deps: PlanDeps,
  { tool, gateway, group }: ActionOf<"create">,
): Promise<Plan> {
  const { paths, controls, env } = deps;
  const text = await readConfig(deps);
  const planned = planTool(text, paths.home, tool, { gateway, ...(group === "" ? {} : { group }) });
  if (!planned.ok) throw new HttpError(planned.bad === "options" ? 400 : 409, withNext(planned));
  if (!controls.mirror.canChangeKeys(planned.gateway.name))
    throw new HttpError(
      409,
      withNext({
        problem: `the console of ${gateway} cannot make a key here`,
        next: advice.addToolWithKey(tool, gateway),
      }),
    );
  const { [tool]: _itself, ...others } = planned.config.tools;
  const place = await freePlace({ store: await storeHere(env), tool, tools: others, paths, key: null, env });
  const made = makeToken();
  const secrets = { key: sourceText(place, paths), token: tokenEntry(tool, made) };
  const edit = await prepare(deps, (before) => planned.insert(before, secrets));
  return {
    what: `add ${tool}, with a key${group === "" ? "" : ` of group ${group}`} that the console of ${planned.gateway.name} makes`,
    change: edit.change,
    diff: edit.diff,
    undo: advice.remove(tool),
    async run() {
      await write(deps, edit);
      const settings = { group: group === "" ? null : group, quota: null, windows: [], expires_at: null };
      try {
        await takeEffect(deps);
        await byConsole(gateway, () => controls.lifecycle.create(tool, { account: null, settings }));
      } catch (error) {
        await takeBack(deps, tool, edit);
        throw error;
      }
      return { note: null, token: made };
    },
  };
}

/** To the text before, unless the file was edited since. */
async function takeBack(
  { paths, clock, controls, refresh }: PlanDeps,
  tool: string,
  { before, after }: PreparedEdit,
): Promise<void> {
  const restored = await writeConfig(paths.config, after, before, clock);
  const removed = restored.ok
    ? restored
    : await editFile(paths.config, (text) => removeTool(text, tool), clock);
  if (!removed.ok)
    controls.log.error({ tool }, `the new tool has no key, and could not be removed: ${withNext(removed)}`);
  await refresh();
}

async function storeHere(env: NodeJS.ProcessEnv): Promise<Store> {
  const { there } = await keychainThere({ env });
  return there && (await tryKeychain({ env })) === null ? "keychain" : "file";
}

interface PreparedEdit {
  readonly before: string;
  readonly after: string;
  readonly change: Plan["change"];
  readonly diff: readonly string[];
}

/** Makes the edit, and throws an HttpError unless config.yaml is in force now, and valid after the edit. */
async function prepare(deps: PlanDeps, edit: (text: string) => EditResult | Failed): Promise<PreparedEdit> {
  const { paths, refresh } = deps;
  const before = await readConfig(deps);
  // What a person sees is compared with what tools may do now.
  const problem = await refresh();
  if (problem !== null)
    throw new HttpError(409, `config.yaml is not in force, so nothing was changed: ${problem}`);
  const edited = edit(before);
  if (!edited.ok) throw new HttpError(409, withNext(edited));
  const old = validConfig(before, paths.home);
  if (old.config === null)
    throw new HttpError(409, `config.yaml has problems, so nothing was changed → ${advice.check()}`);
  const { config, problems } = validConfig(edited.text, paths.home);
  if (config === null) throw new HttpError(400, problems);
  return {
    before,
    after: edited.text,
    change: compareConfigs(old.config, config),
    diff: redactedDiff(paths.config, redactValidConfig(before), redactValidConfig(edited.text)),
  };
}

async function readConfig({ paths, isSandbox }: PlanDeps): Promise<string> {
  if (isSandbox())
    throw new HttpError(
      409,
      `the sandbox's tool is not in a file. write a config.yaml first → ${advice.init()}`,
    );
  const read = await readText(paths.config);
  if (read.text === null) throw new HttpError(409, read.problem);
  return read.text;
}

function validConfig(text: string, home: string): { config: Config | null; problems: string } {
  const { config, problems } = parseConfig(text, home);
  const errors = problems.filter(({ severity }) => severity === "error");
  return { config: errors.length === 0 ? config : null, problems: describeProblems(errors) };
}

async function save(deps: PlanDeps, edit: PreparedEdit): Promise<Done> {
  if (edit.before === edit.after) return { ...DONE, note: "it was so already" };
  await write(deps, edit);
  await takeEffect(deps);
  return DONE;
}

async function write({ paths, clock }: PlanDeps, { before, after }: PreparedEdit): Promise<void> {
  const written = await writeConfig(paths.config, before, after, clock);
  if (!written.ok) throw new HttpError(409, withNext(written));
}

/** A person must not take a tool for disabled that is not. */
async function takeEffect({ refresh }: PlanDeps): Promise<void> {
  const problem = await refresh();
  if (problem !== null)
    throw new HttpError(
      409,
      `config.yaml was saved, but the configuration before stays in force: ${problem}`,
    );
}

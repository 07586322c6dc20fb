import { redactedDiff } from "../../clients/diff.ts";
import { assign, readAssigned, readAssignment } from "../../config/assignments.ts";
import { checkedEdit } from "../../config/checked-edit.ts";
import type { EditResult } from "../../config/edit.ts";
import {
  freeTokenName,
  removeToken,
  removeTool,
  setEnabled,
  setToken,
  tokenEntry,
} from "../../config/edit-tools.ts";
import { readEffective } from "../../config/load.ts";
import { planTool } from "../../config/new-tool.ts";
import { redactValidConfig } from "../../config/redact.ts";
import { changeConfig, saveConfig } from "../../config/save.ts";
import { advice } from "../../core/advice.ts";
import { type Failed, quoteForShell, withNext } from "../../core/display.ts";
import { HttpError } from "../../core/errors.ts";
import { makeToken } from "../../core/token.ts";
import { freePlace, keychainThere, sourceText, tryKeychain } from "../../keys/stored-keys.ts";
import type { NoteCode } from "../api.ts";
import { codedError } from "../http.ts";
import { call, type Plan, type PlanDeps, type Planned, type Planners } from "./plan.ts";

/* Actions that edit config.yaml. A plan writes exactly the text whose difference the person saw. */

export const CONFIG_ACTIONS = {
  async set(deps, { tool, settings }) {
    const texts = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
    const assignments = texts.map((text) => {
      const read = readAssignment(tool, text);
      if ("problem" in read) throw new HttpError(400, read);
      return read;
    });
    const edit = await prepare(deps, (text) => assign(text, tool, assignments));
    const names = assignments.map(({ path }) => path.join("."));
    const old = readAssigned(edit.before, tool, names);
    // What was a map, `tools set` cannot write again.
    const isUndoable = names.every((name) => old[name] !== null);
    const before = names.map((name) => quoteForShell(`${name}=${old[name] ?? ""}`)).join(" ");
    return {
      what: `set ${texts.join(" ")} of ${tool}`,
      undo: isUndoable ? advice.setTool(tool, before) : null,
      ...planEdit(deps, edit),
    };
  },

  enable: (deps, { tool }) => planSwitch(deps, tool, true),

  disable: (deps, { tool }) => planSwitch(deps, tool, false),

  /** The page sees the hash only. `keybearer confirm` prints the token once it is saved. */
  async token(deps, { tool, name }) {
    const made = makeToken();
    let free = name;
    const edit = await prepare(deps, (text) => {
      free = freeTokenName(text, tool, name);
      return setToken(text, tool, tokenEntry(free, made), "add");
    });
    return {
      what: `make a token ${free} for ${tool}`,
      undo: advice.revoke(tool, free),
      ...planEdit(deps, edit, made),
    };
  },

  async revoke(deps, { tool, name }) {
    const edit = await prepare(deps, (text) => removeToken(text, tool, name));
    return { what: `revoke token ${name} of ${tool}`, ...planEdit(deps, edit) };
  },

  /**
   * The tool is saved first, with a place for its key that is still empty. Then the console makes the key. If that fails, the
   * tool is removed again.
   */
  async create(deps, { tool, gateway, group }) {
    const { paths, controls, env } = deps;
    const options = { gateway, ...(group === "" ? {} : { group }) };
    const planned = planTool(await readConfig(deps), paths.home, tool, options);
    if (!planned.ok) throw new HttpError(409, planned);
    if (!controls.mirror.canChangeKeys(gateway)) {
      const problem = `the console of ${gateway} cannot make a key here`;
      throw new HttpError(409, { problem, next: advice.addToolWithKey(tool, gateway) });
    }
    const { [tool]: _itself, ...tools } = planned.config.tools;
    const hasKeychain =
      paths.mode === "user" && (await keychainThere({ env })).there && (await tryKeychain({ env })) === null;
    const store = hasKeychain ? "keychain" : "file";
    const place = await freePlace({ store, tool, tools, paths, key: null, env });
    const made = makeToken();
    const secrets = { key: sourceText(place, paths), token: tokenEntry(tool, made) };
    const edit = await prepare(deps, (text) => planned.insert(text, secrets));
    const ofGroup = group === "" ? "" : ` of group ${group}`;
    return {
      what: `add ${tool}, with a key${ofGroup} that the console of ${gateway} makes`,
      change: edit.change,
      diff: edit.diff,
      undo: advice.remove(tool),
      async run() {
        await write(deps, edit);
        try {
          await takeEffect(deps);
          const limits = { quota: null, windows: [], expires_at: null, models: [] };
          const settings = { group: group === "" ? null : group, ...limits };
          await call(deps, "POST /createkey/:name", tool, { account: null, ...settings });
        } catch (error) {
          await takeBack(deps, tool, edit);
          throw error;
        }
        return { note: null, token: made };
      },
    };
  },
} satisfies Partial<Planners>;

async function planSwitch(deps: PlanDeps, tool: string, enabled: boolean): Promise<Planned> {
  const edit = await prepare(deps, (text) => setEnabled(text, tool, enabled));
  return {
    what: `${enabled ? "enable" : "disable"} ${tool}`,
    undo: enabled ? advice.disable(tool) : advice.enable(tool),
    ...planEdit(deps, edit),
  };
}

interface PreparedEdit extends Pick<Plan, "change" | "diff"> {
  readonly before: string;
  readonly after: string;
}

/** Makes the edit, and throws an HttpError unless config.yaml is in force now, and valid after the edit. */
async function prepare(deps: PlanDeps, edit: (text: string) => EditResult | Failed): Promise<PreparedEdit> {
  const { paths, refresh } = deps;
  const before = await readConfig(deps);
  // What a person sees is compared with what tools may do now.
  const problem = await refresh();
  if (problem !== null)
    throw codedError(
      409,
      "config-not-in-force",
      `config.yaml is not in force, so nothing was changed: ${problem}`,
    );
  const edited = checkedEdit(before, edit, paths.home);
  if (!edited.ok) throw new HttpError(409, edited);
  const { text: after, change } = edited;
  const diff = redactedDiff(paths.config, redactValidConfig(before), redactValidConfig(after));
  return { before, after, change, diff };
}

async function readConfig({ paths, isSandbox }: PlanDeps): Promise<string> {
  if (isSandbox()) {
    const problem = "the sandbox's tool is not in a file. write a config.yaml first";
    throw new HttpError(409, { problem, next: advice.init() });
  }
  const read = await readEffective(paths);
  if (read.text === null) throw new HttpError(409, read.problem);
  return read.text;
}

/** A plan that writes the edit, and nothing else. */
function planEdit(deps: PlanDeps, edit: PreparedEdit, token: string | null = null): Omit<Planned, "what"> {
  const { change, diff, before, after } = edit;
  return {
    change,
    diff,
    async run() {
      if (before === after) return { note: "unchanged" satisfies NoteCode, token };
      await write(deps, edit);
      await takeEffect(deps);
      return { note: null, token };
    },
  };
}

async function write({ paths, clock }: PlanDeps, { before, after }: PreparedEdit): Promise<void> {
  const written = await saveConfig(paths, before, after, clock);
  if (!written.ok) throw new HttpError(409, written);
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

/** To the text before, unless the file was edited since. */
async function takeBack(
  { paths, clock, controls, refresh }: PlanDeps,
  tool: string,
  { before, after }: PreparedEdit,
): Promise<void> {
  const restored = await saveConfig(paths, after, before, clock);
  const removed = restored.ok ? restored : await changeConfig(paths, (text) => removeTool(text, tool), clock);
  if (!removed.ok)
    controls.log.error({ tool }, `the new tool has no key, and could not be removed: ${withNext(removed)}`);
  await refresh();
}

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
import { failure } from "../failure.ts";
import {
  actionKind,
  areSettings,
  call,
  type Done,
  isLine,
  isLineOrEmpty,
  isPlainName,
  type PlanDeps,
} from "./action.ts";

/* Actions that edit config.yaml. A plan writes exactly the text whose difference the person saw. */

export const CONFIG_ACTIONS = {
  set: actionKind({ tool: isLine, settings: areSettings }, async (deps, { tool, settings }) => {
    const texts = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
    const assignments = texts.map((text) => {
      const read = readAssignment(tool, text);
      if ("problem" in read) throw new HttpError(400, read);
      return read;
    });
    const { before: text, ...edit } = await planEdit(deps, (text) => assign(text, tool, assignments));
    const names = assignments.map(({ path }) => path.join("."));
    const old = readAssigned(text, tool, names);
    // What was a map, `tools set` cannot write again.
    const isUndoable = names.every((name) => old[name] !== null);
    const before = names.map((name) => quoteForShell(`${name}=${old[name] ?? ""}`)).join(" ");
    const undo = isUndoable ? advice.setTool(tool, before) : null;
    return { what: `set ${texts.join(" ")} of ${tool}`, undo, ...edit };
  }),

  enable: actionKind({ tool: isLine }, async (deps, { tool }) => {
    const edit = await planEdit(deps, (text) => setEnabled(text, tool, true));
    return { what: `enable ${tool}`, undo: advice.disable(tool), ...edit };
  }),

  disable: actionKind({ tool: isLine }, async (deps, { tool }) => {
    const edit = await planEdit(deps, (text) => setEnabled(text, tool, false));
    return { what: `disable ${tool}`, undo: advice.enable(tool), ...edit };
  }),

  /** The page sees the hash only. `keybearer confirm` prints the token once it is saved. */
  token: actionKind({ tool: isLine, name: isPlainName }, async (deps, { tool, name }) => {
    const made = makeToken();
    let free = name;
    const add = (text: string) => {
      free = freeTokenName(text, tool, name);
      return setToken(text, tool, tokenEntry(free, made), "add");
    };
    const edit = await planEdit(deps, add, made);
    return { what: `make a token ${free} for ${tool}`, undo: advice.revoke(tool, free), ...edit };
  }),

  revoke: actionKind({ tool: isLine, name: isLine }, async (deps, { tool, name }) => {
    const edit = await planEdit(deps, (text) => removeToken(text, tool, name));
    return { what: `revoke token ${name} of ${tool}`, ...edit };
  }),

  /**
   * The tool is saved first, with a place for its key that is still empty. Then the console makes the key. If that fails, the
   * tool is removed again, with the group that was added for it.
   */
  create: actionKind(
    { tool: isLine, gateway: isLine, group: isLineOrEmpty },
    async (deps, { tool, gateway, group }) => {
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
        paths.mode === "user" &&
        (await keychainThere({ env })).there &&
        (await tryKeychain({ env })) === null;
      const store = hasKeychain ? "keychain" : "file";
      const place = await freePlace({ store, tool, tools, paths, key: null, env });
      const token = makeToken();
      const secrets = { key: sourceText(place, paths), token: tokenEntry(tool, token) };
      const { write, ...edit } = await planEdit(deps, (text) => planned.insert(text, secrets));
      const ofGroup = group === "" ? "" : ` of group ${group}`;
      return {
        ...edit,
        what: `add ${tool}, with a key${ofGroup} that the console of ${gateway} makes`,
        undo: advice.remove(tool),
        async run() {
          await write();
          try {
            await takeEffect(deps);
            const limits = { quota: null, windows: [], expires_at: null, models: [] };
            const settings = { group: group === "" ? null : group, ...limits };
            await call(deps, "POST /createkey/:name", tool, { account: null, ...settings });
          } catch (error) {
            await takeBack(deps, tool, edit);
            throw error;
          }
          return { token };
        },
      };
    },
  ),
};

/**
 * Makes the edit. The plan writes it, and nothing else. Throws an HttpError unless config.yaml is in force now, and valid
 * after the edit.
 */
async function planEdit(
  deps: PlanDeps,
  edit: (text: string) => EditResult | Failed,
  token: string | null = null,
) {
  const { paths, clock, refresh } = deps;
  const before = await readConfig(deps);
  // What a person sees is compared with what tools may do now.
  const problem = await refresh();
  if (problem !== null) throw failure(409, "config-not-in-force", problem);
  const edited = checkedEdit(before, edit, paths.home);
  if (!edited.ok) throw new HttpError(409, edited);
  const { text: after, change } = edited;
  const diff = redactedDiff(paths.config, redactValidConfig(before), redactValidConfig(after));
  const write = async () => {
    const written = await saveConfig(paths, before, after, clock);
    if (!written.ok) throw new HttpError(409, written);
  };
  return {
    before,
    after,
    change,
    diff,
    write,
    async run(): Promise<Done> {
      if (before === after) return { note: "unchanged" satisfies NoteCode, token };
      await write();
      await takeEffect(deps);
      return { token };
    },
  };
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
  { before, after }: { readonly before: string; readonly after: string },
): Promise<void> {
  const restored = await saveConfig(paths, after, before, clock);
  const removed = restored.ok ? restored : await changeConfig(paths, (text) => removeTool(text, tool), clock);
  if (!removed.ok)
    controls.log.error({ tool }, `the new tool has no key, and could not be removed: ${withNext(removed)}`);
  await refresh();
}

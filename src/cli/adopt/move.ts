import { withHalfMoved } from "../../adopt/inventory.ts";
import { findLosers, type Known, planTools, type ToolPlan } from "../../adopt/plan.ts";
import { type FileWrite, planWrites, type ReadyTool, type Step } from "../../adopt/writes.ts";
import type { Surroundings } from "../../clients/description.ts";
import { redactedDiff } from "../../clients/diff.ts";
import { readSettings, replaceSettings, type SettingsFile } from "../../clients/files.ts";
import { type FoundKey, withinFor } from "../../clients/find.ts";
import { cannotEditFile } from "../../clients/text-edit.ts";
import { contentOf, describeChange } from "../../clients/undo.ts";
import { type UndoRecord, UndoStore } from "../../clients/undo-store.ts";
import { advice } from "../../core/advice.ts";
import type { Failed } from "../../core/display.ts";
import { EXIT, errorMessage } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { removeLeftovers } from "../../core/private-file.ts";
import { Secret, type SecretSet } from "../../core/secret.ts";
import { hashToken } from "../../core/token.ts";
import { chooseStore } from "../tools/store-key.ts";
import { fail, type Message, notice, print, printDiff, printText } from "../ui/messages.ts";
import { canConfirm, confirm } from "../ui/prompts.ts";
import { setExitCode } from "../ui/stdio.ts";
import { checkTools, ensureRunning, finish } from "./finish.ts";
import { findOrigin, type Prepared, prepareTool, readKnown } from "./prepare.ts";
import { describePlace, fileOrder } from "./print.ts";
import { type AdoptOptions, holdsKeys, type Search, searchKeys } from "./search.ts";

/* `keybearer adopt --write`: shows each change and asks, then stores keys, writes clients' settings and shows that they work. */

export async function moveKeys(paths: Paths, given: Search, options: AdoptOptions): Promise<void> {
  if (!holdsKeys(given)) return print("no key is left to move");
  const known = await readKnown(paths);
  if (known === null) return;
  const inventory = withHalfMoved(given.inventory, given.found, (key) => gatewayOf(key, known));
  const search = { ...given, inventory };
  if (inventory.pairs.length === 0)
    return fail(`the keys that are left are moved by hand: ${advice.adopt()}`, EXIT.failed);
  if (!canConfirm(advice.adoptWrite(), options)) return;
  const { found } = search;
  const losers = findLosers(
    found,
    search.inventory.pairs.flatMap(({ places }) => places),
  );
  const plans = planTools(search.inventory.pairs, losers, known);
  const chosen = await chooseMoves(search, plans, known.origin, options);
  if (chosen.length === 0) return fail("no key was moved", EXIT.failed);
  const store = await chooseStore(options, null);
  if (store === null) return;
  const prepared: (Prepared & Move)[] = [];
  for (const move of chosen) {
    const tool = await prepareTool(paths, move.plan, store);
    if (tool !== null) prepared.push({ ...tool, ...move });
  }
  if (prepared.length === 0) return fail("no key was moved", EXIT.failed);
  // Before the files are written: a client that was pointed at a keybearer that does not run would not work.
  if (!(await ensureRunning(paths, options))) return setExitCode(EXIT.failed);
  const origin = await findOrigin(paths);
  const tools = prepared.map((tool) => ({ ...tool, origin }));
  const problem = await writeFiles(paths, search, tools);
  if (problem !== null) return fail(problem, EXIT.failed);
  await checkTools(paths, tools);
  const moved = tools.map(({ plan }) => plan.key);
  await finish(paths, tools, await searchKeys(paths, search.where, null, moved), options);
  if (prepared.length < plans.length) setExitCode(EXIT.failed);
}

function gatewayOf(key: Secret, { keys, tools, gateways }: Known): string | null {
  const tool = Object.values(tools).find(({ name }) => keys.get(name)?.equals(key));
  return gateways[tool?.gateway ?? ""]?.baseUrl ?? null;
}

/** What the person agreed to. */
interface Move {
  readonly plan: ToolPlan;
  readonly losers: readonly FoundKey[];
}

/** Shows what each tool would change, and asks. */
async function chooseMoves(
  search: Search,
  plans: readonly ToolPlan[],
  origin: string,
  options: AdoptOptions,
): Promise<Move[]> {
  const { where, found } = search;
  const keys = Secret.together([...found.keys, ...found.shaped].map(({ key }) => key));
  const projects = new Set(
    [...found.keys, ...found.addresses].filter(({ file }) => file.isProject).map(({ file }) => file.path),
  );
  const chosen: Move[] = [];
  for (const whole of plans) {
    const { baseUrl, key, name, isNew } = whole;
    const places = await choosePlaces(whole.places, where, options);
    if (places.length === 0) continue;
    const plan = { ...whole, places };
    const losers = await choosePlaces(findLosers(found, places), where, options);
    print("", `${key.fingerprint} of ${baseUrl} → tool ${name}${isNew ? "" : ", which has this key"}`);
    // A token is made when the person has agreed, and the gateway lists its models only when it is asked.
    const token = `kb_${"0".repeat(49)}`;
    const writes = planWrites([{ plan, losers, token, origin, model: "MODEL", small: null }], where);
    // An address that counts may be in a project's file although the key is not.
    const agreed = [...places, ...losers].map(({ file }) => file.path);
    const other = writes.find(({ path }) => projects.has(path) && !agreed.includes(path));
    if (other !== undefined) {
      notice(`${other.path} of a project would have to change, too. nothing of this key is changed`);
      continue;
    }
    for (const place of places) {
      const order = fileOrder(place, found, where.home);
      if (order !== null) printText(`${describePlace(place, where.home)}: ${order}`);
    }
    for (const loser of losers)
      printText(`${describePlace(loser, where.home)} is removed: it would be sent beside the token`);
    if (!(await showDiffs(writes, where, keys))) continue;
    if (options.yes || (await confirm("move it into keybearer?", "yes"))) chosen.push({ plan, losers });
    else print("it stays where it is");
  }
  return chosen;
}

/**
 * Containers and deployments cannot reach localhost, so a project's places are asked for one by one. With --yes they change only in
 * folders that the command names.
 */
async function choosePlaces(
  places: readonly FoundKey[],
  where: Surroundings,
  { yes }: AdoptOptions,
): Promise<FoundKey[]> {
  const chosen: FoundKey[] = [];
  for (const place of places) {
    const name = describePlace(place, where.home);
    const isNamed = where.folders.some((folder) => place.file.path.startsWith(`${folder}/`));
    if (!place.file.isProject || (yes && isNamed)) chosen.push(place);
    else if (yes) notice(`${name} stays as it is: name the project's folder to change its files`);
    else if (await confirm(`${name} is a project's: containers cannot reach keybearer. move it, too?`, "no"))
      chosen.push(place);
  }
  return chosen;
}

/** False: a file cannot be changed, and the reason was printed. */
async function showDiffs(writes: readonly FileWrite[], where: Surroundings, keys: SecretSet) {
  for (const write of writes) {
    const changed = await changeOf(write, where);
    if (!changed.ok) {
      notice({ ...changed, problem: `${changed.problem}. nothing of this key is changed` });
      return false;
    }
    const before = changed.file.found?.text ?? null;
    const redacted = before === null ? null : keys.redactFrom(before);
    printDiff(redactedDiff(write.path, redacted, keys.redactFrom(changed.text)));
  }
  return true;
}

type Changed =
  | { readonly ok: true; readonly file: SettingsFile; readonly text: string; readonly parts: readonly Part[] }
  | Failed;

/** The text before and after one step. */
interface Part {
  readonly step: Step;
  readonly before: string | null;
  readonly after: string;
}

async function changeOf({ path, steps }: FileWrite, where: Surroundings): Promise<Changed> {
  const read = await readSettings(path, withinFor(path, where));
  if (!read.ok) return read;
  const { file } = read;
  const parts: Part[] = [];
  let before = file.found?.text ?? null;
  for (const step of steps) {
    const edited = step.apply(contentOf(step.fields, before));
    if (!edited.ok) return cannotEditFile(path, edited);
    if (edited.text !== before) parts.push({ step, before, after: edited.text });
    before = edited.text;
  }
  return { ok: true, file, text: before ?? "", parts };
}

/** Undo records first, then the file: if a step fails, the client works as before. Returns what failed; null: nothing. */
async function writeFiles(
  paths: Paths,
  { where }: Search,
  tools: readonly ReadyTool[],
): Promise<Message | null> {
  const store = new UndoStore(paths, where);
  for (const write of planWrites(tools, where)) {
    const changed = await changeOf(write, where);
    if (!changed.ok) return changed;
    const { file, parts } = changed;
    if (parts.length === 0) continue;
    // They are left from an adopt that was killed. No other command writes these files now.
    await removeLeftovers(file.target, Number.POSITIVE_INFINITY);
    const mode = file.found?.mode ?? 0o600;
    const records: UndoRecord[] = [];
    try {
      for (const { step, before, after } of parts) {
        const described = describeChange(step.fields, before, after);
        if (!described.ok) throw new Error(described.problem);
        const token = tools.find(({ plan }) => plan === step.tool)?.token;
        const tokenHash = token === undefined ? null : hashToken(token);
        const { change } = described;
        const written = { file: file.path, format: write.format, existed: before !== null, mode, change };
        records.push(
          await store.add({ by: "adopt", client: step.client, tool: step.tool.name, tokenHash }, [written]),
        );
      }
      const replaced = await replaceSettings(file, changed.text, mode);
      if (!replaced.ok) throw new Error(replaced.problem);
    } catch (error) {
      for (const record of records.toReversed()) await store.remove(record);
      return { problem: `${write.path} was not changed: ${errorMessage(error)}`, next: "run this again" };
    }
    print(`${write.path} is changed`);
  }
  return null;
}

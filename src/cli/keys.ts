import { Command } from "commander";
import { askDaemon } from "../control/client.ts";
import { advice } from "../core/advice.ts";
import { EXIT } from "../core/errors.ts";
import { dayName, dollars, exactDollars, MINUTE_MS, wholeMinute } from "../core/units.ts";
import type { KeyAction } from "../lifecycle/key-action.ts";
import { consoleFigures } from "../limits/format.ts";
import type { KeyReport, KeysAnswer } from "../mirror/report/shape.ts";
import { askConsoles } from "./ask-consoles.ts";
import type { ChangeOptions } from "./keys-change.ts";
import { NO_CONSOLE } from "./mirror/consoles.ts";
import { fail, formatNote, indentedNote, type Note, printJson, printLayout } from "./ui/messages.ts";
import { commandPaths, setExitCode } from "./ui/stdio.ts";
import { columnsFor, layoutTable } from "./ui/table.ts";
import { type Screen, stdoutScreen } from "./ui/terminal.ts";
import { printable, wrap } from "./ui/text.ts";
import { ago, formatFactor, joinNames, timeOfDay } from "./ui/units.ts";

export function keysCommand(): Command {
  const keys = new Command("keys").description("list the console's keys, or change one that no tool uses");
  keys
    .command("list", { isDefault: true })
    .description("the keys in the console, and the tools that use them")
    .option("--refresh", "ask the consoles now; otherwise their answer may be a minute old")
    .option("--json", "print JSON")
    .action(list);
  addChange(keys, "disable", "disable a key at the console: it can be enabled again");
  addChange(keys, "enable", "enable a disabled key at the console");
  addChange(keys, "delete", "delete a key at the console, for good");
  return keys;
}

function addChange(keys: Command, action: KeyAction, description: string): void {
  keys
    .command(action)
    .description(description)
    .argument("<key>", "its name, its fingerprint, or its ref such as id:12, as `keys` lists them")
    .option("--gateway <name>", "if keys of several gateways match")
    .option("-y, --yes", "do not ask")
    .action(async (key: string, options: ChangeOptions) =>
      (await import("./keys-change.ts")).changeKey(action, key, options),
    );
}

async function list(options: { refresh?: boolean; json?: boolean }): Promise<void> {
  const paths = commandPaths();
  const asked = options.refresh
    ? await askConsoles<KeysAnswer>(paths, "POST", "/refreshkeys", {})
    : await askDaemon<KeysAnswer>(paths, "GET", "/keys");
  if (!asked.ok) return fail(asked, EXIT.failed);
  if (options.json) printJson(asked.value);
  else printLayout(formatKeys(asked.value, Date.now(), stdoutScreen()));
  if (asked.value.keys.length === 0 && asked.value.problems.length > 0) setExitCode(EXIT.failed);
}

/** Two lines per key, so that nothing has to be left out on a narrow terminal. */
export function formatKeys({ keys, problems }: KeysAnswer, now: number, { width }: Screen): string {
  if (keys.length === 0 && problems.length === 0)
    return `${NO_CONSOLE.split("\n")
      .map((line) => wrap(line, width))
      .join("\n")}\n`;
  const lines = keys.length === 0 ? [] : [...keyLines(keys, now, width), ...ageLines(keys, now, width)];
  for (const { gateway, why, next } of problems)
    lines.push(formatNote({ what: `${gateway}: its keys cannot be listed: ${why}`, next }, width));
  if (keys.length > 0) lines.push(...actionsFor(keys).map((note) => formatNote(note, width)));
  return `${lines.join("\n")}\n`;
}

function actionsFor(keys: readonly KeyReport[]): Note[] {
  const [gateway = "", ...others] = listGateways(keys);
  const group = keys.some((key) => key.group !== null) ? "<group>" : null;
  const create = advice.createKey("<tool>", others.length === 0 ? gateway : "<gateway>", group);
  return [
    { what: "create a key", next: create },
    { what: "rotate a tool's key", next: advice.rotate("<tool>") },
    { what: "delete one that no tool holds", next: advice.deleteKey("<key>") },
  ];
}

function keyLines(keys: readonly KeyReport[], now: number, width: number): string[] {
  const { text } = columnsFor(keys);
  const columns = [
    text("name", 0, ({ name }) => name),
    text("key", 0, ({ key }) => key ?? "-"),
    text("state", 0, ({ state }) => state),
    text("tool", 0, ({ tools }) => (tools.length === 0 ? "not held here" : joinNames(tools))),
  ];
  if (listGateways(keys).length > 1) columns.unshift(text("gateway", 0, ({ gateway }) => gateway));
  const { lines: table, note } = layoutTable(columns, width);
  const [head = "", ...rows] = table;
  const newest = Math.max(...keys.map(({ as_of }) => as_of ?? 0));
  const lines = [head];
  for (const [index, key] of keys.entries()) {
    const facts = keyFacts(key, now, newest).join(", ");
    lines.push(rows[index] ?? "", ...indentedNote({ what: facts, next: null }, width));
  }
  if (note !== null) lines.push(note);
  return lines;
}

/** A key that was read this much before the others shows its own age. */
const OLDER_MS = 2 * MINUTE_MS;

function keyFacts(key: KeyReport, now: number, newest: number): string[] {
  const { ref, last_used_at: used, as_of } = key;
  if (as_of === null) return [ref, "the console was not asked about it yet"];
  return [
    ref,
    formatQuota(key),
    ...formatConsoleFacts(key, now),
    ...((key.models ?? []).length === 0 ? [] : [`models ${joinNames(key.models ?? [])}`]),
    used === null ? "last use unknown" : `last use ${ago(now - used)} ago`,
    ...(newest - as_of > OLDER_MS ? [`as of ${ago(now - as_of)} ago`] : []),
  ];
}

function formatQuota({ quota, unlimited, quota_used: used }: KeyReport): string {
  if (quota !== null)
    return used === null ? `quota ${exactDollars(quota)}` : `${formatUsed(used, quota)} used`;
  const limit = unlimited ? "quota unlimited" : "quota unknown";
  return used === null ? limit : `${dollars(used)} used, ${limit}`;
}

type PrintedKey = Pick<KeyReport, "windows" | "group" | "multiplier" | "expires_at"> & {
  /** What config.yaml says, if that differs. */
  readonly multiplier_here?: number | null;
};

/** $1.20 of $5.00, by the console. */
export function formatUsed(used: number, quota: number, between = " of "): string {
  const figures = consoleFigures(used, quota);
  return `${figures.used}${between}${figures.max}`;
}

/** 5h $1.20/$5.00, group coding ×1.5, expires 2027-03-31 */
export function formatConsoleFacts(key: PrintedKey, now: number): string[] {
  const { group, multiplier, multiplier_here: here = null, expires_at: expires } = key;
  const facts = key.windows.map((window) => formatWindow(window, now));
  if (group !== null || multiplier !== null) {
    const name = group === null ? "multiplier" : `group ${group}`;
    const differs = here === null ? "" : ` (config.yaml says ${formatFactor(here)})`;
    facts.push(`${name}${multiplier === null ? "" : ` ${formatFactor(multiplier)}`}${differs}`);
  }
  if (expires !== null) facts.push(`${expires <= now ? "expired" : "expires"} ${dayName(expires)}`);
  return facts;
}

/** 5h $1.20/$5.00; if nothing is left: 5h $5.00/$5.00 until 17:00 */
function formatWindow({ window, used, most, resets_at }: KeyReport["windows"][number], now: number): string {
  const isUsedUp = used >= most && resets_at !== null;
  const until = isUsedUp ? ` until ${timeOfDay(wholeMinute(resets_at), now)}` : "";
  return `${window} ${formatUsed(used, most, "/")}${until}`;
}

function ageLines(keys: readonly KeyReport[], now: number, width: number): string[] {
  const gateways = listGateways(keys);
  return gateways.flatMap((gateway) => {
    const times = keys.filter((key) => key.gateway === gateway).flatMap(({ as_of }) => as_of ?? []);
    if (times.length === 0) return [];
    const owner = gateways.length > 1 ? `${gateway}: ` : "";
    return [wrap(printable(`${owner}as the console said ${ago(now - Math.max(...times))} ago`), width)];
  });
}

function listGateways(keys: readonly KeyReport[]): string[] {
  return [...new Set(keys.map(({ gateway }) => gateway))];
}

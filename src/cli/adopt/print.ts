import type { Inventory, ReportedKey } from "../../adopt/inventory.ts";
import type { TraceReport } from "../../adopt/traces.ts";
import { isVariableFormat } from "../../clients/description.ts";
import {
  type FoundKey,
  type FoundSettings,
  filesAround,
  type Place,
  type ShapedKey,
} from "../../clients/find.ts";
import { showPath } from "../../clients/setting.ts";
import { findClient } from "../../clients/table.ts";
import { advice } from "../../core/advice.ts";
import { shortenHome } from "../../core/display.ts";
import type { Secret } from "../../core/secret.ts";
import { count } from "../../usage/reports/format.ts";
import { formatNote } from "../ui/messages.ts";
import { columnsFor, layoutTable } from "../ui/table.ts";
import { printable, textWidth, wrap } from "../ui/text.ts";

/* What `keybearer adopt` shows. Of a key, never more than its last four characters. */

export interface Report {
  readonly found: FoundSettings;
  readonly inventory: Inventory;
  readonly traces: TraceReport;
  readonly home: string;
}

interface Row {
  /** Empty: the same as in the row above. */
  readonly key: string;
  readonly address: string;
  readonly client: string;
  readonly place: string;
}

export function formatReport(report: Report, width: number): string {
  const { inventory, home } = report;
  const lines = [summary(report)];
  if (inventory.pairs.length > 0) lines.push("", ...moveLines(report, width));
  const { shaped, environment, logins, opaque } = report.found;
  if (inventory.reported.length + shaped.length + environment.length > 0) {
    lines.push("", "by hand:");
    for (const reported of inventory.reported)
      lines.push(indent(formatNote(reportedNote(reported, home), width - 2)));
    for (const each of shaped) lines.push(indent(formatNote(shapedNote(each, home), width - 2)));
    for (const { name, key } of environment)
      lines.push(indent(formatNote(environmentNote(name, key), width - 2)));
  }
  const other = [
    ...logins.map(({ client, path }) => `login   ${client}: ${shortenHome(path, home)} stays as it is`),
    ...opaque.map(
      ({ client, file }) => `hidden  ${client}: ${shortenHome(file.path, home)}: ${file.byHand ?? ""}`,
    ),
  ];
  if (other.length > 0) lines.push("", ...other.map((line) => wrap(printable(line), width)));
  const traces = traceLines(report.traces);
  if (traces.length > 0) lines.push("", ...traces.map((line) => printable(line)));
  for (const { path, problem } of report.found.unread)
    lines.push(
      "",
      formatNote({ what: `not searched: ${shortenHome(path, home)} (${problem})`, next: null }, width),
    );
  if (inventory.pairs.length > 0)
    lines.push("", `next: ${advice.adoptWrite()}     moves them, one diff at a time; --undo goes back`);
  return `${lines.join("\n")}\n`;
}

function summary({ inventory, found }: Report): string {
  const all = [
    ...inventory.pairs.flatMap((pair) => pair.places),
    ...inventory.reported.map(({ place }) => place),
    ...found.shaped,
    ...found.environment,
  ];
  const keys = all.map(({ key }) => key);
  const total = all.length;
  if (total === 0) return `no key in ${count(found.read, "settings file")} of your tools`;
  return `${count(countDistinct(keys), "key")} in ${count(total, "place")}; nothing was changed`;
}

function countDistinct(keys: readonly Secret[]): number {
  return new Set(keys.map((key) => key.digest("adopt"))).size;
}

/** A table; on a narrow screen, the places below each key. */
function moveLines(report: Report, width: number): readonly string[] {
  const rows = moveRows(report);
  const { lines, note } = layoutTable(columns(rows), Number.MAX_SAFE_INTEGER);
  if (note === null && lines.every((line) => textWidth(line) <= width)) return lines;
  return rows.flatMap(({ key, address, client, place }) => [
    ...(key === "" ? [] : [printable(`${key}  ${address}`)]),
    printable(`  ${client === "" ? "" : `${client}: `}${place}`),
  ]);
}

function moveRows({ inventory, found, home }: Report): Row[] {
  return inventory.pairs.flatMap(({ key, baseUrl, places }) =>
    places.map((place, at) => ({
      key: at === 0 ? key.fingerprint : "",
      address: at === 0 ? baseUrl : "",
      client: at > 0 && places[at - 1]?.client === place.client ? "" : place.client,
      place: `${describePlace(place, home)}${winsNote(place, inventory)}${inBrackets(fileOrder(place, found, home))}`,
    })),
  );
}

/** A variable of the shell that a client's own settings have as well. */
function winsNote({ client, variable }: FoundKey, { pairs }: Inventory): string {
  const isInSettings = pairs.some(({ places }) =>
    places.some((other) => other.variable === variable && !isVariableFormat(other.file.format)),
  );
  return client === "shell" && variable !== null && isInSettings ? "   (wins in a terminal)" : "";
}

function inBrackets(note: string | null): string {
  return note === null ? "" : `   (${note})`;
}

/** What is read if a file goes that hides others; null: no other file depends on it. */
export function fileOrder(place: FoundKey, found: FoundSettings, home: string): string | null {
  const around = filesAround(place, found);
  if (around === null) return null;
  const { client, without, instead } = around;
  const name = findClient(client)?.name ?? client;
  const parts = [
    ...(instead === null ? [] : [`${name} reads ${shortenHome(instead, home)} instead`]),
    ...(without === null ? [] : [`without this file ${name} reads ${shortenHome(without, home)}`]),
  ];
  return parts.length === 0 ? null : parts.join("; ");
}

function columns(rows: readonly Row[]) {
  const { text } = columnsFor(rows);
  return [
    text("key", 0, ({ key }) => key),
    text("belongs to", 1, ({ address }) => address),
    text("client", 2, ({ client }) => client),
    text("place", 0, ({ place }) => place),
  ];
}

/** ~/.zshrc:41 export ANTHROPIC_AUTH_TOKEN; ~/.claude/settings.json env.ANTHROPIC_AUTH_TOKEN */
export function describePlace({ file, path, line, variable }: Place, home: string): string {
  const name = shortenHome(file.path, home);
  if (isVariableFormat(file.format)) return `${name}:${line}  ${variable}`;
  return `${name}  ${showPath(path)}`;
}

function reportedNote({ place, problem }: ReportedKey, home: string) {
  const what = `${place.key.fingerprint}  ${describePlace(place, home)}: ${problem.problem}`;
  return { what, next: problem.next };
}

function shapedNote({ key, file, line }: ShapedKey, home: string) {
  const what = `${key.fingerprint}  ${shortenHome(file.path, home)}:${line}: it looks like a key, in a comment or a field that keybearer does not know`;
  return { what, next: file.byHand ?? "delete it there" };
}

function environmentNote(name: string, key: Secret) {
  const what = `${key.fingerprint}  ${name} in the environment of this shell; no file that keybearer knows sets it`;
  return { what, next: `unset ${name}, where it is set` };
}

function traceLines({ traces, unsearched }: TraceReport): string[] {
  const lines = traces.map(
    ({ keys, where }) => `traces  ${keys.join(", ")} in ${where}: only a rotation helps`,
  );
  return [
    ...lines,
    ...unsearched.map(({ where, problem }) => `not searched for traces: ${where} (${problem})`),
  ];
}

function indent(text: string): string {
  return text.replace(/^/gm, "  ");
}

export function reportJson({ found, inventory, traces }: Report): unknown {
  const place = (key: FoundKey) => {
    const { client, file, path, line, variable } = key;
    const { without = null, instead = null } = filesAround(key, found) ?? {};
    return {
      client,
      file: file.path,
      line,
      field: showPath(path),
      variable,
      read_without_it: without,
      read_instead: instead,
    };
  };
  return {
    keys: inventory.pairs.map(({ key, baseUrl, places }) => ({
      key: key.fingerprint,
      base_url: baseUrl,
      places: places.map(place),
    })),
    reported: inventory.reported.map((reported) => ({
      key: reported.place.key.fingerprint,
      ...place(reported.place),
      problem: reported.problem.problem,
      next: reported.problem.next,
    })),
    unknown: found.shaped.map(({ key, client, file, line }) => ({
      key: key.fingerprint,
      client,
      file: file.path,
      line,
    })),
    environment: found.environment.map(({ name, key }) => ({ name, key: key.fingerprint })),
    logins: found.logins,
    encrypted: found.opaque.map(({ client, file }) => ({ client, file: file.path, next: file.byHand })),
    traces: traces.traces,
    unsearched: traces.unsearched,
    unread: found.unread,
  };
}

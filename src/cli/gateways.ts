import { type EditResult, readForEdit, renameKey, setValue } from "../config/edit.ts";
import type { YamlMap } from "../config/edit-layout.ts";
import { baseUrl } from "../config/values.ts";
import { advice } from "../core/advice.ts";
import { EXIT } from "../core/errors.ts";
import { activeRevision, editChecked, readConfig, reportEffect, waitUntilActive } from "./config-change.ts";
import { fail, print } from "./ui/messages.ts";
import { commandPaths, stdio } from "./ui/stdio.ts";
import { renderTable } from "./ui/table.ts";
import { stdoutScreen } from "./ui/terminal.ts";

export async function list(options: { readonly json?: boolean; readonly config?: string }): Promise<void> {
  const paths = commandPaths(options.config);
  const config = await readConfig(paths);
  if (config === null) return;
  const tools = Object.values(config.tools);
  const rows = Object.values(config.gateways).map((gateway) => ({
    name: gateway.name,
    base_url: gateway.baseUrl,
    groups: Object.keys(gateway.groups),
    console: gateway.console?.url ?? null,
    tools: tools.filter((tool) => tool.gateway === gateway.name).map(({ name }) => name),
  }));
  if (options.json) {
    stdio().stdout.write(`${JSON.stringify(rows, null, 2)}\n`);
    return;
  }
  const columns = [
    { head: "gateway", cells: rows.map(({ name }) => name), dropOrder: 0 },
    { head: "base url", cells: rows.map(({ base_url }) => base_url), dropOrder: 0 },
    { head: "groups", cells: rows.map(({ groups }) => groups.join(", ") || "-"), dropOrder: 2 },
    { head: "console", cells: rows.map(({ console }) => console ?? "-"), dropOrder: 3 },
    { head: "tools", cells: rows.map(({ tools }) => tools.join(", ") || "-"), dropOrder: 1 },
  ];
  print(...renderTable(columns, stdoutScreen().width).split("\n"));
}

export async function add(name: string, url: string, options: { readonly config?: string }): Promise<void> {
  const reading = baseUrl(url);
  if ("fault" in reading)
    return fail(`${reading.fault}${reading.hint === undefined ? "" : ` → ${reading.hint}`}`, EXIT.usage);
  const paths = commandPaths(options.config);
  const revision = await activeRevision(paths);
  const isChanged = await editChecked(paths, (text) => addGateway(text, name, reading.value));
  if (isChanged === null) return;
  print(`gateway ${name} is added. next: ${advice.addTool("<tool>", name)}`);
  reportEffect(await waitUntilActive(paths, "", (_tool, current) => current > revision));
}

/**
 * `gateway: URL` becomes `gateways:` with one called main. Tools that name no gateway get the name of the one there was:
 * with two, they must say which.
 */
function addGateway(text: string, name: string, url: string): EditResult {
  const source = readForEdit(text);
  if (!source.ok) return source;
  const { gateway, gateways, tools } = source.value;
  const known = isMap(gateways) ? Object.keys(gateways) : ["main"];
  if (known.includes(name)) return { ok: false, reason: `there is a gateway ${name} in config.yaml already` };
  let edited: EditResult = { ok: true, text };
  if (typeof gateway === "string") {
    const renamed = renameKey(text, ["gateway"], "gateways");
    edited = renamed.ok ? setValue(renamed.text, ["gateways"], { main: { base_url: gateway } }) : renamed;
  }
  const [only, ...others] = known;
  for (const [tool, settings] of Object.entries(isMap(tools) ? tools : {})) {
    if (!edited.ok || only === undefined || others.length > 0) break;
    if (isMap(settings) && settings.gateway === undefined)
      edited = setValue(edited.text, ["tools", tool, "gateway"], only);
  }
  return edited.ok ? setValue(edited.text, ["gateways", name], { base_url: url }) : edited;
}

function isMap(value: unknown): value is YamlMap {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

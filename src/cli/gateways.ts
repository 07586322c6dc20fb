import { type EditResult, readForEdit, renameKey, setValue } from "../config/edit.ts";
import { baseUrl } from "../config/values.ts";
import { advice } from "../core/advice.ts";
import { failed } from "../core/display.ts";
import { EXIT } from "../core/errors.ts";
import { isObject } from "../core/json.ts";
import { activeRevision, editChecked, readConfig, reportEffect, waitUntilActive } from "./config-change.ts";
import { fail, print, printJson } from "./ui/messages.ts";
import { commandPaths } from "./ui/stdio.ts";
import { columnsFor, renderTable } from "./ui/table.ts";
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
  if (options.json) return printJson(rows);
  const { text } = columnsFor(rows);
  const columns = [
    text("gateway", 0, ({ name }) => name),
    text("base url", 0, ({ base_url }) => base_url),
    text("groups", 2, ({ groups }) => groups.join(", ") || "-"),
    text("console", 3, ({ console }) => console ?? "-"),
    text("tools", 1, ({ tools }) => tools.join(", ") || "-"),
  ];
  print(...renderTable(columns, stdoutScreen().width).split("\n"));
}

export async function add(name: string, url: string, options: { readonly config?: string }): Promise<void> {
  const reading = baseUrl(url);
  if ("problem" in reading) return fail(reading, EXIT.usage);
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
export function addGateway(text: string, name: string, url: string): EditResult {
  const source = readForEdit(text);
  if (!source.ok) return source;
  const { gateway, gateways, tools } = source.value;
  const known = isObject(gateways) ? Object.keys(gateways) : ["main"];
  if (known.includes(name)) return failed(`there is a gateway ${name} in config.yaml already`);
  let edited: EditResult = { ok: true, text };
  if (typeof gateway === "string") {
    const renamed = renameKey(text, ["gateway"], "gateways");
    edited = renamed.ok ? setValue(renamed.text, ["gateways"], { main: { base_url: gateway } }) : renamed;
  }
  const [only, ...others] = known;
  for (const [tool, settings] of Object.entries(isObject(tools) ? tools : {})) {
    if (!edited.ok || only === undefined || others.length > 0) break;
    if (isObject(settings) && settings.gateway === undefined)
      edited = setValue(edited.text, ["tools", tool, "gateway"], only);
  }
  return edited.ok ? setValue(edited.text, ["gateways", name], { base_url: url }) : edited;
}

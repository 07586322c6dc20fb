import { advice } from "../core/advice.ts";
import type { Report } from "./problems.ts";
import type { Config, Gateway, Named, Tool } from "./schema.ts";
import { quoted, type Section } from "./section.ts";
import { joinPath } from "./yaml.ts";

/** Checks the settings that depend on each other, fills in the only gateway, and freezes the whole. */
export function checkReferences(draft: Config, top: Section, report: Report): Config {
  checkPresence(draft, top, report);
  const { dashboard, listen } = draft;
  if (dashboard.when !== "never" && dashboard.listen.port === listen.port && listen.port !== 0) {
    const message = "the dashboard cannot share the tools' port";
    report.error(top.offsetOf("dashboard"), "dashboard.listen", message, "choose another port");
  }
  checkMetrics(draft, top);
  const tools: Record<string, Tool> = Object.create(null);
  for (const [name, tool] of Object.entries(draft.tools)) tools[name] = checkTool(tool, draft.gateways, top);
  checkTokens(tools, top);
  checkProcesses(tools, top);
  checkSharedKeys(tools, top);
  return Object.freeze({ ...draft, tools: Object.freeze(tools) });
}

/** The port of the metrics is none of the others. */
function checkMetrics({ metrics, dashboard, listen }: Config, top: Section): void {
  const port = metrics?.listen.port ?? 0;
  if (port === 0) return;
  const isDashboards = dashboard.when !== "never" && dashboard.listen.port === port;
  if (port !== listen.port && !isDashboards) return;
  const message = `the metrics cannot share the ${port === listen.port ? "tools'" : "dashboard's"} port`;
  top.report.error(top.offsetOf("metrics"), "metrics.listen", message, "choose another port");
}

function checkPresence({ gateways, tools }: Config, top: Section, report: Report): void {
  if (!top.has("gateway") && !top.has("gateways")) {
    report.error(-1, "", "there is no gateway", "gateway: https://gateway.example.com/v1");
  } else if (
    Object.keys(gateways).length === 0 &&
    top.entries().has("gateways") &&
    !report.hasErrorAt("gateways")
  ) {
    const hint = "gateways: { main: { base_url: … } }";
    report.error(top.offsetOf("gateways"), "gateways", "there is no gateway", hint);
  }
  const isToolsMisspelled = top.has("tools") && !top.entries().has("tools");
  if (Object.keys(tools).length === 0 && !report.hasErrorAt("tools") && !isToolsMisspelled) {
    const at = top.entries().has("tools") ? top.offsetOf("tools") : -1;
    report.warn(at, "tools", "there is no tool yet, so every request is refused", advice.addTool("codex"));
  }
}

/** The offset of a tool's setting in the text. */
function offsetIn(top: Section, tool: string, setting: string): number {
  const tools = top.entries().get("tools")?.value;
  const entry = tools?.kind === "dict" ? tools.entries.get(tool) : undefined;
  const inside = entry?.value.kind === "dict" ? entry.value.entries.get(setting) : undefined;
  return inside?.value.at ?? entry?.at ?? -1;
}

function checkTool(tool: Tool, gateways: Named<Gateway>, top: Section): Tool {
  const path = joinPath("tools", tool.name);
  const names = Object.keys(gateways);
  const only = names.length === 1 ? (names[0] ?? "") : "";
  const gatewayName = tool.gateway === "" ? only : tool.gateway;
  const gateway = gateways[gatewayName];
  if (gateway === undefined && names.length > 0) {
    const message =
      tool.gateway === ""
        ? "there are several gateways, and this tool does not name one"
        : `there is no gateway ${quoted(tool.gateway)}`;
    const at = offsetIn(top, tool.name, "gateway");
    top.report.error(at, `${path}.gateway`, message, `one of: ${names.join(", ")}`);
  }
  if (gateway !== undefined && tool.group !== null && gateway.groups[tool.group] === undefined) {
    const known = Object.keys(gateway.groups).map((name) => quoted(name));
    const hint =
      known.length > 0
        ? `one of: ${known.join(", ")}`
        : `add it: gateways.${gatewayName}.groups.${tool.group}`;
    const message = `gateway ${gatewayName} has no group ${quoted(tool.group)}`;
    top.report.error(offsetIn(top, tool.name, "group"), `${path}.group`, message, hint);
  }
  if (gateway !== undefined) checkRotation(tool, gateway, top);
  return Object.freeze({ ...tool, gateway: gatewayName });
}

/** Only a console can make the next key, and only keybearer may be using the last one. */
function checkRotation(tool: Tool, gateway: Gateway, top: Section): void {
  const setting = tool.rotateEvery !== null ? "rotate_every" : tool.onLeak === "rotate" ? "on_leak" : null;
  if (setting === null) return;
  const at = offsetIn(top, tool.name, setting);
  const path = `${joinPath("tools", tool.name)}.${setting}`;
  if (gateway.console === null)
    top.report.error(
      at,
      path,
      `gateway ${gateway.name} has no console`,
      `add gateways.${gateway.name}.console`,
    );
  else if (tool.keysElsewhere || tool.watchOnly)
    top.report.error(at, path, "this key is also used elsewhere, where a rotation would break it");
}

function checkTokens(tools: Named<Tool>, top: Section): void {
  const owners = new Map<string, string>();
  for (const tool of Object.values(tools)) {
    for (const { hash } of tool.tokens) {
      const owner = owners.get(hash);
      if (owner !== undefined && owner !== tool.name) {
        const path = `${joinPath("tools", tool.name)}.token`;
        const hint = `make a new one: ${advice.newToken(tool.name)}`;
        top.report.error(offsetIn(top, tool.name, "token"), path, `tool ${owner} has the same token`, hint);
      }
      owners.set(hash, tool.name);
    }
  }
}

/** Two tools without tokens cannot be distinguished by the same program. */
function checkProcesses(tools: Named<Tool>, top: Section): void {
  const owners = new Map<string, string>();
  for (const tool of Object.values(tools)) {
    if (tool.process === null || tool.tokens.length > 0) continue;
    const owner = owners.get(tool.process);
    if (owner !== undefined) {
      const path = `${joinPath("tools", tool.name)}.process`;
      const hint = `give one of them a token: ${advice.newToken(tool.name)}`;
      const message = `tool ${owner} has the same process`;
      top.report.error(offsetIn(top, tool.name, "process"), path, message, hint);
    }
    owners.set(tool.process, owner ?? tool.name);
  }
}

/** With one key per tool, a leak harms one tool and usage can be attributed. */
function checkSharedKeys(tools: Named<Tool>, top: Section): void {
  const owners = new Map<string, string>();
  for (const tool of Object.values(tools)) {
    const { key } = tool;
    const identity = key.kind === "literal" ? key.secret.digest("shared key") : JSON.stringify(key);
    const owner = owners.get(identity);
    if (owner !== undefined) {
      const path = `${joinPath("tools", tool.name)}.key`;
      const message = `tools ${owner} and ${tool.name} share one key`;
      const hint = "create a separate key for each in the gateway's console";
      top.report.warn(offsetIn(top, tool.name, "key"), path, message, hint);
    }
    owners.set(identity, owner ?? tool.name);
  }
}

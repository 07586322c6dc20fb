import type { Config, Gateway, Named, Period, Tool } from "./shape.ts";
import { quoted, type Section } from "./text/section.ts";
import { joinPath, type Report } from "./text/tree.ts";

type Draft = Config;

/** Checks what one setting says of another, fills in the only gateway there is, and freezes the whole. */
export function checkReferences(draft: Draft, top: Section, report: Report): Config {
  const names = Object.keys(draft.gateways);
  if (!top.entries().has("gateway") && !top.entries().has("gateways")) {
    report.error(-1, "", "no gateway is named", "gateway: https://gateway.example.com/v1");
  } else if (names.length === 0 && top.entries().has("gateways") && !hasErrorBelow(report, "gateways")) {
    report.error(
      top.placeOf("gateways"),
      "gateways",
      "no gateway is named",
      "gateways: { main: { base_url: … } }",
    );
  }
  if (Object.keys(draft.tools).length === 0 && !hasErrorBelow(report, "tools")) {
    report.error(
      top.entries().has("tools") ? top.placeOf("tools") : -1,
      "tools",
      "no tool is named",
      "tools: { codex: {} }",
    );
  }
  if (
    draft.dashboard.when !== "never" &&
    draft.dashboard.listen.port === draft.listen.port &&
    draft.listen.port !== 0
  ) {
    report.error(
      top.placeOf("dashboard"),
      "dashboard.listen",
      "the dashboard cannot share the tools' port",
      "choose another port",
    );
  }
  const tools: Record<string, Tool> = Object.create(null);
  for (const [name, tool] of Object.entries(draft.tools)) {
    tools[name] = checkTool(tool, draft.gateways, paths(top, name), report);
  }
  checkTokens(tools, top, report);
  checkProcesses(tools, top, report);
  checkSharedKeys(tools, top, report);
  checkKeep(draft.usage.keep, tools, top, report);
  return Object.freeze({ ...draft, tools: Object.freeze(tools) });
}

type PlaceOf = (setting: string) => number;

/** Where a setting of a tool stands in the text. */
function paths(top: Section, tool: string): PlaceOf {
  const tools = top.entries().get("tools")?.value;
  const entry = tools?.kind === "dict" ? tools.entries.get(tool) : undefined;
  return (setting) => {
    const inside = entry?.value.kind === "dict" ? entry.value.entries.get(setting) : undefined;
    return inside?.value.at ?? entry?.at ?? -1;
  };
}

function checkTool(tool: Tool, gateways: Named<Gateway>, place: PlaceOf, report: Report): Tool {
  const path = joinPath("tools", tool.name);
  const names = Object.keys(gateways);
  const only = names.length === 1 ? (names[0] ?? "") : "";
  const gatewayName = tool.gateway === "" ? only : tool.gateway;
  const gateway = gateways[gatewayName];
  if (gateway === undefined && names.length > 0) {
    const message =
      tool.gateway === ""
        ? "there are several gateways, and this tool names none"
        : `there is no gateway ${quoted(tool.gateway)}`;
    report.error(place("gateway"), `${path}.gateway`, message, `one of: ${names.join(", ")}`);
  }
  if (gateway !== undefined && tool.group !== null && gateway.groups[tool.group] === undefined) {
    const known = Object.keys(gateway.groups).map((name) => quoted(name));
    const hint =
      known.length > 0
        ? `one of: ${known.join(", ")}`
        : `add it: gateways.${gatewayName}.groups.${tool.group}`;
    report.error(
      place("group"),
      `${path}.group`,
      `gateway ${gatewayName} has no group ${quoted(tool.group)}`,
      hint,
    );
  }
  return Object.freeze({ ...tool, gateway: gatewayName });
}

function checkTokens(tools: Named<Tool>, top: Section, report: Report): void {
  const processLookup = new Map<string, string>();
  for (const tool of Object.values(tools)) {
    for (const token of tool.tokens) {
      const owner = processLookup.get(token);
      if (owner !== undefined && owner !== tool.name) {
        const path = `${joinPath("tools", tool.name)}.token`;
        const hint = `make a new one: keybearer tools token ${tool.name}`;
        report.error(paths(top, tool.name)("token"), path, `tool ${owner} has the same token`, hint);
      }
      processLookup.set(token, tool.name);
    }
  }
}

/** Two tools that are known by the same program alone could not be told apart. */
function checkProcesses(tools: Named<Tool>, top: Section, report: Report): void {
  const processLookup = new Map<string, string>();
  for (const tool of Object.values(tools)) {
    if (tool.process === null || tool.tokens.length > 0) continue;
    const owner = processLookup.get(tool.process);
    if (owner !== undefined) {
      const path = `${joinPath("tools", tool.name)}.process`;
      const hint = `give one of them a token: keybearer tools token ${tool.name}`;
      report.error(
        paths(top, tool.name)("process"),
        path,
        `tool ${owner} is known by the same program`,
        hint,
      );
    }
    processLookup.set(tool.process, owner ?? tool.name);
  }
}

/** One key per tool is what makes a leak harmless and usage attributable (SPEC.md section 5). */
function checkSharedKeys(tools: Named<Tool>, top: Section, report: Report): void {
  const salt = "two tools, one key";
  const processLookup = new Map<string, string>();
  for (const tool of Object.values(tools)) {
    const identity = tool.key.kind === "literal" ? tool.key.secret.digest(salt) : JSON.stringify(tool.key);
    const owner = processLookup.get(identity);
    if (owner !== undefined) {
      const path = `${joinPath("tools", tool.name)}.key`;
      const message = `tools ${owner} and ${tool.name} share one key`;
      report.warn(
        paths(top, tool.name)("key"),
        path,
        message,
        "create a key of its own for each in the gateway's console",
      );
    }
    processLookup.set(identity, owner ?? tool.name);
  }
}

/** At a start a window is counted from the records: each has to be kept as long as the window it is in can last. */
const LEAST_KEPT = [
  { per: "month", days: 32 },
  { per: "day", days: 2 },
  { per: "hour", days: 1 },
] as const satisfies readonly { readonly per: Period; readonly days: number }[];

function checkKeep(keep: number, tools: Named<Tool>, top: Section, report: Report): void {
  const usage = top.entries().get("usage")?.value;
  const place = usage?.kind === "dict" ? usage.entries.get("keep")?.value.at : undefined;
  for (const { per, days } of LEAST_KEPT) {
    if (keep >= days * 86_400_000) return;
    const limited = Object.values(tools).find(({ limits: { requests, tokens, spend } }) =>
      [...requests, ...tokens, ...spend].some((rate) => rate.per === per),
    );
    if (limited === undefined) continue;
    const message = `must be at least ${days}d while ${joinPath("tools", limited.name)} has a limit per ${per}`;
    report.error(place ?? -1, "usage.keep", message, `keep: ${days}d`);
    return;
  }
}

function hasErrorBelow(report: Report, path: string): boolean {
  return report.problems.some((problem) => problem.severity === "error" && problem.path.startsWith(path));
}

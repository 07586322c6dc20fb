import { DEFAULT_DASHBOARD, DEFAULT_LISTEN, DEFAULT_LOG, DEFAULT_USAGE } from "./defaults.ts";
import { baseUrl } from "./fields/address.ts";
import { gatewayFromUrl, readGateway } from "./fields/gateway.ts";
import { readTool } from "./fields/tool.ts";
import { duration, flag, listen, oneOf, price } from "./fields/values.ts";
import type { Problem } from "./problem.ts";
import { checkReferences } from "./references.ts";
import type { Config, Dashboard, Gateway, Log, Named, Price, Tool, Usage } from "./shape.ts";
import { asSection, Section } from "./text/section.ts";
import { createReport, type Entry, type Report, readTree } from "./text/tree.ts";

export interface Parsed {
  /** null when there is an error among the problems. */
  readonly config: Config | null;
  readonly problems: readonly Problem[];
}

/** Reads config.yaml's text. Pure: the same text and home folder give the same answer. */
export function parseConfig(raw: string, home: string): Parsed {
  // A byte order mark is no column that a person can see.
  const text = raw.replace(/^\u{FEFF}/u, "");
  const report = createReport(text);
  const tree = readTree(text, report);
  if (tree === null) return { config: null, problems: report.problems };
  const top = new Section(tree, "", report);
  const draft = {
    listen: top.scalar("listen", listen, DEFAULT_LISTEN),
    dashboard: readDashboard(top),
    gateways: readGateways(top, home, report),
    tools: readTools(top, home, report),
    prices: top.named("prices", (entry, _name, path) => readPrice(entry, path, report)),
    usage: readUsage(top.section("usage")),
    log: readLog(top.section("log")),
  };
  top.finish();
  const config = checkReferences(draft, top, report);
  const failed = report.problems.some((problem) => problem.severity === "error");
  const inOrder = report.problems.toSorted((a, b) => a.line - b.line || a.column - b.column);
  return { config: failed ? null : config, problems: inOrder };
}

function readGateways(top: Section, home: string, report: Report): Named<Gateway> {
  const single = top.scalar("gateway", baseUrl, null);
  const several = top.named("gateways", (entry, name, path) =>
    checkName(name, entry, "gateway", path, report) ? readGateway(entry, name, path, home, report) : null,
  );
  const both = top.entries().get("gateway");
  if (both && top.entries().has("gateways")) {
    report.error(both.at, "gateway", "there is gateway and gateways", "keep one of the two");
  }
  if (single === null) return several;
  const result: Record<string, Gateway> = Object.create(null);
  result.main = gatewayFromUrl("main", single);
  return Object.freeze(result);
}

function readTools(top: Section, home: string, report: Report): Named<Tool> {
  return top.named("tools", (entry, name, path) =>
    checkName(name, entry, "tool", path, report) ? readTool(entry, name, path, home, report) : null,
  );
}

/** Words that other readers of YAML turn into something else; a person who means the name says so with quotes. */
const AMBIGUOUS =
  /^(?:y|n|yes|no|on|off|true|false|null|~|[-+.\d][\d_.,:]*(?:e[-+]?\d+)?|0x[\da-f]+|0o[0-7]+)$/i;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

function checkName(name: string, entry: Entry, noun: string, path: string, report: Report): boolean {
  if (entry.plain && AMBIGUOUS.test(name)) {
    report.error(
      entry.at,
      path,
      `yaml may read ${name} as something else than a name`,
      `quote it: "${name}"`,
    );
    return false;
  }
  if (NAME.test(name)) return true;
  report.error(
    entry.at,
    path,
    `this cannot be the name of a ${noun}`,
    "letters, digits, dot, dash and underscore, at most 64, starting with a letter or digit",
  );
  return false;
}

function readDashboard(top: Section): Dashboard {
  const entry = top.entry("dashboard");
  if (entry === undefined) return DEFAULT_DASHBOARD;
  if (entry.value.kind === "scalar" && entry.value.text !== "") {
    const on = top.scalar("dashboard", flag, true);
    return on ? DEFAULT_DASHBOARD : Object.freeze({ ...DEFAULT_DASHBOARD, when: "never" });
  }
  const section = asSection(entry.value, "dashboard", top.report);
  if (section === null) return DEFAULT_DASHBOARD;
  const dashboard = {
    listen: section.scalar("listen", listen, DEFAULT_DASHBOARD.listen),
    when: section.scalar("when", oneOf("asked", "always", "never"), DEFAULT_DASHBOARD.when),
  };
  section.finish();
  return Object.freeze(dashboard);
}

function readPrice(entry: Entry, path: string, report: Report): Price | null {
  const section = asSection(entry.value, path, report);
  if (section === null) return null;
  const input = section.scalar("input", price, null);
  const output = section.scalar("output", price, null);
  const cacheRead = section.scalar("cache_read", price, null);
  const cacheWrite = section.scalar("cache_write", price, null);
  section.finish();
  if (input === null || output === null) {
    if (!section.entries().has("input") || !section.entries().has("output")) {
      report.error(section.at, path, "a price needs input and output", "{ input: 1.0, output: 4.0 }");
    }
    return null;
  }
  return Object.freeze({ input, output, cacheRead: cacheRead ?? input, cacheWrite: cacheWrite ?? input });
}

function readUsage(section: Section | null): Usage {
  if (section === null) return DEFAULT_USAGE;
  const usage = {
    keep: section.scalar("keep", duration, DEFAULT_USAGE.keep),
    sync: section.scalar("sync", oneOf("normal", "full"), DEFAULT_USAGE.sync),
  };
  section.finish();
  return Object.freeze(usage);
}

function readLog(section: Section | null): Log {
  if (section === null) return DEFAULT_LOG;
  const level = section.scalar("level", oneOf("trace", "debug", "info", "warn", "error"), DEFAULT_LOG.level);
  section.finish();
  return Object.freeze({ level });
}

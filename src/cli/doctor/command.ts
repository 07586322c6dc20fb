import { Command } from "commander";
import { typeable } from "../../core/command-name.ts";
import { EXIT } from "../../core/errors.ts";
import type { Finding, FindingLevel } from "../../doctor/findings.ts";
import { printJson } from "../ui/messages.ts";
import { commandPaths, setExitCode, stdio } from "../ui/stdio.ts";
import { type Color, color, stdoutScreen } from "../ui/terminal.ts";
import { printable, wrap } from "../ui/text.ts";

export function doctorCommand(): Command {
  return new Command("doctor")
    .description("check everything, and say how to fix what is wrong")
    .option("--json", "print JSON")
    .option("-c, --config <file>", "use this config.yaml instead of your own")
    .action(doctor);
}

async function doctor(options: { json?: boolean; config?: string }): Promise<void> {
  // Imported here, because every other command would load all of it, too.
  const { examine } = await import("./examine.ts");
  const { createContext } = await import("../service/context.ts");
  const paths = commandPaths(options.config);
  const service = await createContext({ config: options.config });
  const findings = await examine(paths, stdio().env, service, Date.now());
  const ok = findings.every(({ level }) => level !== "problem");
  if (options.json) printJson({ ok, findings });
  else stdio().stdout.write(formatFindings(findings, stdoutScreen().width));
  setExitCode(ok ? EXIT.ok : EXIT.failed);
}

const COLORS: Readonly<Record<FindingLevel, Color>> = { ok: "green", warning: "yellow", problem: "red" };
const LEVEL_WIDTH = "problem".length;
const INDENT = " ".repeat(LEVEL_WIDTH + 4);

/** Grouped by what they are about, and at the end how many need action. */
export function formatFindings(findings: readonly Finding[], width: number): string {
  const lines: string[] = [];
  for (const about of new Set(findings.map((finding) => finding.about))) {
    lines.push(printable(about));
    for (const finding of findings) if (finding.about === about) lines.push(...findingLines(finding, width));
    lines.push("");
  }
  return `${lines.join("\n")}\n${summarize(findings)}\n`;
}

function findingLines({ level, what, next }: Finding, width: number): string[] {
  const textWidth = width - INDENT.length;
  const [first = "", ...rest] = wrap(printable(typeable(what)), textWidth).split("\n");
  if (next !== null) rest.push(...wrap(printable(typeable(`→ ${next}`)), textWidth).split("\n"));
  const name = `${color(COLORS[level], level)}${" ".repeat(LEVEL_WIDTH - level.length)}`;
  return [`  ${name}  ${first}`, ...rest.map((line) => `${INDENT}${line}`)];
}

function summarize(findings: readonly Finding[]): string {
  const countOf = (level: FindingLevel) => findings.filter((finding) => finding.level === level).length;
  const problems = countOf("problem");
  const warnings = countOf("warning");
  const warningCount = `${warnings} ${warnings === 1 ? "warning" : "warnings"}`;
  if (problems === 0) return warnings === 0 ? "no problems found" : `no problems, ${warningCount}`;
  return `${problems} ${problems === 1 ? "problem" : "problems"}, ${warningCount}`;
}

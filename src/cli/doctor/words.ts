import type { Finding, FindingLevel } from "../../doctor/findings.ts";
import type { Screen } from "../ui/terminal.ts";
import { printable, wrap } from "../ui/text.ts";

/** Paints a word of this level; the same word where there is no colour. */
export type Paint = (word: string, level: FindingLevel) => string;

const INDENT = "           ";

/** Grouped by what they are about, in the order they were looked at, and at the end how many need the person. */
export function findingsInWords(findings: readonly Finding[], { width }: Screen, paint: Paint): string {
  const lines: string[] = [];
  for (const about of new Set(findings.map((finding) => finding.about))) {
    lines.push(printable(about));
    for (const finding of findings.filter((each) => each.about === about))
      lines.push(...findingLines(finding, width, paint));
    lines.push("");
  }
  return `${lines.join("\n")}\n${summary(findings)}\n`;
}

function findingLines({ level, what, next }: Finding, width: number, paint: Paint): string[] {
  const room = width - INDENT.length;
  const [first = "", ...rest] = wrap(printable(what), room).split("\n");
  const name = `${paint(level, level)}${" ".repeat("problem".length - level.length)}`;
  const after = next === null ? [] : wrap(printable(`→ ${next}`), room).split("\n");
  return [`  ${name}  ${first}`, ...[...rest, ...after].map((line) => `${INDENT}${line}`)];
}

function summary(findings: readonly Finding[]): string {
  const count = (level: FindingLevel) => findings.filter((finding) => finding.level === level).length;
  const some = (number: number, noun: string) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const [problems, warnings] = [count("problem"), count("warning")];
  if (problems === 0 && warnings === 0) return "all is well";
  if (problems === 0) return `nothing needs you; ${some(warnings, "warning")}`;
  return `${some(problems, "problem")}${problems === 1 ? " needs" : " need"} you, ${some(warnings, "warning")}`;
}

import { tokenAdvice } from "../clients/table.ts";
import type { Config, Tool } from "../config/schema.ts";
import { advice } from "../core/advice.ts";
import type { Problem } from "../core/display.ts";
import { endInWords } from "../limits/format.ts";
import { systemCalendar } from "../limits/windows.ts";

export type ToolProblemCode = "disabled" | "expired" | "group-disabled" | "no-token";

interface ToolProblem extends Problem {
  readonly code: ToolProblemCode;
}

/** What in config.yaml keeps a tool from working, in order of precedence. Of its key, see proxy/key-health. */
export function toolProblems(
  tool: Tool,
  { gateways }: Pick<Config, "gateways">,
  now: number,
): readonly ToolProblem[] {
  const { name, group, expires } = tool;
  const found: ToolProblem[] = [];
  if (!tool.enabled) found.push({ code: "disabled", problem: "enabled: false", next: advice.enable(name) });
  if (expires !== null && now >= expires) {
    const problem = `expired at ${endInWords(expires, systemCalendar)}`;
    found.push({ code: "expired", problem, next: `change tools.${name}.expires in config.yaml` });
  }
  if (group !== null && gateways[tool.gateway]?.groups[group]?.enabled === false) {
    const problem = `group unavailable: group ${group} has enabled: false in config.yaml`;
    const next = `change gateways.${tool.gateway}.groups.${group}.enabled`;
    found.push({ code: "group-disabled", problem, next });
  }
  // A tool that is known by its program, or never calls here, needs no token.
  if (tool.tokens.length === 0 && tool.process === null && !tool.watchOnly)
    found.push({ code: "no-token", problem: "no token yet", next: tokenAdvice(name) });
  return found;
}

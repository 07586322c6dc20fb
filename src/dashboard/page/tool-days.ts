import type { ToolStatus } from "../../control/tool-status.ts";
import type { DaySums, Now } from "../api.ts";

/** One tool's day. */
export interface ToolDay {
  /** null: unknown callers. */
  readonly name: string | null;
  /** null: it is in config.yaml no more, or never was. */
  readonly status: ToolStatus | null;
  /** null: it sent nothing. */
  readonly sums: DaySums | null;
}

/** Every tool there is, and those that were there today: what cost most first, then as in config.yaml. */
export function toolDays({ status, today }: Pick<Now, "status" | "today">): ToolDay[] {
  const sums = today?.tools ?? [];
  const used = sums.map((each) => ({
    name: each.tool,
    status: status.tools.find(({ name }) => name === each.tool) ?? null,
    sums: each,
  }));
  const idle = status.tools
    .filter(({ name }) => !sums.some(({ tool }) => tool === name))
    .map((tool) => ({ name: tool.name, status: tool, sums: null }));
  return [...used, ...idle];
}

/** "problem" needs action and makes doctor end with 1; "warning" is worth reading and does not. */
export type FindingLevel = "ok" | "warning" | "problem";

export interface Finding {
  /** A stable name for scripts that read --json, such as "key" or "base-url"; several findings may share one. */
  readonly id: string;
  readonly level: FindingLevel;
  /** What it is about: "config.yaml", "the daemon", "tool claude-code", "gateway main". Findings are grouped by it. */
  readonly about: string;
  readonly what: string;
  /** What to type or do next; null when nothing is needed. */
  readonly next: string | null;
}

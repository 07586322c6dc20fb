/** Something wrong in config.yaml, told so that a person can mend it without a manual. */
export interface Problem {
  /** An error keeps the file from being used; a warning does not. */
  readonly severity: "error" | "warning";
  /** Where in the structure, such as tools.codex.key; empty for the file as a whole. */
  readonly path: string;
  /** 1-based; 0 when the problem has no place in the text. */
  readonly line: number;
  readonly column: number;
  readonly message: string;
  /** What to write instead, or null. */
  readonly hint: string | null;
  /** The source line and a caret below it, whatever looks like a secret hidden; or null. */
  readonly excerpt: string | null;
}

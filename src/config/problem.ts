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

/** A warning that has no place in the text. */
export function warning(path: string, message: string, hint: string | null = null): Problem {
  return { severity: "warning", path, line: 0, column: 0, message, hint, excerpt: null };
}

/** One problem in one line, for the log. */
export function problemInLine({ message, hint }: Problem): string {
  return hint === null ? message : `${message} → ${hint}`;
}

/** Problems as a person reads them in a terminal: where, what, the line itself, and what to write instead. */
export function problemsInWords(file: string, problems: readonly Problem[]): string {
  return problems
    .map(({ severity, path, line, column, message, hint, excerpt }) => {
      const place = line > 0 ? `${file}:${line}:${column}` : file;
      const lines = [
        `${place}: ${severity === "warning" ? "warning: " : ""}${path === "" ? "" : `${path}: `}${message}`,
      ];
      if (excerpt !== null) lines.push(...excerpt.split("\n").map((part) => `    ${part}`));
      if (hint !== null) lines.push(`    → ${hint}`);
      return lines.join("\n");
    })
    .join("\n");
}

import type { Problem } from "../../../config/problems.ts";

interface ProblemLinesProps {
  readonly file: string;
  readonly problems: readonly Problem[];
}

/** Each problem of config.yaml as `keybearer check` tells it: where, what, the line with a caret, what to write instead. */
export function ProblemLines({ file, problems }: ProblemLinesProps) {
  return (
    <ul class="problems">
      {problems.map(({ path, line, column, message, hint, excerpt }) => (
        <li key={`${line} ${column} ${path} ${message}`}>
          <p>
            <code>{line > 0 ? `${file}:${line}:${column}` : file}</code> {path === "" ? "" : `${path}: `}
            {message}
          </p>
          {excerpt === null ? null : <pre>{excerpt}</pre>}
          {hint === null ? null : <p class="next">{hint}</p>}
        </li>
      ))}
    </ul>
  );
}

import type { Problem } from "../config/problem.ts";
import type { Finding } from "./finding.ts";

const ABOUT = "config.yaml";

export interface LoadedFile {
  readonly file: string;
  readonly found: boolean;
  /** It can be used. */
  readonly usable: boolean;
  readonly problems: readonly Problem[];
}

/** What is wrong with the file and with who may read it. */
export function configFindings({ file, found, usable, problems }: LoadedFile, sandbox: boolean): Finding[] {
  if (!found) {
    const what = sandbox
      ? `there is no ${file} yet, so the sandbox answers`
      : `there is no ${file} yet, so there is nothing to serve but the sandbox`;
    return [{ id: "config", level: "warning", about: ABOUT, what, next: "keybearer init" }];
  }
  const said = problems.map((problem) => findingOf(problem, file));
  if (!usable) return said;
  return [{ id: "config", level: "ok", about: ABOUT, what: `${file} can be used`, next: null }, ...said];
}

function findingOf({ severity, path, line, message, hint }: Problem, file: string): Finding {
  // The address is one of the four causes of SPEC.md section 7, and is named like them.
  const address = severity === "error" && /(?:^|\.)(?:base_url|gateway)$/.test(path);
  const place = line > 0 ? `line ${line}: ` : "";
  const named = path === "" ? "" : `${path}: `;
  // What is wrong with the file as a whole, such as its mode, has what to do about it behind an arrow already.
  const [what = message, does] = message.split(" → ");
  return {
    id: address ? "base-url" : "config",
    level: severity === "error" ? "problem" : "warning",
    about: ABOUT,
    what: `${place}${named}${address ? "wrong base url: " : ""}${what}`,
    next: hint ?? does ?? (severity === "error" ? `mend ${file}, then: keybearer check` : null),
  };
}

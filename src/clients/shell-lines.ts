import type { Shell } from "./client.ts";

export const SHELLS: readonly Shell[] = ["sh", "fish", "powershell", "cmd"];

/** What sets variables for this shell and what it starts, and takes others out. */
export function shellLines(
  shell: Shell,
  set: readonly (readonly [name: string, value: string])[],
  unset: readonly string[],
): string {
  return [
    ...unset.map((name) => UNSET[shell](name)),
    ...set.map(([name, value]) => SET[shell](name, value)),
  ].join("\n");
}

const SET: Readonly<Record<Shell, (name: string, value: string) => string>> = {
  sh: (name, value) => `export ${name}=${quoted(value)}`,
  fish: (name, value) => `set -gx ${name} ${quoted(value)}`,
  powershell: (name, value) => `$env:${name} = '${value}'`,
  // The quotes belong around both: around the value alone they would become part of it.
  cmd: (name, value) => `set "${name}=${value}"`,
};

const UNSET: Readonly<Record<Shell, (name: string) => string>> = {
  sh: (name) => `unset ${name}`,
  fish: (name) => `set -e ${name}`,
  powershell: (name) => `Remove-Item Env:${name} -ErrorAction Ignore`,
  cmd: (name) => `set "${name}="`,
};

/** A bare <token> would be a redirection. */
function quoted(value: string): string {
  return /^[\w.:/@+,-]+$/.test(value) ? value : `'${value}'`;
}

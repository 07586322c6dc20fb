import { readFileSync, writeFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";

/**
 * Programs named systemctl, loginctl and journalctl that record their calls and print prepared answers. For tests
 * of what keybearer prints and refuses. Other tests run a real manager.
 */
export interface SystemctlScript {
  readonly env: { readonly PATH: string };
  /** The calls since the last time, without queries. */
  changes(): string[];
  /** What `systemctl --user show` prints from now on. */
  state(properties: Readonly<Record<string, string | number>>): void;
  /** The manager does not answer from now on. */
  silence(): void;
  /** Starts and restarts fail from now on. */
  failStarts(): void;
  variables(lines: readonly string[]): void;
  journal(text: string): void;
}

const SCRIPT = `#!/bin/sh
here=\${0%/*}
name=\${0##*/}
case "$name $*" in
"systemctl --user show-environment")
  if [ -f "$here/silent" ]; then echo "Failed to connect to bus: No medium found" >&2; exit 1; fi
  cat "$here/variables" ;;
"systemctl --user show "*) cat "$here/state" ;;
loginctl*) echo "Linger=no" ;;
journalctl*) cat "$here/journal" ;;
*)
  echo "$name $*" >> "$here/calls"
  case "$*" in *"enable --now"*|*restart*)
    if [ -f "$here/fails" ]; then echo "Job for keybearer.service failed." >&2; exit 1; fi ;;
  esac ;;
esac
`;

export async function createSystemctl(folder: string): Promise<SystemctlScript> {
  const bin = join(folder, "bin");
  const put = (name: string, text: string) => writeFileSync(join(bin, name), text);
  await mkdir(bin, { recursive: true });
  for (const name of ["systemctl", "loginctl", "journalctl"])
    await writeFile(join(bin, name), SCRIPT, { mode: 0o755 });
  for (const name of ["calls", "state", "variables", "journal"]) put(name, "");
  let seen = 0;
  return {
    env: { PATH: [bin, "/usr/bin", "/bin"].join(delimiter) },
    changes() {
      // The file stays: emptying it could lose a call that comes at that moment.
      const lines = readFileSync(join(bin, "calls"), "utf8").split("\n").slice(0, -1);
      const changes = lines.slice(seen);
      seen = lines.length;
      return changes;
    },
    state(properties) {
      const lines = Object.entries(properties).map(([name, value]) => `${name}=${value}\n`);
      put("state", lines.join(""));
    },
    silence: () => put("silent", ""),
    failStarts: () => put("fails", ""),
    variables: (lines) => put("variables", lines.map((line) => `${line}\n`).join("")),
    journal: (text) => put("journal", text),
  };
}

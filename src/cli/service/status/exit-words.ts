import { EXIT } from "../../../core/errors.ts";
import { shellWord } from "../../../keys/words.ts";
import type { LastExit } from "../../../service/manager.ts";
import type { Note } from "../../ui/messages.ts";

export interface AboutExit {
  /** What to type about a config.yaml: see checkCommand. */
  readonly check: string;
  /** The daemon's own last word to the manager; null: none. */
  readonly said: string | null;
}

/** What shows the problems of the service's config.yaml. `usual`: where it is looked for if none is named. */
export function checkCommand(config: string, usual: string): string {
  return config === usual ? "keybearer check" : `keybearer check ${shellWord(config)}`;
}

/** How the service's last process ended, and what to do about it. */
export function exitInWords({ code, signal }: LastExit, { check, said }: AboutExit): Note {
  if (signal !== null) return { what: `it was ended by ${signal}`, next: LOGS };
  const known = WORDS[code ?? -1];
  const own = /^did not start: (.+)$/s.exec(said ?? "")?.[1];
  if (own !== undefined && (code === EXIT.badConfig || code === EXIT.portTaken)) {
    const [what = own, next] = own.split(" → ", 2);
    return { what: `it did not start: ${what} (exit code ${code})`, next: next ?? nextFor(code, own, check) };
  }
  if (known === undefined) return { what: `it ended with exit code ${code}`, next: LOGS };
  const [what, next] = known;
  return { what: `${what} (exit code ${code})`, next: code === EXIT.badConfig ? check : next };
}

const LOGS = "keybearer service logs";

function nextFor(code: number, said: string, check: string): string {
  if (code === EXIT.portTaken) return "keybearer doctor";
  // Out of the unit's view of the file system it cannot; the command line makes it first.
  return said.startsWith("cannot make the folder") ? "keybearer service restart" : check;
}

const NOT_GRANTED = ["the system does not let users make namespaces", "keybearer service install"] as const;

/** Ours, and those that systemd ends with before the program has begun: systemd.exec(5). */
const WORDS: Readonly<Record<number, readonly [what: string, next: string]>> = {
  [EXIT.usage]: ["it does not know its own command line", "keybearer service install"],
  [EXIT.portTaken]: ["its port is taken by another program", "keybearer doctor"],
  [EXIT.alreadyRunning]: ["another keybearer ran here already", "keybearer status"],
  [EXIT.badConfig]: ["config.yaml cannot be used as it is", "keybearer check"],
  200: ["its working folder is not there", "keybearer service install"],
  203: ["its node could not be started", "keybearer service install"],
  217: NOT_GRANTED,
  218: ["the system does not grant what the unit asks for", "keybearer service install"],
  226: NOT_GRANTED,
  228: ["the system does not know the unit's filter of system calls", "systemctl --user status keybearer"],
  233: ["its folder for the control socket cannot be made", "systemctl --user status keybearer"],
};

import type { LastExit } from "../../service/manager.ts";
import { EXIT } from "../../start-failure.ts";
import type { Note } from "../note.ts";

/** How the service's last process ended, and what to do about it. */
export function exitInWords({ code, signal }: LastExit, check: string): Note {
  if (signal !== null) return { what: `it was ended by ${signal}`, next: "keybearer service logs" };
  const known = WORDS[code ?? -1];
  if (known === undefined) return { what: `it ended with exit code ${code}`, next: "keybearer service logs" };
  const [what, next] = known;
  return { what: `${what} (exit code ${code})`, next: code === EXIT.badConfig ? check : next };
}

/** Ours, and those that systemd ends with before the program has begun: systemd.exec(5). */
const WORDS: Readonly<Record<number, readonly [what: string, next: string]>> = {
  [EXIT.usage]: ["it does not know its own command line", "keybearer service install"],
  [EXIT.portTaken]: ["its port is taken by another program", "keybearer doctor"],
  [EXIT.alreadyRunning]: ["another keybearer ran here already", "keybearer status"],
  [EXIT.badConfig]: ["config.yaml cannot be used as it is", "keybearer check"],
  200: ["its working folder is not there", "keybearer service install"],
  203: ["its node could not be started", "keybearer service install"],
  218: ["the system does not grant what the unit asks for", "keybearer service install"],
  226: ["the system does not grant the unit a view of its own", "keybearer service install"],
};

import { homedir } from "node:os";
import { type Clock, systemClock } from "../../core/clock.ts";
import { atTerminal, saysYes } from "../ask.ts";
import { screenOf } from "../columns.ts";
import { fail } from "../fail.ts";
import { type Note, noteInWords } from "../note.ts";
import { say } from "../say.ts";
import { visible } from "../table.ts";

/** What writing a client's settings needs of the machine and of the person. */
export interface WriteDeps {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  readonly cwd: string;
  readonly clock: Clock;
  /** Whether a person is there who can be asked. */
  readonly there: () => boolean;
  readonly saysYes: (question: string) => Promise<boolean>;
  readonly say: (...lines: readonly string[]) => void;
  readonly note: (note: Note) => void;
  readonly fail: (message: string, code: number) => void;
}

export function terminalDeps(): WriteDeps {
  return {
    env: process.env,
    home: homedir(),
    cwd: process.cwd(),
    clock: systemClock,
    there: atTerminal,
    saysYes: (question) => saysYes(visible(question)),
    say,
    note: (note) => {
      const { width } = screenOf(process.env, process.stdout.columns);
      process.stdout.write(`${noteInWords(note, width)}\n`);
    },
    fail,
  };
}

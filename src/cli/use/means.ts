import { homedir } from "node:os";
import { type Clock, systemClock } from "../../core/clock.ts";
import { fail, formatNote, type Note, print } from "../ui/messages.ts";
import { confirm } from "../ui/prompts.ts";
import { isInteractive, stdoutScreen } from "../ui/terminal.ts";
import { printable } from "../ui/text.ts";

/** What writing a client's settings needs of the machine and of the person. */
export interface WriteDeps {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  readonly cwd: string;
  readonly clock: Clock;
  /** Whether a person is there who can be asked. */
  readonly there: () => boolean;
  readonly confirm: (question: string) => Promise<boolean>;
  readonly print: (...lines: readonly string[]) => void;
  readonly note: (note: Note) => void;
  readonly fail: (message: string, code: number) => void;
}

export function terminalDeps(): WriteDeps {
  return {
    env: process.env,
    home: homedir(),
    cwd: process.cwd(),
    clock: systemClock,
    there: isInteractive,
    confirm: (question) => confirm(printable(question)),
    print,
    note: (note) => {
      const { width } = stdoutScreen();
      process.stdout.write(`${formatNote(note, width)}\n`);
    },
    fail,
  };
}

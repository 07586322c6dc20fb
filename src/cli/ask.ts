import { createInterface, type Interface } from "node:readline/promises";
import { Writable } from "node:stream";

/** Whether a person is there who can be asked. */
export function atTerminal(): boolean {
  return process.stdin.isTTY === true && process.stdout.isTTY === true;
}

/** Whether the person typed yes, and nothing less. */
export async function saysYes(question: string): Promise<boolean> {
  const answer = await ask(`${question} type yes: `);
  return answer?.trim().toLowerCase() === "yes";
}

/** Where a login's values come from: a person, or a program that writes them, one a line. */
export interface Answers {
  /** A question that cannot be answered twice by a program. */
  readonly byPerson: boolean;
  /** null: the input has ended, or the person wants no more of it. */
  plain(question: string): Promise<string | null>;
  /** The same for a secret: nothing of it is shown. */
  hidden(question: string): Promise<string | null>;
  close(): void;
}

export function createAnswers(): Answers {
  if (process.stdin.isTTY === true) return { byPerson: true, plain: ask, hidden: askHidden, close: () => {} };
  const input = createInterface({ input: process.stdin, terminal: false });
  const lines = input[Symbol.asyncIterator]();
  const next = async () => {
    const { value, done } = await lines.next();
    return done === true ? null : String(value);
  };
  return {
    byPerson: false,
    plain: next,
    hidden: next,
    close() {
      input.close();
      // A pipe that nobody closes must not keep the program alive.
      process.stdin.destroy();
    },
  };
}

/** null: the person ended the input (Ctrl-D, Ctrl-C) instead. Then the question alone would never be answered. */
async function ask(question: string): Promise<string | null> {
  const terminal = createInterface({ input: process.stdin, output: screen() });
  const answer = await answerTo(terminal, question);
  if (answer === null) screen().write("\n");
  return answer;
}

/** In raw mode the terminal itself shows nothing, and what the line editor would draw goes nowhere. */
async function askHidden(question: string): Promise<string | null> {
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const terminal = createInterface({ input: process.stdin, output: nowhere, terminal: true, historySize: 0 });
  // Only now: what is typed before raw mode would be shown.
  screen().write(question);
  const answer = await answerTo(terminal, "");
  screen().write("\n");
  return answer;
}

/** Closing leaves raw mode, whichever way the person ended it. */
async function answerTo(terminal: Interface, question: string): Promise<string | null> {
  const ended = new Promise<null>((resolve) => terminal.once("close", () => resolve(null)));
  const answer = await Promise.race([terminal.question(question).catch(() => null), ended]);
  terminal.close();
  return answer;
}

/** A question must be seen, also where the output goes into a file. */
function screen(): NodeJS.WriteStream {
  return process.stdout.isTTY === true ? process.stdout : process.stderr;
}

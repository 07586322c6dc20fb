import { createInterface } from "node:readline";
import { Writable } from "node:stream";
import { EXIT } from "../../core/errors.ts";
import { fail } from "./messages.ts";
import { stdio } from "./stdio.ts";
import { isInteractive, readScreen } from "./terminal.ts";
import { printable, textWidth, wrap } from "./text.ts";

/**
 * Asks a question with a yes or no answer: y, yes, n, no, or Enter for the default. Ctrl-C and Ctrl-D are no.
 * @param byDefault yes for what the person asked for; no for what deletes, and for what moves keys or money.
 */
export async function confirm(question: string, byDefault: "yes" | "no"): Promise<boolean> {
  return (await askYesOrNo(question, byDefault)) === true;
}

/** The same, but null for Ctrl-C and Ctrl-D. */
export async function askYesOrNo(question: string, byDefault: "yes" | "no"): Promise<boolean | null> {
  const answer = await askText(`${question} ${byDefault === "yes" ? "[Y/n]" : "[y/N]"}`, (text) =>
    /^(y|yes|n|no|)$/i.test(text.trim()) ? undefined : "type y or n",
  );
  if (answer === null) return null;
  return answer.trim() === "" ? byDefault === "yes" : /^y(es)?$/i.test(answer.trim());
}

/** False: there is no person to ask and no --yes, and that was printed. */
export function canConfirm(command: string, options: { readonly yes?: boolean }): boolean {
  if (options.yes || isInteractive()) return true;
  fail(`there is no terminal to ask at. if you are sure: ${command} --yes`, EXIT.usage);
  return false;
}

/** False: the person declined, and that was printed. @param done revoked, in "not revoked" */
export async function agrees(question: string, byDefault: "yes" | "no", done: string): Promise<boolean> {
  if (await confirm(question, byDefault)) return true;
  fail(`not ${done}; nothing changed`, EXIT.failed);
  return false;
}

/** Where the values of a dialog come from: a person at the terminal, or a program that writes one per line. */
export interface Prompter {
  /** A program cannot be asked a second time. */
  readonly interactive: boolean;
  /** null: the input has ended, or the person canceled. */
  text(question: string): Promise<string | null>;
  /** The same for a secret, which is not shown. */
  secret(question: string): Promise<string | null>;
  close(): void;
}

export function createPrompter(): Prompter {
  if (stdio().stdin.isTTY === true)
    return { interactive: true, text: (question) => askText(question), secret: askSecret, close: () => {} };
  const input = createInterface({ input: stdio().stdin, terminal: false });
  const lines = input[Symbol.asyncIterator]();
  const next = async () => {
    const { value, done } = await lines.next();
    return done === true ? null : String(value);
  };
  return {
    interactive: false,
    text: next,
    secret: next,
    close() {
      input.close();
      // A pipe whose writer stays open must not keep the program alive.
      stdio().stdin.destroy();
    },
  };
}

async function askText(
  question: string,
  validate: (text: string) => string | undefined = () => undefined,
): Promise<string | null> {
  const clack = await loadClack();
  const answer = await clack.text({
    ...promptOptions(question),
    validate: (text) => validate(text ?? ""),
  });
  return clack.isCancel(answer) ? null : (answer ?? "");
}

async function askSecret(question: string): Promise<string | null> {
  const clack = await loadClack();
  const answer = await clack.password(promptOptions(question));
  return clack.isCancel(answer) ? null : (answer ?? "");
}

function promptOptions(question: string) {
  const output = new PromptOutput();
  return { message: fitted(question, output), input: stdio().stdin, output, withGuide: false };
}

/** What clack draws in front of a question. */
const MARK_WIDTH = 3;

/** The question in lines that clack leaves as they are. It would break a long path anywhere, so such a line is printed before. */
function fitted(question: string, output: PromptOutput): string {
  const width = output.columns - MARK_WIDTH;
  const lines = wrap(printable(question), width).split("\n");
  const shown = lines.findLastIndex((line) => textWidth(line) > width) + 1;
  for (const line of lines.slice(0, shown)) output.write(`${line}\n`);
  return lines.slice(shown).join("\n").trimStart();
}

/**
 * Writes to the terminal, also if stdout is a file. It has a size of its own because some terminals (a serial line, a
 * container) report 0 columns, and clack would break the question after every character.
 */
class PromptOutput extends Writable {
  readonly #terminal = stdio().stdout.isTTY === true ? stdio().stdout : stdio().stderr;
  readonly columns = readScreen(stdio().env, this.#terminal.columns).width;
  readonly rows = this.#terminal.rows || 24;

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#terminal.write(chunk, done);
  }
}

async function loadClack() {
  // Loaded on demand: most commands ask nothing, and each one would start later.
  const clack = await import("@clack/prompts");
  // Readline closes on Ctrl-D without an answer; the question would never end.
  clack.updateSettings({ aliases: { "\u0004": "cancel" } });
  return clack;
}

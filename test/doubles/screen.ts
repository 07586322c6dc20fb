import { EventEmitter, once } from "node:events";
import { PassThrough, Writable } from "node:stream";
import { WriteStream } from "node:tty";
import { stripVTControlCharacters } from "node:util";
import type { Test } from "tap";
import { runCommandLine } from "../../src/cli/command-line.ts";
import { createProgram } from "../../src/cli/program.ts";
import { withStdio } from "../../src/cli/ui/stdio.ts";
import { bareEnv, type Ended } from "./command.ts";
import { HANG_MS } from "./until.ts";

/* A terminal in this process, for commands that ask questions, or whose output depends on the width. */

export interface ScreenOptions {
  /** Default 80. */
  readonly columns?: number;
  /** Beside a bare environment, as for command(). */
  readonly env?: NodeJS.ProcessEnv;
}

/** A person at a terminal, at which a command runs. */
export interface Person {
  /** As keys are pressed: Enter is \r. */
  type(text: string): void;
  /** Everything that was ever on the screen. */
  stdout(): string;
  /** Resolves with the match once the text is on the screen; fails when the command ends before. */
  says(what: RegExp): Promise<RegExpExecArray>;
  /** stdout and stderr are one: stdout. */
  readonly ended: Promise<Ended>;
}

/** What a terminal gets, and how wide it is. */
class Screen extends Writable {
  readonly isTTY = true;
  readonly rows = 24;
  readonly columns: number;
  readonly changes = new EventEmitter().setMaxListeners(0);
  readonly #env: NodeJS.ProcessEnv;
  #text = "";

  constructor(columns: number, env: NodeJS.ProcessEnv) {
    super({ decodeStrings: false });
    this.columns = columns;
    this.#env = env;
  }

  hasColors(): boolean {
    return WriteStream.prototype.getColorDepth(this.#env) >= 4;
  }

  override _write(piece: string | Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#text += String(piece);
    this.changes.emit("change");
    done();
  }

  text(): string {
    return this.#text;
  }
}

/** What is typed. A real terminal's input ends only with the terminal. */
class Keyboard extends PassThrough {
  readonly isTTY = true;

  setRawMode(): this {
    return this;
  }
}

/** Starts a command at a terminal in this process. */
export function atScreen(
  t: Test,
  home: string,
  args: readonly string[],
  { columns = 80, env: more = {} }: ScreenOptions = {},
): Person {
  const env = bareEnv(home, more);
  const screen = new Screen(columns, env);
  const keyboard = new Keyboard();
  const streams = { stdin: keyboard, stdout: screen, stderr: screen, env, execArgv: [], exitCode: 0 };
  let isOver = false;
  const run = async (): Promise<Ended> => {
    try {
      await withStdio(streams, () => runCommandLine(createProgram(), args));
    } finally {
      isOver = true;
      screen.changes.emit("change");
    }
    return { code: streams.exitCode, signal: null, stdout: screen.text(), stderr: "" };
  };
  const ended = run();
  // A command that still asks when the test ends is canceled.
  t.teardown(async () => {
    if (!isOver) keyboard.write("\u0003");
    await ended;
  });
  const says = async (what: RegExp) => {
    for (;;) {
      const found = what.exec(screen.text());
      if (found !== null) return found;
      if (isOver) throw new Error(`it ended before ${what} came:\n${screen.text()}`);
      await once(screen.changes, "change", { signal: AbortSignal.timeout(HANG_MS) }).catch(() => {
        throw new Error(`${what} did not come:\n${screen.text()}`);
      });
    }
  };
  return { type: (text) => void keyboard.write(text), stdout: () => screen.text(), says, ended };
}

/** Runs a command to its end; resolves with what is on the screen then, without colors. */
export async function screenAfter(
  t: Test,
  home: string,
  args: readonly string[],
  options: ScreenOptions = {},
): Promise<string> {
  return stripVTControlCharacters((await atScreen(t, home, args, options).ended).stdout);
}

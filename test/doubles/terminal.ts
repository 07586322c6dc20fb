import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import type { Test } from "tap";
import { bareEnv, builtProgram, type Running, startProgram } from "./command.ts";
import { until } from "./until.ts";

/** util-linux's script gives a program a terminal; the one of other systems takes other options. */
const SCRIPT = "/usr/bin/script";
const BASH = "/bin/bash";

/** Whether a terminal can be made here. If not, it adds a skipped test with the reason. */
export function hasTerminal(t: Test): boolean {
  const has = process.platform === "linux" && existsSync(SCRIPT);
  if (!has) t.skip("there is no util-linux script here to make a terminal with", async () => {});
  return has;
}

/** The same for a shell in it. */
export function hasShell(t: Test): boolean {
  const has = existsSync(BASH);
  if (!has) t.skip(`there is no ${BASH} here`, async () => {});
  return has && hasTerminal(t);
}

/** Starts the built program at a real terminal. What it prints comes on stdout, stderr with it. Prefer atScreen() of screen.ts. */
export function atTerminal(t: Test, home: string, ...args: string[]): Running {
  const words = [process.execPath, builtProgram(), ...args].map((word) => `'${word}'`).join(" ");
  return startProgram(t, SCRIPT, ["-qec", words, "/dev/null"], bareEnv(home), null);
}

/** The same at a terminal with this many columns, in UTC, with these variables. */
export function atWideTerminal(
  t: Test,
  home: string,
  columns: number,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Running {
  const words = [process.execPath, builtProgram(), ...args].map((word) => `'${word}'`).join(" ");
  const line = `stty cols ${columns} rows 24; exec ${words}`;
  return startProgram(t, SCRIPT, ["-qec", line, "/dev/null"], bareEnv(home, { TZ: "UTC", ...env }), null);
}

/** A terminal with a shell in it. */
export interface Shell {
  /** Everything that was ever on the screen, without what only moves or colours it. */
  screen(): string;
  /** Types, and presses Enter. */
  enter(text: string): void;
  /** Waits for something that came since the last Enter. */
  says(what: RegExp): Promise<RegExpExecArray>;
  /** Waits for the prompt; what the command said, and how it ended. */
  done(): Promise<Said>;
  /** Enter, and then the prompt. */
  run(command: string): Promise<Said>;
  readonly ended: Running["ended"];
}

export interface Said {
  readonly code: number;
  readonly text: string;
}

const PROMPT = /\[(\d+)\] \$ $/;

/** A bash with 80 columns, a history and the program in its PATH. Its environment has only a home. */
export async function openShell(t: Test, home: string): Promise<Shell> {
  const bin = join(home, "bin");
  mkdirSync(bin, { mode: 0o700 });
  const starter = `#!/bin/sh\nexec '${process.execPath}' '${builtProgram()}' "$@"\n`;
  writeFileSync(join(bin, "keybearer"), starter, { mode: 0o700 });
  // Without the marks that bash puts around pasted text, the screen is easier to read.
  writeFileSync(join(home, ".inputrc"), "set enable-bracketed-paste off\n");
  const more = { KEYBEARER_HOME: undefined, PATH: `${bin}:${process.env.PATH}`, TERM: "xterm" };
  const env = { ...bareEnv(home, more), PS1: "[$?] $ " };
  const { child, stdout, ended } = startProgram(
    t,
    SCRIPT,
    ["-qec", `${BASH} --norc -i`, "/dev/null"],
    env,
    null,
  );
  let mark = 0;
  const since = () => shown(stdout().slice(mark));
  const says = async (what: RegExp) => {
    let found: RegExpExecArray | null = null;
    const look = () => {
      found = what.exec(since());
      return found !== null;
    };
    await until(String(what), look).catch((error: unknown) => {
      throw new Error(`${error}; the screen says:\n${since()}`);
    });
    if (found === null) throw new Error(`no ${what}`);
    return found as RegExpExecArray;
  };
  const enter = (text: string) => {
    mark = stdout().length;
    child.stdin?.write(`${text}\r`);
  };
  const done = async () => {
    const { 1: code, index } = await says(PROMPT);
    return { code: Number(code), text: since().slice(0, index) };
  };
  const run = (line: string) => {
    enter(line);
    return done();
  };
  await done();
  await run("cd; umask 022; stty cols 80 rows 24");
  return { screen: () => shown(stdout()), enter, says, done, run, ended };
}

/** Without escape sequences. */
function shown(text: string): string {
  return stripVTControlCharacters(text).replaceAll("\r", "");
}

import { existsSync } from "node:fs";
import type { Test } from "tap";
import { bareEnv, builtProgram, type Running, startProgram } from "./command.ts";

/** util-linux's script gives a program a terminal; the one of other systems takes other options. */
const SCRIPT = "/usr/bin/script";

/** Whether a terminal can be made here. Says so where it cannot, so that a test may pass over it. */
export function hasTerminal(t: Test): boolean {
  const has = process.platform === "linux" && existsSync(SCRIPT);
  if (!has) t.comment("SKIPPED: there is no util-linux script here to make a terminal with");
  return has;
}

/** Starts the built program at a terminal. What it says comes on stdout, stderr with it. */
export function atTerminal(t: Test, home: string, ...args: string[]): Running {
  const words = [process.execPath, builtProgram(), ...args].map((word) => `'${word}'`).join(" ");
  return startProgram(t, SCRIPT, ["-qec", words, "/dev/null"], bareEnv(home), null);
}

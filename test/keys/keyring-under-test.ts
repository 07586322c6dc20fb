import { realpathSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Test } from "tap";
import type { KeySource } from "../../src/config/schema.ts";
import type { KeyState } from "../../src/config/snapshot.ts";
import { Keyring, type WantedKey } from "../../src/keys/keyring.ts";
import { Trust } from "../../src/keys/trust.ts";
import { newHome } from "../doubles/command.ts";
import { heldClock } from "../doubles/held-clock.ts";

export const A = "https://a.example.com";
export const B = "https://b.example.com";
export const EVIL = "https://evil.example.net";
export const ONE = "sk-canary-one-1111111111";
export const TWO = "sk-canary-two-2222222222";

export interface UnderTest {
  readonly folder: string;
  readonly keyring: Keyring;
  readonly trust: Trust;
  readonly env: Record<string, string>;
  readonly clock: ReturnType<typeof heldClock>;
  /** How often onLate was called. */
  readonly late: () => number;
}

/** A keyring on a real pins file in a folder of its own, at its first start. */
export async function keyringIn(t: Test): Promise<UnderTest> {
  // Not in the checkout, whose path may need quotes in a command.
  const folder = realpathSync(await newHome(t));
  const clock = heldClock();
  const trust = new Trust({ file: join(folder, "pins.json"), clock, ranBefore: () => false });
  await trust.load();
  const env: Record<string, string> = { PATH: "/usr/bin:/bin" };
  let late = 0;
  const onLate = () => {
    late += 1;
  };
  const keyring = new Keyring({ trust, env, clock, onLate });
  // Ends commands that still run.
  t.teardown(() => keyring.resolve([], 0));
  return { folder, keyring, trust, env, clock, late: () => late };
}

export function want(name: string, source: KeySource, ...origins: string[]): WantedKey {
  return { name, path: `tools.${name}.key`, source, origins, home: [] };
}

/** Writes a shell script into the folder and gives the source that runs it; $DIR in it is the folder. */
export function script(folder: string, name: string, body: string): KeySource {
  const path = join(folder, name);
  writeFileSync(path, `#!/bin/sh\nDIR='${folder}'\n${body}\n`, { mode: 0o755 });
  return { kind: "command", argv: [path] };
}

/** A command that notes each run, waits until there is a file called go, and then prints what is in it. */
export function waiting(folder: string, name = "wait"): KeySource {
  return script(
    folder,
    name,
    `echo $$ >> "$DIR/${name}.pids"; while [ ! -s "$DIR/go" ]; do sleep 0.02; done; cat "$DIR/go"`,
  );
}

/** A short text for a state, with the key in clear. */
export function describeState(state: KeyState | undefined): string {
  if (state === undefined) return "none";
  if (state.state === "ready") return `ready ${state.key.reveal()}`;
  return state.state === "unavailable" ? `unavailable ${state.problem}` : `held ${state.from} → ${state.to}`;
}

import { existsSync } from "node:fs";
import type { Config, Tool } from "../../config/schema.ts";
import type { KeyState } from "../../config/snapshot.ts";
import { advice } from "../../core/advice.ts";
import { systemClock } from "../../core/clock.ts";
import type { Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import { wantedKeys } from "../../daemon/reload.ts";
import { servedBefore } from "../../daemon/served-before.ts";
import { Keyring, type KeyWarning } from "../../keys/keyring.ts";
import type { CommandAs } from "../../keys/sources.ts";
import { Trust } from "../../keys/trust.ts";

export interface KeysHere {
  keyOf(tool: Tool): KeyState;
  secrets(): Iterable<Secret>;
  /** What should be corrected although the key works. */
  warnings(): readonly KeyWarning[];
  close(): void;
}

export interface KeysHereOptions {
  readonly config: Config;
  readonly paths: Paths;
  readonly env: NodeJS.ProcessEnv;
  /** A running daemon has read the keys. Programs and keychains may ask the person, so they are not asked again. */
  readonly running: boolean;
  /** How commands are started; default: without restrictions. */
  readonly as?: CommandAs | undefined;
}

const TIMEOUT_MS = 3000;
const NOT_READ: KeyState = {
  state: "unavailable",
  reason: "the running keybearer has read it, but does not answer",
  next: advice.status(),
};

/** Reads the tools' keys as the daemon would, under the same trust: doctor sends no key to a new place either. */
export async function readKeysHere(options: KeysHereOptions): Promise<KeysHere> {
  const { config, paths, env, running, as } = options;
  const trust = new Trust({
    file: paths.trust,
    clock: systemClock,
    ranBefore: () => servedBefore(paths),
  });
  const hasTrustFile = existsSync(paths.trust);
  trust.load();
  const keyring = new Keyring({ trust, env, clock: systemClock, onLate: () => {}, limit: TIMEOUT_MS, as });
  const wants = wantedKeys(config, paths)
    .filter(({ name }) => Object.hasOwn(config.tools, name))
    .filter(({ source }) => !running || (source.kind !== "command" && source.kind !== "keychain"));
  await keyring.resolve(wants, TIMEOUT_MS + 500);
  // The first use of a key pins it. Before the first start nothing is pinned: that is for the start to do. While a daemon
  // runs, only the daemon writes the file.
  if (hasTrustFile && !running) await trust.settle();
  const states = keyring.current();
  return {
    keyOf: (tool) => states.get(tool.name) ?? NOT_READ,
    secrets: () => keyring.secrets(),
    warnings: () => keyring.warnings(),
    close: () => keyring.close(),
  };
}

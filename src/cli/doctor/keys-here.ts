import { existsSync } from "node:fs";
import type { Config, Tool } from "../../config/schema.ts";
import type { KeyState } from "../../config/snapshot.ts";
import { systemClock } from "../../core/clock.ts";
import type { Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import { wantedKeys } from "../../daemon/reload.ts";
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

export interface KeysHereDeps {
  readonly config: Config;
  readonly paths: Paths;
  readonly env: NodeJS.ProcessEnv;
  /** true: a daemon runs and has read them; here only what needs no program and no finger. */
  readonly running: boolean;
  /** How commands are started. Default as they are. */
  readonly as?: CommandAs | undefined;
}

const PATIENCE_MS = 3000;
const NOT_READ: KeyState = {
  state: "unavailable",
  reason: "the running keybearer has read it, but could not be asked",
  next: "keybearer status",
};

/** The tools' keys, read as the daemon would read them and held to the same trust: doctor moves no key either. */
export async function readKeysHere(deps: KeysHereDeps): Promise<KeysHere> {
  const { config, paths, env, running, as } = deps;
  const trust = new Trust({ file: paths.trust, clock: systemClock });
  const first = !existsSync(paths.trust);
  await trust.load();
  const keyring = new Keyring({ trust, env, clock: systemClock, onLate: () => {}, limit: PATIENCE_MS, as });
  const wants = wantedKeys(config, paths)
    .filter(({ name }) => Object.hasOwn(config.tools, name))
    .filter(({ source }) => !running || (source.kind !== "command" && source.kind !== "keychain"));
  await keyring.resolve(wants, PATIENCE_MS + 500);
  // The first use of a key pins it. Before the first start nothing is pinned at all: that is for the start to do, and
  // while a daemon runs the file is its own.
  if (!first && !running) await trust.settle();
  const states = keyring.current();
  return {
    keyOf: (tool) => states.get(tool.name) ?? NOT_READ,
    secrets: () => keyring.secrets(),
    warnings: () => keyring.warnings(),
    close: () => keyring.close(),
  };
}

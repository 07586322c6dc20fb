import type { DestinationStream } from "pino";
import type { Clock } from "../core/clock.ts";
import { createLogger, type Logger } from "../core/log.ts";
import type { Paths } from "../core/paths.ts";
import { Keyring } from "../keys/keyring.ts";
import type { Trust } from "../keys/trust.ts";
import { Vault } from "../mirror/vault.ts";
import { createTrust } from "./served-before.ts";

interface KeyOptions {
  readonly paths: Paths;
  readonly env: NodeJS.ProcessEnv;
  readonly logTo: DestinationStream;
  readonly logForPeople: boolean;
  readonly clock: Clock;
}

/** Where keys come from and go to, and the log that never shows them. */
export interface Keys {
  readonly trust: Trust;
  readonly keyring: Keyring;
  readonly vault: Vault;
  readonly log: Logger;
  readonly env: NodeJS.ProcessEnv;
  /** Calls back for every key that arrives late, and at once if one arrived before this call. */
  whenLate(notify: () => void): void;
}

/** The logger redacts the keys of the keyring and of the vault, so they are created together. */
export function createKeys({ paths, env, logTo, logForPeople, clock }: KeyOptions): Keys {
  let late = false;
  let notifyLate = (): void => {
    late = true;
  };
  const trust = createTrust(paths, clock);
  const vault = new Vault(paths.consoles, clock);
  const keyring = new Keyring({ trust, env, clock, onLate: () => notifyLate() });
  const log = createLogger({
    level: "info",
    destination: logTo,
    forPeople: logForPeople,
    secrets: [() => keyring.secrets(), () => vault.secrets()],
  });
  const whenLate = (notify: () => void) => {
    notifyLate = notify;
    if (late) notify();
  };
  return { trust, keyring, vault, log, env, whenLate };
}

import { randomBytes } from "node:crypto";
import type { Config, KeySource } from "../../config/schema.ts";
import { advice } from "../../core/advice.ts";
import { systemClock } from "../../core/clock.ts";
import type { Problem } from "../../core/display.ts";
import type { Paths } from "../../core/paths.ts";
import { Secret } from "../../core/secret.ts";
import { wantedKeys } from "../../daemon/reload.ts";
import { createTrust } from "../../daemon/served-before.ts";
import type { Trust, UntrustedChange } from "../../keys/trust.ts";

/* Whether a command may send a key to a gateway: not where the daemon would hold it until a person trusts the change. */

/** The daemon would hold this key until it is trusted, so no command may send it either. */
interface Hold extends UntrustedChange {
  /** The key itself was used at another gateway before. Otherwise its tool or its source was. */
  readonly known: boolean;
}

interface KeyUse {
  readonly tool: string;
  readonly source: KeySource;
  readonly origins: readonly string[];
  /** The command itself stores the key there. Default false. */
  readonly isStoredHere?: boolean;
}

/** Asked before a key is sent. null: it may be sent to these origins. */
export async function findHold(
  paths: Paths,
  { tool, source, origins, isStoredHere = false }: KeyUse,
  key: Secret,
): Promise<Hold | null> {
  const { trust, isLost } = readPins(paths);
  const subject = { name: tool, source, origins, home: paths.own };
  if (isStoredHere) trust.claim(subject);
  const held = trust.judgeSource(subject) ?? trust.judgeKey(subject, key);
  if (held === null) return null;
  // Without a tool and a source, only the pin of the key itself can hold it.
  const itself = trust.judgeKey({ ...subject, name: "", source: { kind: "literal", secret: key } }, key);
  return { ...held, known: !isLost && itself !== null };
}

/**
 * The first of these tools that was used at another address before. A program that edited base_url must not get
 * the next key, so this is checked before a person is asked for one. null: no tool was moved.
 */
export async function movedTool(
  paths: Paths,
  config: Config,
  isMeant: (name: string) => boolean,
): Promise<Problem | null> {
  const { trust, isLost } = readPins(paths);
  // Without pins every key is held, whatever its address.
  if (isLost) return null;
  for (const needed of wantedKeys(config, paths)) {
    if (!Object.hasOwn(config.tools, needed.name) || !isMeant(needed.name)) continue;
    // With a random key, only the tool's name can be known.
    const secret = new Secret(randomBytes(24).toString("hex"));
    const held = trust.judgeKey({ ...needed, source: { kind: "literal", secret } }, secret);
    if (held !== null)
      return {
        problem: `${needed.name} was used at ${held.from} before, and config.yaml sends it to ${held.to} now. confirm that before it gets a key`,
        next: `${advice.trust(needed.name)}, or put base_url back`,
      };
  }
  return null;
}

export function originsFor(config: Config, tool: string, paths: Paths): readonly string[] {
  return wantedKeys(config, paths).find(({ name }) => name === tool)?.origins ?? [];
}

export function describeHold({ what, from, to }: UntrustedChange): string {
  return `${what} waits for your confirmation and was not sent: it was for ${from}, and is now for ${to}`;
}

export function foreignKey(hold: Hold): string {
  return `${describeHold(hold)}. each gateway has keys of its own: make one in its console`;
}

/** Only read: the daemon owns the file and adds the pins. */
function readPins(paths: Paths): { readonly trust: Trust; readonly isLost: boolean } {
  const trust = createTrust(paths, systemClock);
  const { problem } = trust.load();
  return { trust, isLost: problem !== null };
}

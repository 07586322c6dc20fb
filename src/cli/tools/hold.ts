import { randomBytes } from "node:crypto";
import type { Config, KeySource } from "../../config/schema.ts";
import { systemClock } from "../../core/clock.ts";
import type { Paths } from "../../core/paths.ts";
import { Secret } from "../../core/secret.ts";
import { wantedKeys } from "../../daemon/reload.ts";
import { Trust, type UntrustedChange } from "../../keys/trust.ts";

/** A key that the daemon would hold: what it would hold must not be sent by a command either. */
export interface Hold extends UntrustedChange {
  /** It is a key that was used before, elsewhere. Otherwise its tool or its source was. */
  readonly known: boolean;
}

export interface KeyUse {
  readonly tool: string;
  readonly source: KeySource;
  /** Where the key would go. */
  readonly origins: readonly string[];
}

/** Asked before a key is sent. null: it may go there. */
export async function holdOf(
  paths: Paths,
  { tool, source, origins }: KeyUse,
  key: Secret,
): Promise<Hold | null> {
  const { trust, lost } = await pinsOf(paths);
  const subject = { name: tool, source, origins, home: paths.own };
  const held = trust.judgeSource(subject) ?? trust.judgeKey(subject, key);
  if (held === null) return null;
  // Of nobody and from nowhere: only the key's own pin is left to hold it.
  const itself = trust.judgeKey({ ...subject, name: "", source: { kind: "literal", secret: key } }, key);
  return { ...held, known: !lost && itself !== null };
}

/**
 * The first of these tools that was used at another address before. Whoever edited base_url must not be handed the next
 * key, so this is asked before a person is asked for one.
 */
export async function movedTool(
  paths: Paths,
  config: Config,
  isMeant: (name: string) => boolean,
): Promise<{ readonly tool: string; readonly held: UntrustedChange } | null> {
  const { trust, lost } = await pinsOf(paths);
  // Then every key that is not known is held, whichever address it goes to.
  if (lost) return null;
  for (const want of wantedKeys(config, paths)) {
    if (!Object.hasOwn(config.tools, want.name) || !isMeant(want.name)) continue;
    // Nobody's key, so that it is the tool's name that is judged.
    const secret = new Secret(randomBytes(24).toString("hex"));
    const held = trust.judgeKey({ ...want, source: { kind: "literal", secret } }, secret);
    if (held !== null) return { tool: want.name, held };
  }
  return null;
}

export function originsFor(config: Config, tool: string, paths: Paths): readonly string[] {
  return wantedKeys(config, paths).find(({ name }) => name === tool)?.origins ?? [];
}

export function holdInWords({ what, from, to }: UntrustedChange): string {
  return `${what} waits for your yes, and was sent nowhere: it was for ${from}, and is now for ${to}`;
}

export function movedInWords({
  tool,
  held,
}: {
  readonly tool: string;
  readonly held: UntrustedChange;
}): string {
  return (
    `${tool} was used at ${held.from} before, and config.yaml sends it to ${held.to} now. ` +
    `no key is taken until you have said yes to that → keybearer trust ${tool}, or put base_url back\nnothing was changed`
  );
}

/** As they are on disk. They are not settled here: to pin is for the daemon, whose file it is. */
async function pinsOf(paths: Paths): Promise<{ readonly trust: Trust; readonly lost: boolean }> {
  const trust = new Trust({ file: paths.trust, clock: systemClock });
  const { problem } = await trust.load();
  return { trust, lost: problem !== null };
}

import { constants as fs } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import type { Clock } from "../clock.ts";
import { codeOf, keepAside, writePrivate } from "../keys/pins.ts";
import { Secret } from "../secret.ts";
import { asObject, fieldAt, type JsonObject, listAt, textAt, wholeAt } from "./consoles/json.ts";

/** What is kept of a console's login, so that nobody is asked again after a restart. */
export interface StoredLogin {
  readonly refreshToken?: Secret;
  readonly accessToken?: Secret;
  /** new-api: the numeric user id. */
  readonly user?: string | null;
  readonly email?: string | null;
  /** A digest of the configured token that this one descends from: when another is configured, that one counts. */
  readonly seed?: string | null;
}

/** The console secrets of all gateways, in one file that only its owner can read. */
export interface Vault {
  /** Reads the file. problem: what is wrong with it, for people; null: nothing, or there is none yet. */
  load(): Promise<{ readonly problem: string | null }>;
  /** null: nothing is kept for this gateway, or only for another origin, which alone may see that secret. */
  get(gateway: string, origin: string): StoredLogin | null;
  /** The origin for which something is kept, for words; null: nothing is. */
  otherOrigin(gateway: string): string | null;
  /** In the file when it returns; else it throws, and what was there before stays, here and there. */
  put(gateway: string, origin: string, entry: StoredLogin): Promise<void>;
  remove(gateway: string): Promise<void>;
  /** Every secret in it, for whoever takes them out of texts. Another list only when they changed. */
  secrets(): readonly Secret[];
}

export interface VaultMeans {
  readonly file: string;
  readonly clock: Clock;
}

interface Lodged {
  readonly origin: string;
  readonly entry: StoredLogin;
}

type Found =
  | { readonly state: "found"; readonly kept: ReadonlyMap<string, Lodged> }
  | { readonly state: "missing" }
  | { readonly state: "damaged" }
  /** Neither read nor written over, until a person has looked at it. */
  | { readonly state: "refused"; readonly why: string };

const VERSION = 1;
const MOST_BYTES = 1024 * 1024;

export function createVault({ file, clock }: VaultMeans): Vault {
  let kept: ReadonlyMap<string, Lodged> = new Map();
  let listed = { of: kept, secrets: secretsIn(kept) };
  let refused: string | null = null;
  /** Changes are written one after the other. */
  let last: Promise<void> = Promise.resolve();

  async function load(): Promise<{ problem: string | null }> {
    const found = await readVault(file);
    refused = found.state === "refused" ? found.why : null;
    kept = found.state === "found" ? found.kept : new Map();
    if (found.state !== "damaged") return { problem: refused };
    await keepAside(file, clock.now());
    const problem = `${file} is damaged; a copy was kept beside it, and every console must be logged in to again`;
    return { problem };
  }

  function change(edit: (next: Map<string, Lodged>) => void): Promise<void> {
    const done = last.then(async () => {
      // It may have been set right meanwhile.
      if (refused !== null) await load();
      if (refused !== null) throw new Error(refused);
      const next = new Map(kept);
      edit(next);
      await writePrivate(file, vaultText(next));
      kept = next;
    });
    last = done.catch(() => undefined);
    return done;
  }

  return {
    load,
    get(gateway, origin) {
      const found = kept.get(gateway);
      return found?.origin === origin ? found.entry : null;
    },
    otherOrigin: (gateway) => kept.get(gateway)?.origin ?? null,
    put: (gateway, origin, entry) => change((next) => void next.set(gateway, { origin, entry })),
    remove: (gateway) => (kept.has(gateway) ? change((next) => void next.delete(gateway)) : last),
    secrets() {
      if (listed.of !== kept) listed = { of: kept, secrets: secretsIn(kept) };
      return listed.secrets;
    },
  };
}

function secretsIn(kept: ReadonlyMap<string, Lodged>): readonly Secret[] {
  return [...kept.values()].flatMap(({ entry }) =>
    [entry.refreshToken, entry.accessToken].filter((secret) => secret !== undefined),
  );
}

async function readVault(file: string): Promise<Found> {
  let handle: FileHandle | null = null;
  try {
    // Without O_NONBLOCK a named pipe would be waited for.
    handle = await open(file, fs.O_RDONLY | fs.O_NONBLOCK);
    const { mode, size, isFile } = await statOf(handle);
    if (!isFile) return { state: "refused", why: `${file} is not a regular file` };
    if ((mode & 0o077) !== 0) {
      return { state: "refused", why: `others can read or change ${file} → chmod 600 ${file}` };
    }
    if (size > MOST_BYTES) return { state: "refused", why: `${file} is too large to be what it should be` };
    const kept = parsed(await handle.readFile("utf8"));
    return kept === null ? { state: "damaged" } : { state: "found", kept };
  } catch (error) {
    const code = codeOf(error);
    return code === "ENOENT"
      ? { state: "missing" }
      : { state: "refused", why: `${file} cannot be read (${code})` };
  } finally {
    await handle?.close().catch(() => undefined);
  }
}

async function statOf(handle: FileHandle) {
  const found = await handle.stat();
  return { mode: found.mode, size: found.size, isFile: found.isFile() };
}

function vaultText(kept: ReadonlyMap<string, Lodged>): string {
  const entries = [...kept].map(([gateway, { origin, entry }]) => ({
    gateway,
    origin,
    refresh_token: entry.refreshToken?.reveal(),
    access_token: entry.accessToken?.reveal(),
    user: entry.user ?? undefined,
    email: entry.email ?? undefined,
    seed: entry.seed ?? undefined,
  }));
  return `${JSON.stringify({ version: VERSION, entries }, null, 1)}\n`;
}

/** Strict: what is half understood may pair a secret with the wrong origin. */
function parsed(text: string): ReadonlyMap<string, Lodged> | null {
  const whole = jsonIn(text);
  const entries = whole === null || wholeAt(whole, "version") !== VERSION ? null : listAt(whole, "entries");
  if (entries === null) return null;
  const kept = new Map<string, Lodged>();
  for (const value of entries) {
    const stored = asObject(value);
    const gateway = stored === null ? null : textAt(stored, "gateway");
    const origin = stored === null ? null : textAt(stored, "origin");
    if (stored === null || gateway === null || origin === null) return null;
    if (kept.has(gateway) || TEXTS.some((name) => !isTextOrNothing(stored, name))) return null;
    kept.set(gateway, { origin, entry: entryOf(stored) });
  }
  return kept;
}

const TEXTS = ["refresh_token", "access_token", "user", "email", "seed"] as const;

function isTextOrNothing(stored: JsonObject, name: string): boolean {
  return fieldAt(stored, name) === undefined || textAt(stored, name) !== null;
}

function entryOf(stored: JsonObject): StoredLogin {
  const [refresh, access, user, email, seed] = TEXTS.map((name) => textAt(stored, name));
  return {
    ...(refresh ? { refreshToken: new Secret(refresh) } : {}),
    ...(access ? { accessToken: new Secret(access) } : {}),
    ...(user ? { user } : {}),
    ...(email ? { email } : {}),
    ...(seed ? { seed } : {}),
  };
}

function jsonIn(text: string): JsonObject | null {
  try {
    return asObject(JSON.parse(text));
  } catch {
    return null;
  }
}

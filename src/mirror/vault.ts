import { statSync } from "node:fs";
import { advice } from "../core/advice.ts";
import type { Clock } from "../core/clock.ts";
import { type Problem, withNext } from "../core/display.ts";
import { errorCode } from "../core/errors.ts";
import { fieldAt, flagAt, listAt, parseObject, textAt, wholeAt } from "../core/json.ts";
import { ForeignFile, readOwnFile, setAside } from "../core/own-file.ts";
import { writePrivateFile } from "../core/private-file.ts";
import { Secret } from "../core/secret.ts";

/** What is stored of a console login, so that it survives a restart. */
export interface StoredLogin {
  readonly refreshToken?: Secret;
  readonly accessToken?: Secret;
  /** new-api: the numeric user id. */
  readonly user?: string | null;
  /** A digest of the configured token that this login came from. If another token is configured, that one is used. */
  readonly seed?: string | null;
  /** The refresh token replaced one that ended earlier, so this login does not end while it is used. */
  readonly isExtended?: boolean;
}

interface Entry {
  readonly origin: string;
  readonly login: StoredLogin;
}

type Entries = ReadonlyMap<string, Entry>;

type VaultFile =
  | { readonly state: "read"; readonly entries: Entries }
  | { readonly state: "missing" | "damaged" }
  /** Neither read nor overwritten until a person has fixed it. */
  | ({ readonly state: "refused" } & Problem);

const VERSION = 1;
const MAX_BYTES = 1024 * 1024;

/** The console logins of all gateways, in one file that only its owner can read. */
export class Vault {
  readonly #file: string;
  readonly #clock: Clock;
  #entries: Entries = new Map();
  #secrets: readonly Secret[] = [];
  #refused: Problem | null = null;
  /** The last write: writes run one after the other. */
  #writing: Promise<void> = Promise.resolve();

  constructor(file: string, clock: Clock) {
    this.#file = file;
    this.#clock = clock;
  }

  /** Reads the file. Returns what is wrong with it, or null. */
  load(): Problem | null {
    const found = readVault(this.#file);
    this.#refused = found.state === "refused" ? found : null;
    this.#set(found.state === "read" ? found.entries : new Map());
    if (found.state !== "damaged") return this.#refused;
    const kept = setAside(this.#file, this.#clock.now());
    const problem = `${this.#file} is damaged, and was set aside as ${kept}: every console needs a new login`;
    return { problem, next: advice.mirrorLogin() };
  }

  /** null: nothing is stored for this gateway, or only for another origin, which alone may see it. */
  get(gateway: string, origin: string): StoredLogin | null {
    const entry = this.#entries.get(gateway);
    return entry?.origin === origin ? entry.login : null;
  }

  /** The origin for which something is stored. */
  otherOrigin(gateway: string): string | null {
    return this.#entries.get(gateway)?.origin ?? null;
  }

  /** Returns once the login is in the file. Throws otherwise, and then nothing has changed. */
  put(gateway: string, origin: string, login: StoredLogin): Promise<void> {
    const written = this.#writing.then(async () => {
      // The file may have been corrected meanwhile.
      if (this.#refused !== null) await this.load();
      if (this.#refused !== null) throw new Error(withNext(this.#refused));
      const next = new Map(this.#entries).set(gateway, { origin, login });
      await writePrivateFile(this.#file, vaultText(next));
      this.#set(next);
    });
    // A failed write is reported to its caller, and must not stop the next one.
    this.#writing = written.catch(() => undefined);
    return written;
  }

  /** All stored secrets, to redact them. The list is a new one only if they changed. */
  secrets(): readonly Secret[] {
    return this.#secrets;
  }

  #set(entries: Entries): void {
    this.#entries = entries;
    const secrets = [...entries.values()].flatMap(({ login }) => [login.refreshToken, login.accessToken]);
    this.#secrets = secrets.filter((secret) => secret !== undefined);
  }
}

function readVault(file: string): VaultFile {
  try {
    const text = readOwnFile(file, MAX_BYTES);
    if (text === null) return { state: "missing" };
    if ((statSync(file).mode & 0o077) !== 0)
      return { state: "refused", problem: `others can read or change ${file}`, next: `chmod 600 ${file}` };
    const entries = parseVault(text);
    return entries === null ? { state: "damaged" } : { state: "read", entries };
  } catch (error) {
    if (error instanceof ForeignFile) return { state: "refused", problem: error.message, next: null };
    return { state: "refused", problem: `${file} cannot be read (${errorCode(error)})`, next: null };
  }
}

function vaultText(entries: Entries): string {
  const list = [...entries].map(([gateway, { origin, login }]) => ({
    gateway,
    origin,
    refresh_token: login.refreshToken?.reveal(),
    access_token: login.accessToken?.reveal(),
    user: login.user ?? undefined,
    seed: login.seed ?? undefined,
    extended: login.isExtended || undefined,
  }));
  return `${JSON.stringify({ version: VERSION, entries: list }, null, 1)}\n`;
}

/** Strict, because an entry read wrongly could pair a secret with the wrong origin. null: damaged. */
function parseVault(text: string): Entries | null {
  const file = parseObject(text);
  const list = wholeAt(file, "version") === VERSION ? listAt(file, "entries") : null;
  if (list === null) return null;
  const entries = new Map<string, Entry>();
  for (const stored of list) {
    const gateway = textAt(stored, "gateway");
    const origin = textAt(stored, "origin");
    if (gateway === null || origin === null || entries.has(gateway)) return null;
    for (const name of ["refresh_token", "access_token", "user", "seed"]) {
      if (fieldAt(stored, name) !== undefined && textAt(stored, name) === null) return null;
    }
    const refreshToken = textAt(stored, "refresh_token");
    const accessToken = textAt(stored, "access_token");
    const login = {
      ...(refreshToken ? { refreshToken: new Secret(refreshToken) } : {}),
      ...(accessToken ? { accessToken: new Secret(accessToken) } : {}),
      user: textAt(stored, "user"),
      seed: textAt(stored, "seed"),
      isExtended: flagAt(stored, "extended") === true,
    };
    entries.set(gateway, { origin, login });
  }
  return entries;
}

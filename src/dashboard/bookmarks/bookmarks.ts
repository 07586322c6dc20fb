import { createHash, createPublicKey, type KeyObject, randomBytes, verify } from "node:crypto";
import type { Browsers, BrowsersAnswer } from "../../control/browsers.ts";
import { advice } from "../../core/advice.ts";
import { background } from "../../core/background.ts";
import type { Clock } from "../../core/clock.ts";
import { errorMessage, HttpError } from "../../core/errors.ts";
import type { Logger } from "../../core/log.ts";
import { Semaphore } from "../../core/semaphore.ts";
import { DAY_MS, MINUTE_MS } from "../../core/units.ts";
import type { Proof } from "../api.ts";
import { failure } from "../failure.ts";
import type { Sessions } from "../sessions.ts";
import { readBrowsers, type StoredBrowser, writeBrowsers } from "./browser-file.ts";
import { signedText } from "./signed-text.ts";

const MAX_BROWSERS = 20;
const UNUSED_MS = 90 * DAY_MS;
const CHALLENGE_MS = MINUTE_MS;
/** Each signature needs a challenge of its own, so this bounds how often somebody can try. Each tab of a browser asks once. */
const MAX_CHALLENGES_PER_MINUTE = 60;

interface Challenge {
  readonly publicKey: string;
  readonly origin: string;
  readonly validUntil: number;
}

interface BookmarksDeps {
  readonly file: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly sessions: Pick<Sessions, "start" | "endForgotten">;
  /** Why no browser may be remembered here; null: one may. Asked each time, since config.yaml can change. */
  readonly problem: () => HttpError | null;
}

/** The browsers that get a session without a terminal: each has a key of its own, whose signature is asked for. */
export class Bookmarks implements Browsers {
  readonly #deps: BookmarksDeps;
  /** One change of the file at a time. */
  readonly #turn = new Semaphore(1);
  readonly #challenges = new Map<string, Challenge>();
  /** When challenges were asked for, granted or not. */
  #asked: readonly number[] = [];

  constructor(deps: BookmarksDeps) {
    this.#deps = deps;
  }

  list(): BrowsersAnswer {
    const { browsers, problem } = this.#read();
    const remembered = browsers.map((each) => ({ ...each, fingerprint: fingerprintOf(each.public_key) }));
    const { problem: why, next } = problem?.parts ?? { problem: null, next: null };
    return { browsers: remembered, why, next, code: problem?.code ?? null };
  }

  /** The fingerprint under which it would be remembered. Throws an HttpError if it cannot be. */
  check({ name, public_key: publicKey }: NewBrowser): string {
    const browsers = this.#usable();
    if (readPublicKey(publicKey) === null)
      throw new HttpError(400, "this is not a public key of ECDSA P-256");
    if (browsers.some((each) => each.name === name))
      throw new HttpError(
        409,
        `a browser called ${name} is remembered already. take another name, or → ${advice.revokeBrowser(name)}`,
      );
    if (browsers.some((each) => each.public_key === publicKey))
      throw new HttpError(409, "this browser is remembered already");
    if (browsers.length >= MAX_BROWSERS)
      throw new HttpError(409, `${MAX_BROWSERS} browsers are remembered already → ${advice.browsers()}`);
    return fingerprintOf(publicKey);
  }

  async remember(browser: NewBrowser): Promise<void> {
    const now = this.#deps.clock.now();
    await this.#change((browsers) => {
      // Another page may have been quicker.
      this.check(browser);
      return [...browsers, { ...browser, made_at: now, used_at: now }];
    });
  }

  async revoke(name: string): Promise<Record<string, never> | null> {
    const { log, sessions } = this.#deps;
    let revoked: StoredBrowser | undefined;
    await this.#change((browsers) => {
      revoked = browsers.find((each) => each.name === name);
      const left = browsers.filter((each) => each !== revoked);
      // Before the file is written: that may fail.
      sessions.endForgotten(new Set(left.map((each) => each.public_key)));
      return left;
    });
    if (revoked === undefined) return null;
    log.warn({ browser: name }, "a remembered browser was revoked");
    return {};
  }

  /** The public keys of the browsers in the list; none if it cannot be read. */
  remembered(): ReadonlySet<string> {
    return new Set(this.#read().browsers.map((each) => each.public_key));
  }

  /** The list decides: it can be removed or broken, and an entry gets too old, while sessions go on. */
  endForgotten(): void {
    this.#deps.sessions.endForgotten(this.remembered());
  }

  /** What this browser has to sign, once and within a minute. Throws an HttpError. */
  challenge(publicKey: string, origin: string): string {
    const now = this.#deps.clock.elapsed();
    const recent = this.#asked.filter((at) => now - at < MINUTE_MS);
    if (recent.length >= MAX_CHALLENGES_PER_MINUTE) throw failure(429, "too-many-challenges");
    this.#asked = [...recent, now];
    this.#find(publicKey, origin);
    for (const [text, { validUntil }] of this.#challenges)
      if (validUntil <= now) this.#challenges.delete(text);
    const text = randomBytes(32).toString("base64url");
    this.#challenges.set(text, { publicKey, origin, validUntil: now + CHALLENGE_MS });
    return text;
  }

  /**
   * Exchanges the signature for the token of a new session. null: the signature does not hold, or its challenge was used, is
   * too old or another's. Throws an HttpError.
   */
  exchange({ public_key: publicKey, challenge, signature }: Proof, origin: string): string | null {
    const { clock, log, sessions } = this.#deps;
    const issued = this.#challenges.get(challenge);
    this.#challenges.delete(challenge);
    if (issued?.publicKey !== publicKey || issued.origin !== origin || issued.validUntil <= clock.elapsed())
      return null;
    // It may have been revoked since.
    const { name } = this.#find(publicKey, origin);
    const key = readPublicKey(publicKey);
    if (key === null || !isSignature(key, signedText(origin, challenge), signature)) return null;
    log.info({ browser: name }, "a remembered browser began a session of the dashboard");
    background(this.#noteUse(publicKey), log, "noting when a browser was used");
    return sessions.start(publicKey);
  }

  /** Throws an HttpError if this browser is not remembered at this address. */
  #find(publicKey: string, origin: string): StoredBrowser {
    const found = this.#usable().find((each) => each.public_key === publicKey && each.origin === origin);
    if (found === undefined) throw failure(404, "unknown-browser");
    return found;
  }

  /** Throws an HttpError where bookmarks cannot be used. */
  #usable(): readonly StoredBrowser[] {
    const { browsers, problem } = this.#read();
    if (problem !== null) throw problem;
    return browsers;
  }

  /** @returns problem: why they cannot be used; null: they can */
  #read(): { readonly browsers: readonly StoredBrowser[]; readonly problem: HttpError | null } {
    const read = readBrowsers(this.#deps.file);
    const problem = this.#deps.problem();
    return read.ok
      ? { browsers: this.#inUse(read.browsers), problem }
      : { browsers: [], problem: problem ?? new HttpError(409, read) };
  }

  #inUse(browsers: readonly StoredBrowser[]): readonly StoredBrowser[] {
    const now = this.#deps.clock.now();
    return browsers.filter(({ used_at }) => now - used_at < UNUSED_MS);
  }

  #noteUse(publicKey: string): Promise<void> {
    const now = this.#deps.clock.now();
    return this.#change((browsers) =>
      browsers.map((each) => (each.public_key === publicKey ? { ...each, used_at: now } : each)),
    );
  }

  /** Throws an HttpError if the file cannot be read or written. */
  #change(change: (browsers: readonly StoredBrowser[]) => readonly StoredBrowser[]): Promise<void> {
    const { file } = this.#deps;
    return this.#turn.run(async () => {
      try {
        const read = readBrowsers(file);
        if (!read.ok) throw new HttpError(409, read);
        const browsers = change(this.#inUse(read.browsers));
        await writeBrowsers(file, browsers).catch((error) => {
          throw new HttpError(503, `the list of remembered browsers cannot be saved: ${errorMessage(error)}`);
        });
      } finally {
        // A session may have begun by the list as it was before.
        this.endForgotten();
      }
    });
  }
}

/** Why browsers cannot be remembered with these settings, or on this system; null: they can. */
export function bookmarkProblem(
  when: "asked" | "always" | "never",
  isUserChecked: boolean,
): HttpError | null {
  if (!isUserChecked) return failure(409, "bookmark-user-unknown");
  return when === "always" ? null : failure(409, "bookmark-port-closed", when);
}

export type NewBrowser = Pick<StoredBrowser, "name" | "public_key" | "origin">;

/** 64 bits of the key's SHA-256, in groups: 3fa2 91bc 77d0 1234 */
function fingerprintOf(publicKey: string): string {
  const hash = createHash("sha256").update(Buffer.from(publicKey, "base64url")).digest("hex");
  return (hash.slice(0, 16).match(/.{4}/g) ?? []).join(" ");
}

/** null: it is not a public key of ECDSA P-256. */
function readPublicKey(publicKey: string): KeyObject | null {
  try {
    const key = createPublicKey({ key: Buffer.from(publicKey, "base64url"), format: "der", type: "spki" });
    const isP256 = key.asymmetricKeyDetails?.namedCurve === "prime256v1";
    // A key has one spelling, so that it is never remembered twice.
    const isExact = key.export({ format: "der", type: "spki" }).toString("base64url") === publicKey;
    return isP256 && isExact ? key : null;
  } catch {
    // Whatever it is, it is no key.
    return null;
  }
}

/** WebCrypto writes both numbers of a signature one after the other, without DER around them. */
function isSignature(key: KeyObject, text: string, signature: string): boolean {
  const bytes = Buffer.from(signature, "base64url");
  return verify("sha256", Buffer.from(text), { key, dsaEncoding: "ieee-p1363" }, bytes);
}

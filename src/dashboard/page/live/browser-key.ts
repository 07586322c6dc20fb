import { signedText } from "../../bookmarks/signed-text.ts";
import { type Client, Failed, messageOf } from "./client.ts";
import type { Session } from "./session.ts";

/** By which keybearer knows this browser again. A script can sign with the private half, but not read it. */
export interface BrowserKey {
  /** SPKI in base64url. */
  readonly publicKey: string;
  readonly privateKey: CryptoKey;
}

const CURVE = { name: "ECDSA", namedCurve: "P-256" };
const DATABASE = "keybearer";
const STORE = "keys";
const IN_USE = "browser";
/** The newest. keybearer may remember it although the answer that says so was lost. */
const NEXT = "next";
const ATTEMPTS = 5;
const RETRY_MS = 1000;

/** Throws where this browser cannot keep a key. The one in use stays in use. */
export async function makeBrowserKey(): Promise<BrowserKey> {
  const { publicKey, privateKey } = await crypto.subtle.generateKey(CURVE, false, ["sign", "verify"]);
  const key = { publicKey: base64url(await crypto.subtle.exportKey("spki", publicKey)), privateKey };
  await withStore("readwrite", (store) => store.put(key, NEXT));
  return key;
}

/** What this browser may be remembered by at this address. */
export async function readBrowserKeys(): Promise<readonly BrowserKey[]> {
  const keys = await Promise.all([IN_USE, NEXT].map(readKey));
  return keys.filter((key) => key !== null);
}

/** From now on this one is in use. */
export async function takeIntoUse(key: BrowserKey): Promise<void> {
  await withStore("readwrite", (store) => {
    store.put(key, IN_USE);
    return store.delete(NEXT);
  }).catch(() => {
    // The next session is asked for with both keys.
  });
}

/** Gets a session for a remembered browser. Returns the problem; null: there is a session, or no key. */
export async function openByBookmark(client: Client, session: Session): Promise<string | null> {
  let problem: string | null = null;
  for (const name of [IN_USE, NEXT]) {
    const key = await readKey(name);
    if (key === null) continue;
    try {
      session.keep(await exchangeOnceBack(client, key));
    } catch (error) {
      // Perhaps no person ever confirmed the next one.
      if (name === IN_USE) problem = messageOf(error);
      if (error instanceof Failed && error.status === 404) continue;
      break;
    }
    if (name === NEXT) await takeIntoUse(key);
    return null;
  }
  return problem;
}

/** A connection can break while keybearer restarts. */
async function exchangeOnceBack(client: Client, key: BrowserKey): Promise<string> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await exchange(client, key);
    } catch (error) {
      const isGone = error instanceof Failed && error.kind === "gone";
      if (!isGone || attempt === ATTEMPTS) throw error;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

/** Signs a new challenge. Returns the token of a session. */
async function exchange(client: Client, { publicKey, privateKey }: BrowserKey): Promise<string> {
  const { challenge } = await client.challenge(publicKey);
  const text = new TextEncoder().encode(signedText(location.origin, challenge));
  const signature = await crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, privateKey, text);
  const { token } = await client.open({ public_key: publicKey, challenge, signature: base64url(signature) });
  return token;
}

/** null: there is none, or this browser forbids storage, so that it was never remembered. */
async function readKey(name: string): Promise<BrowserKey | null> {
  const reading = withStore<BrowserKey | undefined>("readonly", (store) => store.get(name));
  return (await reading.catch(() => null)) ?? null;
}

async function withStore<T>(
  mode: IDBTransactionMode,
  ask: (store: IDBObjectStore) => IDBRequest<T>,
): Promise<T> {
  const opening = indexedDB.open(DATABASE, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
  const database = await resultOf(opening);
  try {
    const transaction = database.transaction(STORE, mode);
    const asked = ask(transaction.objectStore(STORE));
    // A change that was made can still fail to be stored.
    await new Promise<void>((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error);
    });
    return asked.result;
  } finally {
    database.close();
  }
}

function resultOf<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function base64url(bytes: ArrayBuffer): string {
  const text = btoa(String.fromCharCode(...new Uint8Array(bytes)));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

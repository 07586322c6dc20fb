import { signedText } from "../../bookmarks/signed-text.ts";
import type { Client } from "./client.ts";
import { Failed, wordsOf } from "./failed.ts";
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
const ATTEMPTS = 5;
const RETRY_MS = 1000;

/** Throws where this browser cannot keep a key. The one in use stays in use. */
export async function makeBrowserKey(): Promise<BrowserKey> {
  const { publicKey, privateKey } = await crypto.subtle.generateKey(CURVE, false, ["sign", "verify"]);
  const key = { publicKey: base64url(await crypto.subtle.exportKey("spki", publicKey)), privateKey };
  await keep(key, "next");
  return key;
}

/** null: this browser was never remembered at this address. */
export async function readBrowserKey(): Promise<BrowserKey | null> {
  return (await withStore<BrowserKey | undefined>("readonly", (store) => store.get(IN_USE))) ?? null;
}

/** From now on this one is in use. */
export function takeIntoUse(key: BrowserKey): Promise<void> {
  return keep(key, IN_USE);
}

/** Gets a session for a remembered browser. Returns what keybearer said against it; null: nothing, or there is no key. */
export async function openByBookmark(client: Client, session: Session): Promise<string | null> {
  // A browser that forbids storage was never remembered.
  const key = await readBrowserKey().catch(() => null);
  if (key === null) return null;
  for (let attempt = 1; ; attempt += 1) {
    try {
      session.keep(await exchange(client, key));
      return null;
    } catch (error) {
      // A connection can break while keybearer restarts.
      const isGone = error instanceof Failed && error.kind === "gone";
      if (!isGone || attempt === ATTEMPTS) return wordsOf(error);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

/** Signs a new challenge. Returns the token of a session. */
async function exchange(client: Client, { publicKey, privateKey }: BrowserKey): Promise<string> {
  const { challenge } = await client.challenge(publicKey);
  const text = new TextEncoder().encode(signedText(location.origin, challenge));
  const signature = await crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, privateKey, text);
  const { token } = await client.prove({ public_key: publicKey, challenge, signature: base64url(signature) });
  return token;
}

async function keep(key: BrowserKey, name: string): Promise<void> {
  await withStore("readwrite", (store) => store.put(key, name));
}

async function withStore<T>(
  mode: IDBTransactionMode,
  ask: (store: IDBObjectStore) => IDBRequest<T>,
): Promise<T> {
  const opening = indexedDB.open(DATABASE, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
  const database = await resultOf(opening);
  try {
    return await resultOf(ask(database.transaction(STORE, mode).objectStore(STORE)));
  } finally {
    // Waits for the transaction.
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

import { signedText } from "../../bookmarks/signed-text.ts";
import type { Stored } from "../stored.ts";
import { type Client, Failed, messageOf, pause } from "./client.ts";

/** By which keybearer knows this browser again. A script can sign with the private half, but not read it. */
export interface BrowserKey {
  /** SPKI in base64url. */
  readonly publicKey: string;
  readonly privateKey: CryptoKey;
}

const CURVE = { name: "ECDSA", namedCurve: "P-256" };
const DATABASE = "keybearer";
const STORE = "keys";
const KEY = "browser";
const ATTEMPTS = 5;
const RETRY_MS = 1000;

/** Throws where this browser cannot keep a key. It replaces the one before, which keybearer does not remember any more. */
export async function makeBrowserKey(): Promise<BrowserKey> {
  const { publicKey, privateKey } = await crypto.subtle.generateKey(CURVE, false, ["sign", "verify"]);
  const key = { publicKey: base64url(await crypto.subtle.exportKey("spki", publicKey)), privateKey };
  await withStore("readwrite", (store) => store.put(key, KEY));
  return key;
}

/** null: there is none, or this browser forbids storage, so that it was never remembered. */
export async function readBrowserKey(): Promise<BrowserKey | null> {
  const reading = withStore<BrowserKey | undefined>("readonly", (store) => store.get(KEY));
  return (await reading.catch(() => null)) ?? null;
}

/** Gets a session for a remembered browser. Returns the problem; null: there is a session, or no key. */
export async function openByBookmark(client: Client, session: Stored): Promise<string | null> {
  const key = await readBrowserKey();
  if (key === null) return null;
  try {
    session.write(await exchangeOnceBack(client, key));
    return null;
  } catch (error) {
    return messageOf(error);
  }
}

/** A connection can break while keybearer restarts. */
async function exchangeOnceBack(client: Client, key: BrowserKey): Promise<string> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await exchange(client, key);
    } catch (error) {
      const isGone = error instanceof Failed && error.kind === "gone";
      if (!isGone || attempt === ATTEMPTS) throw error;
      await pause(RETRY_MS);
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

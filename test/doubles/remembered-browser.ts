import { signedText } from "../../src/dashboard/bookmarks/signed-text.ts";
import { type Said, say } from "./dashboard-visit.ts";

/** The key of a browser, as its page makes it. */
export interface BrowserDouble {
  readonly publicKey: string;
  sign(origin: string, challenge: string): Promise<string>;
}

export async function browserDouble(curve = "P-256"): Promise<BrowserDouble> {
  const { subtle } = globalThis.crypto;
  const { publicKey, privateKey } = await subtle.generateKey({ name: "ECDSA", namedCurve: curve }, false, [
    "sign",
    "verify",
  ]);
  return {
    publicKey: Buffer.from(await subtle.exportKey("spki", publicKey)).toString("base64url"),
    async sign(origin, challenge) {
      const text = new TextEncoder().encode(signedText(origin, challenge));
      const signature = await subtle.sign({ name: "ECDSA", hash: "SHA-256" }, privateKey, text);
      return Buffer.from(signature).toString("base64url");
    },
  };
}

type Headers = Readonly<Record<string, string>>;

const JSON_HEADERS = { "content-type": "application/json" };

export function askChallenge(url: string, publicKey: string, headers: Headers = {}): Promise<Said> {
  const body = JSON.stringify({ public_key: publicKey });
  return say(url, "/api/challenge", { method: "POST", headers: { ...JSON_HEADERS, ...headers }, body });
}

export interface ProofBody {
  readonly public_key: string;
  readonly challenge: string;
  readonly signature: string;
}

export function prove(url: string, proof: ProofBody, headers: Headers = {}): Promise<Said> {
  const body = JSON.stringify(proof);
  return say(url, "/api/session", { method: "POST", headers: { ...JSON_HEADERS, ...headers }, body });
}

/** What the page sends once it has a challenge. */
export async function proofOf(url: string, { publicKey, sign }: BrowserDouble): Promise<ProofBody> {
  const { challenge } = (await askChallenge(url, publicKey)).json<{ challenge: string }>();
  return { public_key: publicKey, challenge, signature: await sign(new URL(url).origin, challenge) };
}

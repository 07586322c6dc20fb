import { createHmac, createSecretKey, type KeyObject, timingSafeEqual } from "node:crypto";
import type { Secret } from "../core/secret.ts";

/**
 * Signs what a machine says in the store with `shared.secret`, which all machines have and the store has not: HMAC-SHA256 of
 * the kind of statement, the store's prefix, the machine's id, and the whole text.
 *
 * So nothing can be changed, or shown as another machine's. A record's text has its id, tool, gateway and key: shown again, also in
 * another store with the same secret, it is the same true record, and lines apply by id. An older correction of one brings
 * back older amounts, which match nothing else. An old presence is as if the machine were away since: the mirror says so, and
 * no active alarm ends. A rotated key that it names is only a reason to ask the gateway whether it refuses that key.
 */
export class Signer {
  /** Differs between two secrets. */
  readonly id: string;
  readonly #key: KeyObject;
  readonly #prefix: string;

  private constructor(key: KeyObject, prefix: string) {
    this.#key = key;
    this.#prefix = prefix;
    this.id = this.sign("id", "", "").slice(0, 16);
  }

  /** null: the secret is so short that it could be guessed from a signature. */
  static of(secret: Secret, prefix: string): Signer | null {
    const bytes = Buffer.from(secret.reveal());
    return bytes.length < MIN_SECRET ? null : new Signer(createSecretKey(bytes), prefix);
  }

  sign(kind: "id" | "record" | "presence", machineId: string, text: string): string {
    const signed = JSON.stringify(["keybearer 1", kind, this.#prefix, machineId, text]);
    return createHmac("sha256", this.#key).update(signed).digest("hex");
  }

  isSigned(kind: "record" | "presence", machineId: string, text: string, signature: string): boolean {
    const expected = Buffer.from(this.sign(kind, machineId, text));
    const found = Buffer.from(signature);
    return found.length === expected.length && timingSafeEqual(found, expected);
  }
}

/** Characters. `openssl rand -hex 32` prints 64. */
export const MIN_SECRET = 32;

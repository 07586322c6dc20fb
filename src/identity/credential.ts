/** The slots in which clients carry a credential. Which one they use is not predictable by protocol. */
export const CREDENTIAL_HEADERS = ["authorization", "x-api-key", "api-key", "x-goog-api-key"] as const;

const SCHEME = /^bearer(?:\s+|$)/i;

export type CredentialHeader = (typeof CREDENTIAL_HEADERS)[number];

export interface Credential {
  readonly slot: CredentialHeader | "the address";
  readonly value: string;
}

/** What a request shows for itself, slot by slot. Underscore spellings are never read: they are dropped on the way. */
export function readCredentials(
  headers: Readonly<Record<string, string | string[] | undefined>>,
  inAddress: string | null,
): Credential[] {
  const found: Credential[] = [];
  if (inAddress !== null) found.push({ slot: "the address", value: inAddress });
  for (const slot of CREDENTIAL_HEADERS) {
    const raw = headers[slot];
    if (typeof raw !== "string") continue;
    // Some people paste the scheme along with the token into a field that needs none.
    const value = raw.replace(SCHEME, "").trim();
    if (value !== "") found.push({ slot, value });
  }
  return found;
}

/** A name that a careless server reads as a credential slot, whatever its dashes, underscores and case. */
export function isCredentialName(name: string): boolean {
  return LIKE_A_SLOT.test(name);
}

const LIKE_A_SLOT = /^[-_]*(?:authorization|(?:x[-_](?:goog[-_])?)?api[-_]key)[-_]*$/i;

import type { Token, Tool } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { advice } from "../core/advice.ts";
import { looksLikeCredential } from "../core/redact.ts";
import { type Refusal, refuse } from "../core/refusal.ts";
import { hashToken, tokenShape } from "../core/token.ts";
import { localTime } from "../core/units.ts";
import type { TokenUses } from "./token-uses.ts";

/** The headers in which clients send a credential. The protocol does not determine which one a client uses. */
export const CREDENTIAL_HEADERS = ["authorization", "x-api-key", "api-key", "x-goog-api-key"] as const;

interface Credential {
  readonly slot: (typeof CREDENTIAL_HEADERS)[number] | "the address";
  readonly value: string;
}

const BEARER = /^bearer(?:\s+|$)/i;

/** The credentials in a request. Underscore spellings are not read; they are dropped before the request is forwarded. */
export function readCredentials(
  headers: Readonly<Record<string, string | string[] | undefined>>,
  tokenInPath: string | null,
): Credential[] {
  const found: Credential[] = [];
  if (tokenInPath !== null) found.push({ slot: "the address", value: tokenInPath });
  for (const slot of CREDENTIAL_HEADERS) {
    const raw = headers[slot];
    if (typeof raw !== "string") continue;
    // In every header: people paste "Bearer kb_…" into fields that need only the token.
    const value = raw.replace(BEARER, "").trim();
    if (value !== "") found.push({ slot, value });
  }
  return found;
}

const LIKE_A_CREDENTIAL_HEADER = /^[-_]*(?:authorization|(?:x[-_](?:goog[-_])?)?api[-_]key)[-_]*$/i;

/** Whether a careless server reads this header as a credential, whatever its dashes, underscores and case. */
export function isCredentialName(name: string): boolean {
  return LIKE_A_CREDENTIAL_HEADER.test(name);
}

export type Identified =
  | {
      readonly ok: true;
      readonly tool: Tool;
      /** The program that owns the connection; null: not looked up. */
      readonly program: string | null;
      /** The token that it showed; null: the program alone was enough. */
      readonly token: Token | null;
    }
  | {
      readonly ok: false;
      readonly refusal: Refusal;
      /** The request has no token and no key, at most a placeholder. */
      readonly anonymous: boolean;
    };

/** Finds the tool by its token. Reads the snapshot only, and for a token that no tool has, when it was revoked. */
export function identifyByToken(
  snapshot: Snapshot,
  credentials: readonly Credential[],
  tokenUses: Pick<TokenUses, "revokedAt">,
): Identified {
  const [first] = credentials;
  if (first === undefined) {
    const message = `the request carries no token. make one for this client: ${advice.newToken("<tool>")}`;
    return refused("token-missing", message, true);
  }
  const other = credentials.find(({ value }) => value !== first.value);
  if (other !== undefined) return twoCredentials(first, other);
  switch (tokenShape(first.value)) {
    case "complete":
      return toolOfToken(snapshot, first, tokenUses);
    case "incomplete":
      return refused(
        "token-incomplete",
        `the token in ${first.slot} is incomplete. copy it again, or make another one: ${advice.newToken("<tool>")}`,
      );
    case "other":
      return looksLikeCredential(first.value) ? realKey(first) : unknownToken(first, true);
  }
}

function toolOfToken(
  snapshot: Snapshot,
  credential: Credential,
  tokenUses: Pick<TokenUses, "revokedAt">,
): Identified {
  const hash = hashToken(credential.value);
  const tool = snapshot.toolByToken(hash);
  // The lookup compares SHA-256 digests. A caller cannot choose them, so its timing says nothing about a token.
  if (tool === null) {
    const revokedAt = tokenUses.revokedAt(hash);
    return revokedAt === null ? unknownToken(credential) : revokedToken(credential, revokedAt);
  }
  if (credential.slot === "the address" && !tool.tokenInUrl) {
    return refused(
      "token-unknown",
      `tool ${tool.name} does not accept its token in the address. ` +
        `send it in a header, or set tools.${tool.name}.token_in_url: true`,
    );
  }
  const token = tool.tokens.find((one) => one.hash === hash) ?? null;
  return { ok: true, tool, program: null, token };
}

function twoCredentials(first: Credential, other: Credential): Identified {
  const extra = tokenShape(other.value) === "other" ? other : first;
  return refused(
    "foreign-key",
    `the request carries two different credentials, and the one in ${extra.slot} is not the token. ` +
      `remove it from the tool's settings or environment`,
  );
}

function realKey({ slot }: Credential): Identified {
  return refused(
    "foreign-key",
    `the request carries a real key in ${slot}, not a keybearer token. it was not forwarded. ` +
      `use a token of the tool instead: ${advice.newToken("<tool>")}`,
  );
}

function unknownToken({ slot }: Credential, anonymous = false): Identified {
  const message = `no tool has the token in ${slot}. make one for this client: ${advice.newToken("<tool>")}`;
  return refused("token-unknown", message, anonymous);
}

function revokedToken({ slot }: Credential, at: number): Identified {
  const when = localTime(at).slice(0, 16);
  return refused(
    "token-unknown",
    `the token in ${slot} was revoked, ${when}. make another one for this client: ${advice.newToken("<tool>")}`,
  );
}

function refused(code: Refusal["code"], message: string, anonymous = false): Identified {
  return { ok: false, refusal: refuse(code, message), anonymous };
}

import { hash, randomBytes } from "node:crypto";

/*
 * A local token is `kb_`, 256 random bits and a checksum. The checksum distinguishes an incomplete copy from a token that
 * was never issued. A token is worthless on another machine, and only its SHA-256 is stored.
 */
const PREFIX = "kb_";
const RANDOM_LENGTH = 43;
const CHECKSUM_LENGTH = 6;

export function makeToken(): string {
  const random = randomBytes(32).toString("base64url");
  return PREFIX + random + checksum(random);
}

/** complete: the checksum is right, though no tool may have this token. other: not a keybearer token at all. */
type TokenShape = "complete" | "incomplete" | "other";

export function tokenShape(text: string): TokenShape {
  if (!text.startsWith(PREFIX)) return "other";
  const body = text.slice(PREFIX.length);
  if (body.length !== RANDOM_LENGTH + CHECKSUM_LENGTH) return "incomplete";
  if (!/^[A-Za-z0-9_-]+$/.test(body)) return "incomplete";
  return checksum(body.slice(0, RANDOM_LENGTH)) === body.slice(RANDOM_LENGTH) ? "complete" : "incomplete";
}

export function hashToken(token: string): string {
  return hash("sha256", token, "hex");
}

function checksum(random: string): string {
  return hash("sha256", `keybearer token ${random}`, "base64url").slice(0, CHECKSUM_LENGTH);
}

/** Something that looks like a token, also in the middle of a word. */
const TOKEN_SHAPE = /kb_[A-Za-z0-9_-]{16,}/g;

export function holdsToken(text: string): boolean {
  return text.search(TOKEN_SHAPE) !== -1;
}

export function redactTokens(text: string): string {
  return text.replace(TOKEN_SHAPE, "[hidden]");
}

import { hash, randomBytes } from "node:crypto";

/**
 * A local token: `kb_`, 256 random bits, and a checksum, so that a token copied incompletely is told apart from one
 * that nobody made. Worthless off this machine. Only its SHA-256 is kept.
 */
const PREFIX = "kb_";
const RANDOM_LENGTH = 43;
const CHECKSUM_LENGTH = 6;

export function makeToken(): string {
  const random = randomBytes(32).toString("base64url");
  return PREFIX + random + checksum(random);
}

/** complete: somebody made it, though perhaps not for this configuration. other: no token of ours at all. */
export type TokenShape = "complete" | "incomplete" | "other";

/** Whether it looks like one, whatever its checksum. */
export function hasTokenForm(text: string): boolean {
  return text.length === PREFIX.length + RANDOM_LENGTH + CHECKSUM_LENGTH && text.startsWith(PREFIX);
}

export function tokenShape(text: string): TokenShape {
  if (!text.startsWith(PREFIX)) return "other";
  const body = text.slice(PREFIX.length);
  const random = body.slice(0, RANDOM_LENGTH);
  const whole = hasTokenForm(text) && /^[A-Za-z0-9_-]+$/.test(body);
  return whole && checksum(random) === body.slice(RANDOM_LENGTH) ? "complete" : "incomplete";
}

export function hashToken(token: string): string {
  return hash("sha256", token, "hex");
}

function checksum(random: string): string {
  return hash("sha256", `keybearer token ${random}`, "base64url").slice(0, CHECKSUM_LENGTH);
}

import { mergeSpans, type Span } from "./spans.ts";

/* Hides what looks like a credential in a text. secret.ts hides the keys that are known. */

/** What services and gateways begin their keys with, and the header of a JWT. It is public, and ordinary texts contain it. */
const KEY_PREFIX =
  /^(?:(?:sk|pk|rk|gsk|xai|ghp|gho|github_pat|hf|pplx|nvapi|r8|kb)[-_](?:(?:ant-(?:api|admin)\d\d|proj|or-v\d|svcacct|admin)[-_])?|AIza|eyJ[A-Za-z0-9_-]*\.)/;

/** Where an address leads. Of an address that is a secret, only what follows is one. */
const ADDRESS_PREFIX = /^https?:\/\/[^/?#]*\/?/;

/** The part of a key that is secret. */
export function keyBody(key: string): string {
  return key.replace(KEY_PREFIX, "").replace(ADDRESS_PREFIX, "");
}

/** Strings of these shapes are credentials of some service. */
const CREDENTIAL_SHAPE =
  /\b(?:sk|pk|rk|gsk|xai|ghp|gho|github_pat|hf|AIza|AKIA|ya29|pplx|nvapi|r8|kb)[-_][A-Za-z0-9._-]{6,}|\bAIza[A-Za-z0-9_-]{10,}|\beyJ[A-Za-z0-9._-]{20,}/g;
const LONG_RUN = /[A-Za-z0-9_+/=-]{24,}/g;

/** A port and a path in an address: 8080/v1/chat/completions. */
const PLAIN_PATH = /^(?:(?:\d{1,5}|v\d[a-z0-9]{0,7}|[a-z]{1,15}(?:-[a-z]{1,15})*)?(?:\/|$))+$/;

/** Model names are long runs too, but of short words: claude-sonnet-4-5-20250929 is not a secret. */
function looksRandom(run: string): boolean {
  if (run.includes("/") && PLAIN_PATH.test(run)) return false;
  if (/[a-z]/.test(run) && /[A-Z]/.test(run) && /[0-9]/.test(run)) return true;
  return run.split(/[-_]/).some((part) => part.length >= 16 && /[0-9]/.test(part));
}

/** The user name in a URL may be a secret like the password: some services take a token there. */
const USER_INFO = /(?<=:\/\/)[^\s/?#"'\\]+(?=@)/g;

/** Where a text of unknown structure, such as a broken line, looks like a credential. */
export function credentialSpans(text: string): Span[] {
  const shaped = [...text.matchAll(CREDENTIAL_SHAPE), ...text.matchAll(USER_INFO)];
  for (const run of text.matchAll(LONG_RUN)) {
    // A token's hash is not secret, and people compare it.
    const isHash = text.slice(Math.max(0, run.index - 7), run.index) === "sha256:" && HEX.test(run[0]);
    if (!isHash && looksRandom(run[0])) shaped.push(run);
  }
  return mergeSpans(shaped.map((match) => ({ from: match.index, to: match.index + match[0].length })));
}

const HEX = /^[0-9a-f]+$/i;

/** Hides everything that looks like a credential. */
export function redactCredentials(text: string): string {
  let shown = "";
  let at = 0;
  for (const { from, to } of credentialSpans(text)) {
    shown += `${text.slice(at, from)}[hidden]`;
    at = to;
  }
  return shown + text.slice(at);
}

/** Hides only what begins as keys do, so that other long ids stay readable. */
export function redactKeyShapes(text: string): string {
  return text.replace(CREDENTIAL_SHAPE, "[hidden]");
}

/** Whether redactKeyShapes would change nothing. */
export function isFreeOfKeyShapes(text: string): boolean {
  return text.search(CREDENTIAL_SHAPE) === -1;
}

export function looksLikeCredential(text: string): boolean {
  return credentialSpans(text).length > 0;
}

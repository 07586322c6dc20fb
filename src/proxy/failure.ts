import { contentKind } from "../metering/protocols.ts";
import { type Refusal, refuse } from "../refusal.ts";
import type { JournalState } from "../usage/journal/journal.ts";
import type { Phase } from "./deadline.ts";

/* What went wrong between keybearer and the gateway: as a refusal to the client, and in a few words for `status`. */

/** The journal tries the disk every second. */
const LOG_RETRY_S = 5;

const UNREACHABLE: Readonly<Record<string, string>> = {
  ECONNREFUSED: "nothing listens there",
  ENOTFOUND: "its name is not known to DNS",
  EAI_AGAIN: "DNS did not answer",
  EHOSTUNREACH: "there is no way to that host",
  ENETUNREACH: "there is no network",
  ETIMEDOUT: "it did not answer the connection",
  CERT_NOT_YET_VALID: "its certificate is not valid yet",
  CERT_HAS_EXPIRED: "its certificate has expired",
  DEPTH_ZERO_SELF_SIGNED_CERT: "its certificate is self-signed",
  SELF_SIGNED_CERT_IN_CHAIN: "its certificate chain is self-signed",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "its certificate cannot be verified",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "its certificate cannot be verified",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is for another name",
};

const CLOSED = /^(?:ECONNRESET|EPIPE|ERR_STREAM_PREMATURE_CLOSE)$/;

/** @param connected the gateway may have begun to work on the request. */
export function gatewayFailure(
  error: NodeJS.ErrnoException,
  gateway: string,
  origin: string,
  connected: boolean,
): Refusal {
  const code = error.code ?? "";
  const where = `gateway ${gateway} (${origin})`;
  const broken = (what: string) =>
    refuse("gateway-broken", `${where} ${what} before it answered. try again; see: keybearer status`);
  if (code.startsWith("HPE_")) return broken("answered something that is not HTTP");
  if (CLOSED.test(code)) return broken("closed the connection");
  if (connected) return broken("was lost");
  return unreachable(where, whyUnreachable(error));
}

/** Why no connection could be made. */
export function whyUnreachable(error: NodeJS.ErrnoException): string {
  const code = error.code ?? "";
  const known = UNREACHABLE[code];
  if (known !== undefined) return known;
  // OpenSSL's own errors, such as a server that speaks plain http or an old TLS.
  return isTlsError(code) ? "TLS with it failed" : error.message;
}

/** An error of OpenSSL, or of the check of a certificate. */
export function isTlsError(code: string): boolean {
  return /^ERR_SSL|^ERR_TLS|^EPROTO$|CERT|SIGNATURE/.test(code);
}

function unreachable(where: string, why: string): Refusal {
  return refuse("gateway-unreachable", `${where} cannot be reached: ${why}. check base_url and the network`);
}

export function gatewayTimeout(phase: Phase, ms: number, gateway: string, origin: string): Refusal {
  const what = phase === "connect" ? "could not be connected to" : "did not answer";
  return refuse(
    "gateway-timeout",
    `gateway ${gateway} (${origin}) ${what} within ${inSeconds(ms)} (gateways.${gateway}.timeouts.${phase})`,
  );
}

const MAX_WORDS = 160;

/** Why a request failed at the gateway, for `status`. */
export function failureInWords(
  error: NodeJS.ErrnoException,
  { connected, answered }: { readonly connected: boolean; readonly answered: boolean },
): string {
  const code = error.code ?? "";
  const words = whatFailed(error, connected, answered).slice(0, MAX_WORDS);
  return code === "" || words.includes(code) ? words : `${words} (${code})`;
}

function whatFailed(error: NodeJS.ErrnoException, connected: boolean, answered: boolean): string {
  const code = error.code ?? "";
  if (code.startsWith("HPE_")) return "its answer is not HTTP";
  if (answered) return "its answer was cut off";
  if (CLOSED.test(code)) return "it closed the connection without an answer";
  if (connected) return "the connection was lost before it answered";
  return whyUnreachable(error);
}

/** The same for a timeout. */
export function timeoutInWords(phase: Phase, ms: number): string {
  switch (phase) {
    case "connect":
      return `no connection within ${inSeconds(ms)}`;
    case "first_byte":
      return `no answer within ${inSeconds(ms)}`;
    case "idle":
      return `its answer stopped for ${inSeconds(ms)}`;
  }
}

/** From 520 on they are Cloudflare's, for a server that is down or does not answer. */
const FRONT_PROXY_STATUSES: readonly number[] = [502, 503, 504, 520, 521, 522, 523, 524, 525, 526, 530];

/**
 * The response of nginx, Caddy or Cloudflare in front of a gateway that is down; null: the gateway itself responded.
 * Gateways use the same statuses for a model or account without capacity, but always with JSON.
 */
export function frontProxyFailure(status: number, contentType: string): string | null {
  if (!FRONT_PROXY_STATUSES.includes(status)) return null;
  const kind = contentKind(contentType);
  if (kind === "json" || kind === "events") return null;
  return `a proxy in front of it answers ${status}`;
}

export function uploadStopped(ms: number): Refusal {
  return refuse("bad-request", `the body of the request stopped coming for ${inSeconds(ms)}`);
}

/** What cannot be recorded is not sent: it could not be compared with the bill. */
export function logUnavailable({ trouble }: Pick<JournalState, "trouble">): Refusal {
  const why = trouble === null ? "" : `: ${trouble.message}`;
  return refuse(
    "log-unavailable",
    `the usage log cannot be written${why}. nothing was sent to the gateway. see: keybearer status`,
    LOG_RETRY_S,
  );
}

/** By then some of the bodies in memory were sent. */
const OVERLOADED_RETRY_S = 2;

export function overloaded(): Refusal {
  const message = "too many large requests are in memory at once. nothing was sent to the gateway";
  return refuse("overloaded", message, OVERLOADED_RETRY_S);
}

export function otherUser(): Refusal {
  const message =
    "this connection belongs to another user of this machine. only the user that runs keybearer may call it: run the tool as that user";
  return refuse("other-user", message);
}

function inSeconds(ms: number): string {
  return `${Math.round(ms / 100) / 10} s`;
}

export function shuttingDown(): Refusal {
  return refuse("shutting-down", "keybearer is stopping. try again in a moment", 2);
}

import type { Owner } from "../config/schema.ts";
import { advice } from "../core/advice.ts";
import { type Refusal, refuse } from "../core/refusal.ts";
import { contentKind } from "../metering/protocols.ts";
import type { JournalState } from "../usage/journal/journal.ts";
import { isNetworkError, OutboundProxyError } from "./agents.ts";
import type { Phase } from "./deadline.ts";
import type { UpstreamRequest } from "./upstream.ts";

/* What went wrong between keybearer and the gateway: as a refusal for the client, and in a few words for `status`. */

const UNREACHABLE: Readonly<Record<string, string>> = {
  ECONNREFUSED: "nothing listens there",
  ENOTFOUND: "its name is not known to DNS",
  EAI_AGAIN: "DNS did not answer",
  EHOSTUNREACH: "there is no way to that host",
  ENETUNREACH: "there is no network",
  EMFILE: "keybearer has no file descriptor left",
  ENFILE: "this machine has no file descriptor left",
  ETIMEDOUT: "it did not answer the connection",
  ECONNRESET: "it closed the connection before it was made",
  CERT_NOT_YET_VALID: "its certificate is not valid yet",
  CERT_HAS_EXPIRED: "its certificate has expired",
  DEPTH_ZERO_SELF_SIGNED_CERT: "its certificate is self-signed",
  SELF_SIGNED_CERT_IN_CHAIN: "its certificate chain is self-signed",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "its certificate cannot be verified",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "its certificate cannot be verified",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is for another name",
};

/** No connection was made within `timeouts.connect`. */
export class ConnectTimeout extends Error {
  constructor(ms: number) {
    super(describeTimeout("connect", ms));
  }
}

/** Whether a later attempt may connect, such as after a restart of the gateway. With a wrong certificate it would not. */
export function isOutage(error: NodeJS.ErrnoException): boolean {
  if (error instanceof OutboundProxyError) return error.isOutage;
  return error instanceof ConnectTimeout || isNetworkError(error.code ?? "");
}

type Target = Pick<UpstreamRequest, "gateway" | "address">;

function inWords({ gateway, address }: Target): string {
  return `gateway ${gateway.name} (${address.origin})`;
}

/** No response came. @param connected there was a connection */
export function gatewayFailed(error: NodeJS.ErrnoException, upstream: Target, connected: boolean): Refusal {
  return connected ? gatewayBroken(error, upstream) : gatewayUnreachable(error, upstream, 0);
}

/** There was a connection, so the gateway may have begun to work on the request. */
function gatewayBroken(error: NodeJS.ErrnoException, upstream: Target): Refusal {
  const message = `${inWords(upstream)}: ${howItBroke(error, false)}. try again; see: ${advice.status()}`;
  return refuse("gateway-broken", message);
}

/** No connection was made. @param triedMs 0: it was tried once. */
export function gatewayUnreachable(error: NodeJS.ErrnoException, upstream: Target, triedMs: number): Refusal {
  if (error.code === "EMFILE" || error.code === "ENFILE") {
    const next = "send fewer requests at once, or raise the limit of open files (ulimit -n)";
    return refuse("overloaded", `${unreachableProblem(error)}. nothing was sent to the gateway. ${next}`, 2);
  }
  const tried = triedMs === 0 ? "" : ` (tried for ${inSeconds(triedMs)})`;
  const message = `${inWords(upstream)} cannot be reached${tried}: ${unreachableProblem(error)}. check base_url and the network`;
  return refuse("gateway-unreachable", message);
}

/** Why a request failed at the gateway, for `status`. */
export function describeProblem(
  error: NodeJS.ErrnoException,
  { connected, answered }: { readonly connected: boolean; readonly answered: boolean },
): string {
  const code = error.code ?? "";
  const problem = connected ? howItBroke(error, answered) : unreachableProblem(error);
  const what = problem.slice(0, MAX_DESCRIPTION);
  return code === "" || what.includes(code) ? what : `${what} (${code})`;
}

const MAX_DESCRIPTION = 160;

function howItBroke(error: NodeJS.ErrnoException, answered: boolean): string {
  const code = error.code ?? "";
  if (code.startsWith("HPE_")) return "its answer is not HTTP";
  if (answered) return "its answer was cut off";
  if (/^(?:ECONNRESET|EPIPE|ERR_STREAM_PREMATURE_CLOSE)$/.test(code)) {
    return "it closed the connection without an answer";
  }
  return "the connection was lost before it answered";
}

/** Why no connection could be made. */
export function unreachableProblem(error: NodeJS.ErrnoException): string {
  const code = error.code ?? "";
  const known = UNREACHABLE[code];
  if (known !== undefined) return known;
  // OpenSSL's own errors, such as for a server that speaks plain http or an old TLS.
  return isTlsError(code) ? "TLS with it failed" : error.message;
}

/** An error of OpenSSL, or of the check of a certificate. */
export function isTlsError(code: string): boolean {
  return /^ERR_SSL|^ERR_TLS|^EPROTO$|CERT|SIGNATURE/.test(code);
}

export function gatewayTimeout(phase: Exclude<Phase, "connect">, ms: number, upstream: Target): Refusal {
  const setting = `gateways.${upstream.gateway.name}.timeouts.${phase}`;
  const message = `${inWords(upstream)}: ${describeTimeout(phase, ms)} (${setting})`;
  return refuse("gateway-timeout", message);
}

export function describeTimeout(phase: Phase, ms: number): string {
  switch (phase) {
    case "connect":
      return `no connection within ${inSeconds(ms)}`;
    case "first_byte":
      return `no answer within ${inSeconds(ms)}`;
    case "idle":
      return `its answer stopped for ${inSeconds(ms)}`;
  }
}

/** From 520 on they are Cloudflare's own, for a server that is down or does not answer. */
const FRONT_PROXY_STATUSES: readonly number[] = [502, 503, 504, 520, 521, 522, 523, 524, 525, 526, 530];

/**
 * The response of nginx, Caddy or Cloudflare in front of a gateway that is down; null: the gateway itself responded.
 * Gateways use the same statuses for a model or account without capacity, but always with JSON.
 */
export function frontProxyProblem(status: number, contentType: string): string | null {
  if (!FRONT_PROXY_STATUSES.includes(status)) return null;
  const kind = contentKind(contentType);
  if (kind === "json" || kind === "events") return null;
  return `a proxy in front of it answers ${status}`;
}

export function uploadStopped(ms: number): Refusal {
  return refuse("bad-request", `the body of the request stopped coming for ${inSeconds(ms)}`);
}

/** What cannot be recorded is not sent: it could not be compared with the bill. */
export function logUnavailable({ unavailable }: Pick<JournalState, "unavailable">): Refusal {
  const problem = unavailable === null ? "" : `: ${unavailable.problem}`;
  const message = `the usage log cannot be written${problem}. nothing was sent to the gateway. see: ${advice.status()}`;
  return refuse("log-unavailable", message, 5);
}

export function overloaded(): Refusal {
  const message = "too many large requests are in memory at once. nothing was sent to the gateway";
  return refuse("overloaded", message, 2);
}

/** @param owners of the system service; empty: it is a person's own keybearer */
export function otherUser(owners: readonly Owner[]): Refusal {
  const names = owners.map(({ name }) => name).join(", ");
  const who = names === "" ? "the user that runs keybearer" : `an owner of keybearer (${names})`;
  const message = `this connection belongs to another user of this machine. only ${who} may call it: run the tool as that user`;
  return refuse("other-user", message);
}

function inSeconds(ms: number): string {
  return `${Math.round(ms / 100) / 10} s`;
}

import type { Gateway } from "../config/schema.ts";
import { baseUrl } from "../config/values.ts";
import type { Failed } from "../core/display.ts";
import type { Secret } from "../core/secret.ts";
import { momentInWords } from "../limits/format.ts";
import { systemCalendar } from "../limits/windows.ts";
import { cleanText } from "../mirror/consoles/clean-text.ts";
import { OutboundProxyError } from "../proxy/agents.ts";
import { messageInJson } from "../proxy/error-response.ts";
import { isTlsError, unreachableProblem } from "../proxy/failure.ts";
import {
  type Cause,
  type CauseDetail,
  type CauseName,
  causeFor,
  type KeyDetail,
  PLAN_USED_UP,
} from "../proxy/key-health/cause.ts";
import { type UsedUpWindow, windowText } from "../proxy/key-health/key-problem.ts";

/* How a probe can fail, and what `doctor`, `models`, `init`, `tools add` and `rotate` say about it. */

/** The causes of a gateway's refusal, what is known more precisely, and what keeps it from answering at all. */
export type ProbeCause =
  | CauseName
  | "expired"
  | "disabled"
  | "deleted"
  | "html"
  | "dns"
  | "tls"
  | "timeout"
  | "unreachable";

export interface FailedProbe extends Failed {
  readonly cause: ProbeCause;
  /** More than the cause says; null: unknown. */
  readonly detail: CauseDetail | null;
  readonly status: number | null;
  /** There always is something to do about it. */
  readonly next: string;
  /** The gateway refuses the key for this; null: the problem says nothing about the key. */
  readonly refused: RefusalOfKey | null;
  readonly skew: number | null;
}

interface RefusalOfKey {
  readonly cause: Cause;
  /** The gateway's own message; null: it has none. */
  readonly message: string | null;
}

/** The problem without what only the response knows. */
export type ProbeProblem = Omit<FailedProbe, "ok" | "status" | "skew">;

const GATEWAY_CAUSES: readonly ProbeCause[] = [
  "dns",
  "tls",
  "timeout",
  "unreachable",
  "html",
  "wrong-base-url",
];

/** Whether every key would fail like this at the gateway, so that it is asked and reported once. */
export function concernsGateway({ cause }: FailedProbe): boolean {
  return GATEWAY_CAUSES.includes(cause);
}

const COPY_AGAIN =
  "copy the key whole from the console, without spaces or line breaks, or create a new one there";

/** A problem that is visible before anything is sent. */
export function malformedKey(problem: string): ProbeProblem {
  return failed("incomplete-key", `incomplete key: ${problem}`, COPY_AGAIN);
}

export function timedOut(gateway: Gateway, ms: number): ProbeProblem {
  const via = gateway.proxy === null ? "" : `, through the outbound proxy ${gateway.proxy},`;
  return failed(
    "timeout",
    `${named(gateway)}${via} did not answer within ${Math.round(ms / 100) / 10} s`,
    "try again; if it happens again, check base_url, the network and the gateway's status page",
  );
}

export function unreachable(gateway: Gateway, error: NodeJS.ErrnoException): ProbeProblem {
  const code = error.code ?? "";
  const { name } = gateway;
  const problem = `${named(gateway)} cannot be reached: ${unreachableProblem(error)}`;
  if (error instanceof OutboundProxyError)
    return failed(
      "unreachable",
      problem,
      `start that proxy, or change gateways.${name}.proxy in config.yaml`,
    );
  if (code === "ENOTFOUND" || code === "EAI_AGAIN")
    return failed("dns", problem, `check the host name in base_url of gateway ${name}, and the network`);
  if (code === "CERT_HAS_EXPIRED" || code === "CERT_NOT_YET_VALID") {
    const next = "check this machine's clock with: date; if it is right, ask the gateway's operator";
    return failed("tls", problem, next);
  }
  if (isTlsError(code)) {
    const next = `check base_url of gateway ${name}; for a certificate authority of your own set gateways.${name}.ca_file`;
    return failed("tls", problem, next);
  }
  if (code === "ETIMEDOUT") return failed("timeout", problem, "check base_url and the network");
  return failed("unreachable", problem, `check base_url of gateway ${name}, and the network`);
}

export function redirected(gateway: Gateway, status: number): ProbeProblem {
  const problem = `wrong base url: ${gateway.baseUrl}/models answers with a redirect (${status}), which keybearer does not follow with a key`;
  return failed("wrong-base-url", problem, addressAdvice(gateway));
}

export function notAModelList(gateway: Gateway, status: number): ProbeProblem {
  const problem = `wrong base url: ${gateway.baseUrl}/models answers ${status}, but not with a list of models`;
  return failed("wrong-base-url", problem, addressAdvice(gateway));
}

export function webPage(gateway: Gateway, status: number): ProbeProblem {
  const problem = `wrong base url: ${gateway.baseUrl}/models answers with a web page, not with the gateway's API (${status})`;
  return failed("html", problem, addressAdvice(gateway));
}

interface RefusedKey {
  readonly gateway: Gateway;
  readonly cause: Cause;
  readonly status: number;
  /** The gateway's own message, see gatewayMessage. */
  readonly message: string | null;
  /** This key was accepted before. */
  readonly worked: boolean;
  /** The key is shorter than those that such gateways issue. */
  readonly isCut: boolean;
}

export function keyRefused(refusal: RefusedKey): ProbeProblem {
  const { gateway, cause, message, worked, isCut } = refusal;
  const quote = quoted(refusal);
  if (cause.name === "wrong-base-url") {
    const problem = `wrong base url: the gateway does not answer at ${gateway.baseUrl}/models${quote}`;
    return failed("wrong-base-url", problem, addressAdvice(gateway));
  }
  if (cause.name === "unknown" && !cause.concernsKey) {
    const problem = `the key could not be checked: the gateway refuses the list of models${quote}`;
    return failed(
      "unknown",
      problem,
      "requests may still work; the gateway's message says why the list does not",
    );
  }
  if (cause.name === "incomplete-key" && cause.detail === null && isCut) {
    const problem = `incomplete key: it is shorter than such keys are${quote}`;
    return { ...failed("incomplete-key", problem, COPY_AGAIN), refused: { cause, message } };
  }
  // A key that was accepted before is complete, so a gateway that does not know it has deleted it.
  const isDeleted = cause.name === "incomplete-key" && !cause.isAmbiguous && worked;
  return byCause(isDeleted ? causeFor("key-deleted") : cause, quote, message);
}

/** The answer does not say which of several problems the key has, and the gateway cannot be asked until `again`. */
export function keyRefusedUnchecked(refusal: RefusedKey, again: number, now: number): ProbeProblem {
  const refused = keyRefused(refusal);
  const when = momentInWords(again, now, systemCalendar);
  const problem = `${refused.problem}. which of these was not checked: the gateway allows 20 key lookups in 20 minutes, and can be asked again ${when}`;
  return { ...refused, problem };
}

/**
 * The gateway said what is wrong with the key when it was asked about it.
 * @param refusal its answer to the request for its models; null: it listed them
 */
export function brokenKey(
  detail: KeyDetail,
  window: UsedUpWindow | null,
  refusal: Pick<RefusedKey, "status" | "message"> | null,
  now: number,
): ProbeProblem {
  const source = refusal === null ? ", according to the gateway" : quoted(refusal);
  const isPlan = detail === "window-used-up" && window === null;
  const text = byCause(isPlan ? PLAN_USED_UP : causeFor(detail), source, refusal?.message ?? null);
  return window === null ? text : { ...text, problem: `${windowText(window, now)}${source}` };
}

export function betterAddress(address: string): string {
  return `${address} answers: write it as base_url`;
}

/** The gateway's own error message, without the key and safe to print; null: the body has none. */
export function gatewayMessage(text: string, key: Secret): string | null {
  const found = messageInJson(text);
  if (found === null) return null;
  // Redact the decoded text, before it is cut: a gateway can spell the key with escapes.
  return cleanText(key.redactFrom(found));
}

function failed(cause: ProbeCause, problem: string, next: string): ProbeProblem {
  return { cause, detail: null, problem, next, refused: null };
}

const CAUSE_BY_DETAIL: Partial<Record<CauseDetail, ProbeCause>> = {
  "key-disabled": "disabled",
  "key-expired": "expired",
  "key-deleted": "deleted",
};

function byCause(cause: Cause, source: string, message: string | null): ProbeProblem {
  const { name, detail, problem, next } = cause;
  const probeCause = detail === null ? name : (CAUSE_BY_DETAIL[detail] ?? name);
  const refused = cause.concernsKey ? { cause, message } : null;
  return { cause: probeCause, detail, problem: `${problem}${source}`, next, refused };
}

function quoted({ status, message }: Pick<RefusedKey, "status" | "message">): string {
  return message === null ? ` (${status})` : ` (${status}: ${message})`;
}

function addressAdvice(gateway: Gateway): string {
  const checked = baseUrl(gateway.baseUrl);
  if ("problem" in checked) return `${checked.problem}; ${checked.next ?? "see the console"}`;
  return "copy the base url from the console; it ends in /v1 and in no endpoint path";
}

function named({ name, baseUrl }: Gateway): string {
  return `gateway ${name} (${new URL(baseUrl).origin})`;
}

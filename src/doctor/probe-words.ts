import { baseUrl } from "../config/fields/address.ts";
import type { Gateway } from "../config/shape.ts";
import { momentInWords } from "../limits/format.ts";
import { systemCalendar } from "../limits/windows.ts";
import { type Cause, type CauseDetail, causeOfFault, type KeyFault } from "../proxy/cause.ts";
import { isTlsError, whyUnreachable } from "../proxy/failure.ts";
import type { UsedUpWindow } from "./key-facts.ts";
import { causeInWords, windowInWords } from "./key-trouble.ts";
import { parsed } from "./model-list.ts";
import type { ProbeCause, ProbeFailure } from "./probe.ts";

/** A failed probe in words, before it is known when and by which status. */
export type Failed = Omit<ProbeFailure, "status" | "skew">;

function failed(cause: ProbeCause, why: string, next: string, detail: CauseDetail | null = null): Failed {
  return { ok: false, cause, detail, why, next };
}

const COPY = "copy the key whole from the console, without spaces or line breaks, or create a new one there";

/** Seen before anything was sent. */
export function faulty(fault: string): Failed {
  return failed("incomplete-key", `incomplete key: ${fault}`, COPY);
}

export function tooSlow(gateway: Gateway, ms: number): Failed {
  const via = gateway.proxy === null ? "" : `, through the outbound proxy ${gateway.proxy},`;
  return failed(
    "timeout",
    `${where(gateway)}${via} did not answer within ${Math.round(ms / 100) / 10} s`,
    "try again; if it stays so, check base_url, the network and the gateway's own status page",
  );
}

export function outOfReach(gateway: Gateway, error: NodeJS.ErrnoException): Failed {
  const code = error.code ?? "";
  const { name } = gateway;
  const why = `${where(gateway)} cannot be reached: ${whyUnreachable(error)}`;
  // Said by the tunnel itself, which has no codes: see proxy/agents.ts.
  if (error.message.startsWith("the outbound proxy")) {
    return failed("unreachable", why, `start that proxy, or change gateways.${name}.proxy in config.yaml`);
  }
  if (code === "ENOTFOUND" || code === "EAI_AGAIN") {
    return failed("dns", why, `check the host name in base_url of gateway ${name}, and the network`);
  }
  if (/^CERT_(?:HAS_EXPIRED|NOT_YET_VALID)$/.test(code)) {
    return failed("tls", why, "check this machine's clock with: date; if it is right, tell the operator");
  }
  if (isTlsError(code)) {
    const next = `check base_url of gateway ${name}; an authority of your own goes into gateways.${name}.ca_file`;
    return failed("tls", why, next);
  }
  if (code === "ETIMEDOUT") return failed("timeout", why, "check base_url and the network");
  return failed("unreachable", why, `check base_url of gateway ${name}, and the network`);
}

export function redirected(gateway: Gateway, status: number): Failed {
  const why = `wrong base url: ${where(gateway)} answers ${gateway.baseUrl}/models with a redirect (${status}), and a key follows none`;
  return failed("wrong-base-url", why, addressAdvice(gateway));
}

export function noList(gateway: Gateway, status: number): Failed {
  const why = `wrong base url: ${gateway.baseUrl}/models answers ${status} with something that is no list of models`;
  return failed("wrong-base-url", why, addressAdvice(gateway));
}

export function webPage(gateway: Gateway, status: number): Failed {
  const why = `wrong base url: a web page, not the gateway answers at ${gateway.baseUrl}/models (${status})`;
  return failed("html", why, addressAdvice(gateway));
}

/** What a gateway answered. */
interface Said {
  readonly status: number;
  /** The gateway's own words, without the key. */
  readonly words: string | null;
}

export interface Refused {
  readonly cause: Cause;
  readonly said: Said;
  readonly gateway: Gateway;
  readonly worked: boolean;
  /** The key is shorter than those that such gateways make. */
  readonly cut: boolean;
}

export function refused({ cause, said, gateway, worked, cut }: Refused): Failed {
  const tail = quoted(said);
  if (cause.name === "wrong-base-url") {
    const why = `wrong base url: nothing of the gateway's answers at ${gateway.baseUrl}/models${tail}`;
    return failed("wrong-base-url", why, addressAdvice(gateway));
  }
  if (cause.name === "unknown" && !cause.concernsKey) {
    const why = `the key could not be checked: the gateway refuses the list of models${tail}`;
    const next = "requests may still work; the gateway's own words say why the list does not";
    return failed("unknown", why, next);
  }
  if (cause.name === "incomplete-key" && cause.detail === null && cut)
    return failed("incomplete-key", `incomplete key: it is shorter than such keys are${tail}`, COPY);
  // A key that was accepted before is whole, so a gateway that does not know it has deleted it.
  const isDeleted = cause.name === "incomplete-key" && !cause.isAmbiguous && worked;
  return byCause(isDeleted ? causeOfFault("key-deleted") : cause, tail);
}

/**
 * The gateway told what is wrong with the key when it was asked about it.
 * @param said its answer to the question for its models; null: it listed them
 */
export function faultyKey(
  { fault, window }: { readonly fault: KeyFault; readonly window: UsedUpWindow | null },
  said: Said | null,
  now: number,
): Failed {
  const tail = said === null ? ", says the gateway of this key" : quoted(said);
  const made = byCause(causeOfFault(fault), tail);
  return window === null ? made : { ...made, why: `${windowInWords(window, now)}${tail}` };
}

export function notChecked(again: number, now: number): string {
  const when = momentInWords(again, now, systemCalendar);
  return `which of these was not checked: the gateway allows 20 questions about keys in 20 minutes, and can be asked again ${when}`;
}

const BY_DETAIL: Partial<Record<CauseDetail, ProbeCause>> = {
  "key-disabled": "disabled",
  "key-expired": "expired",
  "key-deleted": "deleted",
};

function byCause(cause: Cause, tail: string): Failed {
  const { name, detail, advice } = cause;
  const probeCause = detail === null ? name : (BY_DETAIL[detail] ?? name);
  return failed(probeCause, `${causeInWords(cause)}${tail}`, advice, detail);
}

function quoted({ status, words }: Said): string {
  return ` (${status}${words === null ? "" : `: ${words}`})`;
}

export function rather(address: string): string {
  return `${address} answers: write it as base_url`;
}

function addressAdvice(gateway: Gateway): string {
  const shape = baseUrl(gateway.baseUrl);
  if ("fault" in shape) return `${shape.fault}; ${shape.hint ?? "see the console"}`;
  return "copy the base url from the console; it ends in /v1 and in no endpoint path";
}

function where({ name, baseUrl: base }: Gateway): string {
  return `gateway ${name} (${new URL(base).origin})`;
}

const LONGEST = 120;

/** What the gateway says of its refusal, in its own words and short; null: nothing that can be read. */
export function saidBy(text: string): string | null {
  const { error, message, code } = Object(parsed(text)) as {
    error?: unknown;
    message?: unknown;
    code?: unknown;
  };
  const inner = Object(error) as { message?: unknown };
  const said = [inner.message, message, error, code].find((one) => typeof one === "string" && one !== "");
  if (typeof said !== "string") return null;
  const clean = said.replace(/\s+/g, " ").trim();
  return clean.length > LONGEST ? `${clean.slice(0, LONGEST)}…` : clean;
}

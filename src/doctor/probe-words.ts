import { baseUrl } from "../config/fields/address.ts";
import type { Gateway } from "../config/shape.ts";
import type { Cause } from "../proxy/cause.ts";
import { isTlsError, whyUnreachable } from "../proxy/failure.ts";
import type { KeyFacts } from "./key-facts.ts";
import { parsed } from "./model-list.ts";
import type { ProbeCause, ProbeFailure } from "./probe.ts";

/** A failed probe in words, before it is known when and by which status. */
export type Failed = Omit<ProbeFailure, "status" | "skew">;

function failed(cause: ProbeCause, why: string, next: string): Failed {
  return { ok: false, cause, why, next };
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

export interface Refused {
  readonly cause: Cause;
  readonly status: number;
  readonly html: boolean;
  /** The gateway's own words, without the key. */
  readonly said: string | null;
  readonly gateway: Gateway;
  readonly worked: boolean;
  /** The key is shorter than those that such gateways make. */
  readonly cut: boolean;
}

export function refused(answer: Refused): Failed {
  const { cause, gateway, status, html } = answer;
  const tail = ` (${status}${answer.said === null ? "" : `: ${answer.said}`})`;
  switch (cause.name) {
    case "incomplete-key":
      return unknownKey(answer, tail);
    case "group-unavailable":
      return failed(
        "group-unavailable",
        `group unavailable: the key's group is not enabled, or lacks the model${tail}`,
        "choose another group for the key in the console, or ask the operator to enable it",
      );
    case "balance-or-quota":
      return spent(cause.detail, tail);
    case "wrong-base-url": {
      const what = html ? `a web page, not the gateway` : "nothing of the gateway's";
      const why = `wrong base url: ${what} answers at ${gateway.baseUrl}/models${html ? ` (${status})` : tail}`;
      return failed(html ? "html" : "wrong-base-url", why, addressAdvice(gateway));
    }
    case "rate-limit":
      return failed(
        "rate-limit",
        `the gateway says that it is asked too often${tail}`,
        "wait, then try again",
      );
    case "unknown":
      return ended(cause, tail);
  }
}

function unknownKey({ worked, cut }: Refused, tail: string): Failed {
  if (worked) {
    const why = `deleted key: the gateway accepted this key before and does not know it any more${tail}`;
    return failed("deleted", why, "create a new key in the console");
  }
  if (cut) {
    const why = `incomplete key: the gateway does not know it, and it is shorter than such keys are${tail}`;
    return failed("incomplete-key", why, COPY);
  }
  const why = `incomplete key: the gateway does not know it; it is not whole, was deleted, or is another gateway's${tail}`;
  return failed("incomplete-key", why, COPY);
}

function spent(detail: Cause["detail"], tail: string): Failed {
  const [what, next] =
    detail === "key-quota"
      ? ["the key's own quota is used up", "raise the key's quota in the console, or create a new key"]
      : detail === "account-balance"
        ? ["the account's balance is used up", "top the account up in the console"]
        : detail === "window-used-up"
          ? [
              "the quota of this window is used up for now",
              "wait until it returns, or look at it in the console",
            ]
          : ["the balance, the subscription or the key's quota is used up", "look at them in the console"];
  return failed("balance-or-quota", `balance or quota: ${what}${tail}`, next);
}

function ended({ detail, concernsKey }: Pick<Cause, "detail" | "concernsKey">, tail: string): Failed {
  if (detail === "key-expired") {
    const next = "change its expiry in the console, or create a new key";
    return failed("expired", `expired key: the key's time is over${tail}`, next);
  }
  if (detail === "key-disabled") {
    const next = "enable it in the console, or create a new key";
    return failed("disabled", `disabled key: the key was switched off in the console${tail}`, next);
  }
  if (!concernsKey) {
    const why = `the key could not be checked: the gateway refuses the list of models${tail}`;
    return failed(
      "unknown",
      why,
      "requests may still work; the gateway's own words say why the list does not",
    );
  }
  return failed("unknown", `the gateway refuses the key${tail}`, "look at the key in the console");
}

/** The list was given or refused without a reason, and the key's own facts say more. null: all is well by them. */
export function byFacts({ state }: KeyFacts): Failed | null {
  const tail = ", says the gateway of this key";
  if (state === "active") return null;
  if (state === "subscription") return spent(null, tail);
  if (state === "key-quota" || state === "account-balance") return spent(state, tail);
  return ended({ detail: state, concernsKey: true }, tail);
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

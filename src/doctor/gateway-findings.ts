import type { Gateway } from "../config/shape.ts";
import type { Finding } from "./finding.ts";
import { GATEWAY_CAUSES } from "./probe.ts";
import type { ToolProbe } from "./probe-tools.ts";

/** A Date has whole seconds, and an answer takes its time. */
const SKEW_WORTH_A_WORD_MS = 30_000;
const SKEW_TOO_MUCH_MS = 300_000;

/** Whether a gateway answers, by what its tools' keys met there. */
export function gatewayFindings(gateway: Gateway, probes: readonly ToolProbe[]): Finding[] {
  const about = `gateway ${gateway.name}`;
  const met = probes.flatMap(({ gateway: name, probed }) =>
    name === gateway.name && probed !== null ? [probed] : [],
  );
  const failure = met.find((probed) => !probed.ok && GATEWAY_CAUSES.includes(probed.cause));
  if (failure !== undefined && !failure.ok) {
    const address = failure.cause === "html" || failure.cause === "wrong-base-url";
    const { why: what, next } = failure;
    return [{ id: address ? "base-url" : "gateway", level: "problem", about, what, next }];
  }
  if (met.length === 0) {
    const what = `${gateway.baseUrl} was not asked: no key of its tools could be used`;
    return [{ id: "gateway", level: "warning", about, what, next: null }];
  }
  const via = gateway.proxy === null ? "" : `, through the outbound proxy ${gateway.proxy}`;
  const answers = `${gateway.baseUrl} answers${via}`;
  return [
    { id: "gateway", level: "ok", about, what: answers, next: null },
    ...skewFindings(
      about,
      met.flatMap(({ skew }) => skew ?? []),
    ),
  ];
}

/** Expiries, windows of limits and the mirror go by this machine's clock. */
function skewFindings(about: string, skews: readonly number[]): Finding[] {
  // The least of them: a slow answer only adds to it.
  const [skew = 0] = skews.toSorted((one, other) => Math.abs(one) - Math.abs(other));
  if (Math.abs(skew) < SKEW_WORTH_A_WORD_MS) return [];
  const seconds = Math.round(Math.abs(skew) / 1000);
  const far = seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
  const what = `this machine's clock is ${far} ${skew > 0 ? "behind" : "ahead of"} the gateway's`;
  const level = Math.abs(skew) < SKEW_TOO_MUCH_MS ? "warning" : "problem";
  const next = "set the clock by the network: timedatectl set-ntp true; on macOS in Date & Time";
  return [{ id: "clock", level, about, what, next }];
}

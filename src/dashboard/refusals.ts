import { tokenAdvice } from "../clients/table.ts";
import { advice } from "../core/advice.ts";
import type { RefusalCode } from "../core/refusal.ts";
import type { Ask } from "../usage/index/indexer.ts";
import { refusalInWords } from "../usage/reports/format.ts";
import { exportedRecord } from "../usage/reports/records.ts";
import type { RefusalAdvice, RefusedRecord, ShownRecord } from "./api.ts";

export const MAX_REFUSALS = 20;

/** The last refusals of this machine, newest first: what to do about one must be typed where it happened. */
export async function lastRefusals(ask: Ask): Promise<RefusedRecord[]> {
  const records = await ask("refused", [MAX_REFUSALS]);
  return records.flatMap((record) => withAdvice(exportedRecord(record)) ?? []);
}

type Advice = (names: { readonly tool: string; readonly record: ShownRecord }) => string;

const newToken: Advice = ({ tool }) => tokenAdvice(tool);
const doctor: Advice = () => advice.doctor();

/** What to type or change. The other refusals are the caller's mistake, or end by themselves. */
const NEXT: Readonly<Partial<Record<RefusalCode, Advice>>> = {
  "token-missing": newToken,
  "token-incomplete": newToken,
  "token-unknown": newToken,
  "foreign-key": ({ tool }) => advice.use(tool),
  "tool-disabled": ({ tool }) => advice.enable(tool),
  "tool-expired": ({ tool }) => `change tools.${tool}.expires in config.yaml`,
  "key-unavailable": doctor,
  "needs-trust": ({ tool }) => advice.trust(tool),
  "group-disabled": ({ record }) =>
    `change gateways.${record.gateway ?? "…"}.groups.${record.group ?? "…"}.enabled in config.yaml`,
  "model-not-in-group": ({ tool }) => advice.models(tool),
  "price-unknown": ({ record }) =>
    `write the price of ${record.model ?? "the model"} under prices: in config.yaml`,
  "quota-exhausted": ({ tool }) => `change tools.${tool}.quota in config.yaml`,
  "session-limited": () => advice.sessions(),
  "session-stopped": () => advice.sessions(),
  "rate-limited": ({ tool }) => advice.lift(tool, "requests"),
  "tokens-limited": ({ tool }) => advice.lift(tool, "tokens"),
  "spend-limited": ({ tool }) => advice.lift(tool, "spend"),
  "too-many-at-once": ({ tool }) => `change tools.${tool}.limits.concurrent in config.yaml`,
  "wrong-base-url": ({ tool }) => advice.use(tool),
  loop: doctor,
  "websockets-off": ({ record }) => `change gateways.${record.gateway ?? "…"}.websockets in config.yaml`,
  "gateway-unreachable": doctor,
  "gateway-timeout": doctor,
  "gateway-broken": doctor,
  "log-unavailable": () => advice.status(),
  "store-unavailable": doctor,
};

/** null: the record was not refused. */
export function adviceFor(record: ShownRecord): RefusalAdvice | null {
  const { refusal, tool } = record;
  if (refusal === null) return null;
  const next = NEXT[refusal as RefusalCode];
  return {
    words: refusalInWords(refusal),
    next: next === undefined ? null : next({ tool: tool ?? "<tool>", record }),
  };
}

export function withAdvice(record: ShownRecord): RefusedRecord | null {
  const found = adviceFor(record);
  return found === null ? null : { ...record, ...found };
}

import type { RefusalCode } from "../core/refusal.ts";
import { refusalInWords } from "../usage/reports/format.ts";
import type { RefusalWords, RefusedRecord, ShownRecord } from "./api.ts";

type Advice = (names: { readonly tool: string; readonly record: ShownRecord }) => string;

const newToken: Advice = ({ tool }) => `keybearer use ${tool} --new-token`;
const doctor: Advice = () => "keybearer doctor";

/** What to type or change. Those that are not here are for the caller to mend, or pass by themselves. */
const NEXT: Readonly<Partial<Record<RefusalCode, Advice>>> = {
  "token-missing": newToken,
  "token-incomplete": newToken,
  "token-unknown": newToken,
  "foreign-key": ({ tool }) => `keybearer use ${tool}`,
  "tool-disabled": ({ tool }) => `keybearer tools enable ${tool}`,
  "tool-expired": ({ tool }) => `change tools.${tool}.expires in config.yaml`,
  "key-unavailable": doctor,
  "needs-trust": ({ tool }) => `keybearer trust ${tool}`,
  "group-disabled": ({ record }) =>
    `change gateways.${record.gateway ?? "…"}.groups.${record.group ?? "…"}.enabled in config.yaml`,
  "model-not-in-group": ({ tool }) => `keybearer models --tool ${tool}`,
  "price-unknown": ({ record }) =>
    `write the price of ${record.model ?? "the model"} under prices: in config.yaml`,
  "quota-exhausted": ({ tool }) => `change tools.${tool}.quota in config.yaml`,
  "rate-limited": ({ tool }) => `keybearer tools lift ${tool} --requests <number>`,
  "tokens-limited": ({ tool }) => `keybearer tools lift ${tool} --tokens <number>`,
  "spend-limited": ({ tool }) => `keybearer tools lift ${tool} --spend <dollars>`,
  "too-many-at-once": ({ tool }) => `change tools.${tool}.limits.concurrent in config.yaml`,
  "wrong-base-url": ({ tool }) => `keybearer use ${tool}`,
  loop: doctor,
  "websockets-off": ({ record }) => `change gateways.${record.gateway ?? "…"}.websockets in config.yaml`,
  "gateway-unreachable": doctor,
  "gateway-timeout": doctor,
  "gateway-broken": doctor,
  "log-unavailable": () => "keybearer status",
};

/** null: it was not refused. */
export function adviceFor(record: ShownRecord): RefusalWords | null {
  const { refusal, tool } = record;
  if (refusal === null) return null;
  const next = NEXT[refusal as RefusalCode];
  return {
    words: refusalInWords(refusal),
    // Of a caller that nobody recognised, the person knows which one it was.
    next: next === undefined ? null : next({ tool: tool ?? "<tool>", record }),
  };
}

export function withAdvice(record: ShownRecord): RefusedRecord | null {
  const advice = adviceFor(record);
  return advice === null ? null : { ...record, ...advice };
}

import { contentKind } from "../metering/protocols.ts";

/** Why a gateway refused a request. `x-keybearer-cause` carries it. */
export type CauseName =
  | "incomplete-key"
  | "group-unavailable"
  | "balance-or-quota"
  | "wrong-base-url"
  | "rate-limit"
  | "unknown";

/** More than the name says, where the gateway tells. */
type CauseDetail = "disabled" | "expired" | "key-quota" | "balance" | "subscription";

export interface Cause {
  readonly name: CauseName;
  readonly detail?: CauseDetail;
  /**
   * true: every request with this key is refused until the owner changes the key, its group or the account.
   * false: only this request is refused, for its model, its address or its rate.
   */
  readonly concernsKey: boolean;
  /** What the owner can do about it. */
  readonly advice: string;
}

interface GatewayAnswer {
  readonly status: number;
  readonly contentType: string;
  /** The beginning of the body, decoded; empty: it was not read. */
  readonly body: string;
}

interface Rule {
  readonly when: RegExp;
  /** The rule holds only for these. A 400 about an "invalid token" means a token of the JSON, not the key. */
  readonly statuses?: readonly number[];
  readonly cause: Cause;
  /** More exact causes. The first that matches holds, else `cause`. */
  readonly finer?: readonly { readonly when: RegExp; readonly cause: Cause }[];
}

const KEY_UNKNOWN: Cause = {
  name: "incomplete-key",
  concernsKey: true,
  advice: "the gateway does not know this key: copy it whole from the console, or create a new one",
};
const KEY_ENDED: Cause = {
  name: "unknown",
  concernsKey: true,
  advice: "the key was disabled or has expired: enable it in the console, or create a new one",
};
const KEY_DISABLED: Cause = {
  ...KEY_ENDED,
  detail: "disabled",
  advice: "the key was disabled: enable it in the console, or create a new one",
};
const KEY_EXPIRED: Cause = {
  ...KEY_ENDED,
  detail: "expired",
  advice: "the key has expired: change its expiry in the console, or create a new one",
};
const MODEL: Cause = {
  name: "group-unavailable",
  concernsKey: false,
  advice: "the key's group lacks this model: check group and model in the console",
};
const GROUP: Cause = {
  name: "group-unavailable",
  concernsKey: true,
  advice: "the key's group is not enabled: choose another group for the key in the console",
};
const BALANCE: Cause = {
  name: "balance-or-quota",
  concernsKey: true,
  advice: "the balance, the subscription or the key's own quota is used up: check them in the console",
};
const KEY_QUOTA: Cause = {
  ...BALANCE,
  detail: "key-quota",
  advice: "the key's own quota is used up: raise it in the console, or create a new key",
};
const SUBSCRIPTION: Cause = {
  ...BALANCE,
  detail: "subscription",
  advice: "the subscription is missing or used up for now: look at it in the console",
};
const ACCOUNT: Cause = {
  ...BALANCE,
  detail: "balance",
  advice: "the account's balance is used up: top it up in the console",
};
const BASE_URL: Cause = {
  name: "wrong-base-url",
  concernsKey: false,
  advice: "nothing of the gateway's answers at this address: check base_url in config.yaml",
};
const RATE: Cause = {
  name: "rate-limit",
  concernsKey: false,
  advice: "too many requests at once: wait, then try again",
};
const UNKNOWN: Cause = { name: "unknown", concernsKey: false, advice: "see the gateway's own words" };
const KEY_REFUSED: Cause = { ...UNKNOWN, concernsKey: true };

/**
 * Codes and texts of sub2api, new-api, one-api, LiteLLM and OpenRouter. The first match holds. Quota comes before rate,
 * because several gateways answer 429 to both. An expired or disabled key comes before an unknown one.
 */
const RULES: readonly Rule[] = [
  {
    when: /quota_exhausted|insufficient_(?:user_)?quota|insufficient[_ ](?:account[_ ])?balance|pre_consume_token_quota_failed|usage_limit_exceeded|subscription_(?:not_found|invalid)|billing_error|budget_exceeded|budget has been exceeded|quota is not enough|usage quota exhausted|额度(?:不足|已用[完尽])|限额已用完|余额不足|insufficient credits|requires more credits/i,
    cause: BALANCE,
    finer: [
      { when: /subscription|usage_limit_exceeded|usage quota exhausted|订阅/i, cause: SUBSCRIPTION },
      {
        when: /key_quota_exhausted|token[ _]quota|api key .{0,8}(?:额度|限额)|令牌.{0,80}额度|exceeded! key=/i,
        cause: KEY_QUOTA,
      },
      { when: /balance|user[ _]quota|用户额度|用户剩余额度|余额|credits/i, cause: ACCOUNT },
    ],
  },
  {
    when: /api_key_disabled|api_key_expired|key is (?:disabled|blocked)|key has expired|expired[_ ]key|令牌已过期|令牌状态不可用|key 已过期/i,
    statuses: [401, 403],
    cause: KEY_ENDED,
    finer: [
      { when: /expired|过期/i, cause: KEY_EXPIRED },
      { when: /disabled|blocked|状态不可用/i, cause: KEY_DISABLED },
    ],
  },
  {
    when: /group_(?:deleted|disabled|not_allowed)|not assigned to any group|model_not_found|no available channel|not supported by any configured account|no access to (?:model|any models)|not allowed to access model|model_access_denied|invalid model name passed|无权(?:访问|使用)|无可用渠道|可用渠道不存在|分组.{0,40}(?:弃用|停用|删除)/i,
    cause: MODEL,
    finer: [
      {
        when: /group_(?:deleted|disabled|not_allowed)|not assigned to any group|no access to any models|无权(?:访问|使用)(?:任何模型|[^模]{0,40}分组)|分组.{0,40}(?:弃用|停用|删除)/i,
        cause: GROUP,
      },
    ],
  },
  {
    when: /404 page not found|invalid url \(|"detail":\s*"not found"/i,
    cause: BASE_URL,
  },
  {
    when: /invalid_api_key|api_key_required|invalid api key|incorrect api key|invalid token|token_not_found_in_db|invalid proxy server token|malformed api key|no api key passed|virtual key expected|无效的令牌|未提供令牌|令牌验证失败|no auth credentials|user not found/i,
    statuses: [401, 403],
    cause: KEY_UNKNOWN,
  },
];

/** null: the gateway did not refuse. */
export function causeOf(answer: GatewayAnswer): Cause | null {
  const isPage = contentKind(answer.contentType) === "page";
  // A console answers every unknown path with its own page and 200.
  if (answer.status < 400) return isPage && answer.status === 200 ? BASE_URL : null;
  const rule = RULES.find(
    ({ when, statuses }) => (statuses?.includes(answer.status) ?? true) && when.test(answer.body),
  );
  if (rule) return rule.finer?.find(({ when }) => when.test(answer.body))?.cause ?? rule.cause;
  if (answer.status === 402) return BALANCE;
  if (answer.status === 429 || answer.status === 529) return RATE;
  if (answer.status === 404 || answer.status === 405)
    return isPage || answer.body === "" ? BASE_URL : UNKNOWN;
  return answer.status === 401 ? KEY_REFUSED : UNKNOWN;
}

/** Retrying does not help until the owner changes something. */
export function isForTheOwner(cause: Cause): boolean {
  return cause.name !== "rate-limit" && cause.name !== "unknown";
}

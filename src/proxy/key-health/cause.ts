import { advice } from "../../core/advice.ts";
import { contentKind } from "../../metering/protocols.ts";

/**
 * Why a gateway refused a request. `x-keybearer-cause` carries it. incomplete-key: the gateway does not know the key, and it is
 * not known that it ever did. Most gateways answer the same to a deleted key; one that worked before is `key-deleted`.
 */
export type CauseName =
  | "incomplete-key"
  | "group-unavailable"
  | "balance-or-quota"
  | "wrong-base-url"
  | "rate-limit"
  | "unknown";

/** More than the name says, where it is known. `x-keybearer-cause-detail` carries it. */
export type CauseDetail =
  | "key-disabled"
  | "key-expired"
  | "key-deleted"
  | "key-quota"
  | "account-balance"
  | "account-disabled"
  | "ip-not-allowed"
  | "window-used-up"
  | "group-deleted"
  | "group-disabled"
  | "group-not-allowed"
  | "no-group"
  | "no-models"
  | "no-capacity";

/**
 * What an accepted answer has tested. key: the key exists, is enabled, and so is its group; every gateway lists its models only
 * to such keys. models: it lists at least one. money: balance and quota. key-windows: the windows of the key's own quota.
 * plan: those of a subscription. request: everything, in a request that was paid for.
 */
export type Tested = "key" | "models" | "money" | "key-windows" | "plan" | "request";

export interface Cause {
  readonly name: CauseName;
  readonly detail: CauseDetail | null;
  /**
   * true: every request with this key is refused until the owner changes the key, its group or the account, or until a
   * window of its quota ends. false: only this request is refused, for its model, its address or its rate.
   */
  readonly concernsKey: boolean;
  /** The same request may succeed soon. Everything else gets x-should-retry: false. */
  readonly canRetry: boolean;
  /** The gateway answers the same to several states of a key. Asking it about the key may distinguish them. */
  readonly isAmbiguous: boolean;
  /** Only an accepted answer that tested this shows that the refusal is over. */
  readonly endsWith: Tested;
  /** What is wrong, in a few words. */
  readonly problem: string;
  /** What the owner can do about it. */
  readonly next: string;
  /** The part of `next` that needs no new key, where a new key helps as well; null: there is none. */
  readonly repair: string | null;
  /** Whether the gateway accepts another key of the same account. */
  readonly newKey: "helps" | "may-help" | "useless";
}

interface GatewayAnswer {
  readonly status: number;
  readonly contentType: string;
  /** The beginning of the body, decoded; empty: it was not read. */
  readonly body: string;
  /** It has new-api's own header, which a provider's error lacks. */
  readonly isNewApi?: boolean;
  /** `x-oneapi-request-id`, where there is one. */
  readonly requestId?: string | undefined;
}

interface Rule {
  readonly when: RegExp;
  /** The rule holds only for these. A 400 about an "invalid token" means a token of the JSON, not the key. */
  readonly statuses?: readonly number[];
  readonly cause: Cause;
}

/** The owner must change something about the key or its account. */
const FOR_THE_OWNER = {
  concernsKey: true,
  canRetry: false,
  isAmbiguous: false,
  endsWith: "key",
  repair: null,
  newKey: "may-help",
} as const;
/** Only this request is refused, and may succeed later. */
const FOR_NOW = {
  concernsKey: false,
  canRetry: true,
  isAmbiguous: false,
  endsWith: "key",
  repair: null,
  newKey: "useless",
} as const;

/** A new key helps. */
const KEY_IS_BAD = { ...FOR_THE_OWNER, name: "unknown", newKey: "helps" } as const;

/** @param repair makes the key work again, so that no new one is needed */
function repairable(repair: string, otherwise = "create a new one"): Pick<Cause, "repair" | "next"> {
  return { repair, next: `${repair}, or ${otherwise}` };
}

const KEY_UNKNOWN: Cause = {
  ...FOR_THE_OWNER,
  name: "incomplete-key",
  detail: null,
  problem: "key not valid",
  newKey: "helps",
  next: "the gateway does not know this key: copy it whole from the console, or create a new one",
};
const KEY_NOT_VALID: Cause = {
  ...KEY_UNKNOWN,
  isAmbiguous: true,
  next: "the key is not valid: deleted, disabled, expired or used up. look at it in the console; if it is active there, copy it whole again",
};
/** Of a key that worked before, so it is complete. */
const KEY_ENDED: Cause = {
  ...KEY_NOT_VALID,
  name: "unknown",
  problem: "the gateway refuses the key",
  newKey: "may-help",
  next: "the key is not valid any more: deleted, disabled, expired or used up. look at it in the console",
};
const KEY_DELETED: Cause = {
  ...KEY_IS_BAD,
  detail: "key-deleted",
  problem: "deleted key",
  next: "the key was deleted: create a new one in the console",
};
const KEY_DISABLED: Cause = {
  ...KEY_IS_BAD,
  ...repairable("the key was disabled: enable it in the console"),
  detail: "key-disabled",
  problem: "disabled key",
};
const KEY_EXPIRED: Cause = {
  ...KEY_IS_BAD,
  ...repairable("the key has expired: change its expiry in the console"),
  detail: "key-expired",
  problem: "expired key",
};
const KEY_QUOTA: Cause = {
  ...KEY_IS_BAD,
  ...repairable("the key's own quota is used up: raise it in the console", "create a new key"),
  name: "balance-or-quota",
  detail: "key-quota",
  endsWith: "money",
  problem: "balance or quota: the key's own quota is used up",
};
const BALANCE: Cause = {
  ...FOR_THE_OWNER,
  name: "balance-or-quota",
  detail: null,
  endsWith: "money",
  problem: "balance or quota",
  next: "the balance, the subscription or the key's own quota is used up: check them in the console",
};
const ACCOUNT_BALANCE: Cause = {
  ...BALANCE,
  detail: "account-balance",
  problem: "balance or quota: the account's balance is used up",
  newKey: "useless",
  next: "the account's balance is used up: top it up in the console",
};
const TEAM_BUDGET: Cause = {
  ...BALANCE,
  problem: "balance or quota: the budget of the key's team is used up",
  next: "the budget of the key's team is used up: ask the gateway's operator to raise it, or create a key without that team in the console",
};
/** Of the `user` that a request names in its body. */
const END_USER_BUDGET: Cause = {
  ...FOR_NOW,
  name: "balance-or-quota",
  detail: null,
  canRetry: false,
  problem: "balance or quota: the budget of the end user that the request names is used up",
  next: "the budget of the end user that the request names is used up: ask the gateway's operator to raise it, or send requests without `user`",
};
const SUBSCRIPTION: Cause = {
  ...BALANCE,
  next: "the key's group needs a subscription that is missing, expired or used up: renew it in the console, or choose another group for the key",
};
const WINDOW: Cause = {
  ...BALANCE,
  detail: "window-used-up",
  endsWith: "key-windows",
  problem: "balance or quota: a window of the quota is used up",
  next: "the quota of this window (5 hours, day, week or month) is used up and returns by itself: wait, or raise it in the console",
};
const PLAN: Cause = {
  ...WINDOW,
  endsWith: "plan",
  next: "the day, week or month of the subscription is used up and returns by itself: wait, or choose another group for the key in the console",
};
/** No gateway shows how much of it is left. */
const PLATFORM: Cause = { ...WINDOW, endsWith: "request" };
const ACCOUNT_DISABLED: Cause = {
  ...FOR_THE_OWNER,
  name: "unknown",
  detail: "account-disabled",
  problem: "disabled account",
  newKey: "useless",
  next: "the account is disabled, banned or deleted at the gateway: ask its operator. a new key does not help",
};
const IP_NOT_ALLOWED: Cause = {
  ...FOR_THE_OWNER,
  name: "unknown",
  detail: "ip-not-allowed",
  problem: "IP address not allowed",
  next: "the key does not allow this machine's IP address: add the address to the key's list in the console, or set gateways.<name>.proxy to an outbound proxy whose address is on it",
};
const MODEL: Cause = {
  ...FOR_NOW,
  name: "group-unavailable",
  detail: null,
  canRetry: false,
  problem: "group unavailable",
  next: "the key's group lacks this model: check group and model in the console",
};
const OTHER_GROUP = "choose another group for the key in the console";
const MODEL_NOT_ALLOWED: Cause = {
  ...MODEL,
  problem: "model not allowed",
  next: "the key, its user or its team may not use this model: ask for another one, or allow it for the key in the console",
};
const GROUP: Cause = {
  ...FOR_THE_OWNER,
  name: "group-unavailable",
  detail: null,
  problem: "group unavailable",
  next: `the key's group has no models for it: ${OTHER_GROUP}`,
};

function groupCause(detail: CauseDetail, what: string, next: string): Cause {
  return { ...GROUP, detail, problem: `group unavailable: ${what}`, next: `${what}: ${next}` };
}

const GROUP_DELETED = groupCause("group-deleted", "the key's group was deleted", OTHER_GROUP);
const GROUP_DISABLED = groupCause("group-disabled", "the key's group is disabled", OTHER_GROUP);
const TEAM_BLOCKED = groupCause(
  "group-disabled",
  "the key's team is blocked",
  "ask the gateway's operator, or create a key without that team in the console",
);
const GROUP_NOT_ALLOWED = groupCause(
  "group-not-allowed",
  "the account may not use the key's group",
  `${OTHER_GROUP}, or ask the gateway's operator`,
);
const NO_GROUP = groupCause("no-group", "the key has no group", "choose one for it in the console");
/** The gateway accepts the key, but lists no models for it, and refuses every request for its model. */
export const NO_MODELS_LISTED: Cause = {
  ...GROUP,
  detail: "no-models",
  endsWith: "models",
  problem: "group unavailable: the gateway accepts the key, but lists no models for it",
  next: `${OTHER_GROUP}, or ask the gateway's operator`,
};
const NO_CAPACITY = {
  ...FOR_NOW,
  name: "rate-limit",
  detail: "no-capacity",
  problem: "no capacity at the gateway",
} as const;
const NO_ACCOUNTS: Cause = {
  ...NO_CAPACITY,
  name: "group-unavailable",
  next: "no account behind the key's group can serve this model now: try again later. if it stays so, check group and model in the console",
};
const NO_DEPLOYMENTS: Cause = {
  ...NO_CAPACITY,
  next: "the gateway has no deployment of this model that can serve now: try again in some seconds. if it stays so, tell the gateway's operator",
};
const BUSY: Cause = {
  ...NO_CAPACITY,
  next: "the gateway, or the provider behind it, has no capacity now: try again later",
};
const CONCURRENCY: Cause = {
  ...NO_CAPACITY,
  next: "too many requests of this account run at once: wait, or set limits.concurrent of the tool to what the account allows",
};
const BASE_URL: Cause = {
  ...FOR_NOW,
  name: "wrong-base-url",
  detail: null,
  canRetry: false,
  problem: "wrong base url",
  next: "nothing of the gateway's answers at this address: check base_url in config.yaml",
};
const RATE: Cause = {
  ...FOR_NOW,
  name: "rate-limit",
  detail: null,
  problem: "rate limit",
  next: "too many requests at once: wait, then try again",
};
const TOO_MANY_BAD_KEYS: Cause = {
  ...RATE,
  next: `the gateway blocks this address for a while, because too many requests came with a key that is not valid: correct that key first (${advice.status()})`,
};
const UNKNOWN: Cause = {
  ...FOR_NOW,
  name: "unknown",
  detail: null,
  problem: "the gateway refuses the key",
  next: "see the gateway's own words",
};
const KEY_REFUSED: Cause = { ...UNKNOWN, concernsKey: true, newKey: "may-help" };
const PROVIDER: Cause = {
  ...UNKNOWN,
  next: "the provider behind the gateway failed, or refused the gateway and not your key: try again or another model, or tell the gateway's operator",
};

const DENIED = [401, 403];
/** With these a provider refuses the operator of the gateway, whatever its words. */
const DENIALS = [401, 402, 403];

/**
 * What gateways say, with the versions in which it was seen. The first match holds. Quota comes before rate, because
 * several gateways answer 429 to both. An expired or disabled key comes before an unknown one.
 */
const RULES: readonly Rule[] = [
  // Windows. sub2api 0.1.135: a key's own; a subscription's (0.1.27 too, 429 or 403), a platform's.
  { when: /(?:5小时|日|7天)限额已用完/, cause: WINDOW },
  { when: /usage_limit_exceeded|(?:daily|weekly|monthly) (?:usage )?limit exceeded/i, cause: PLAN },
  { when: /usage quota exhausted/i, cause: PLATFORM },
  // Subscriptions. sub2api 0.1.27 and 0.1.135; new-api 2d8e50bf (订阅额度不足或未配置订阅).
  {
    when: /subscription_(?:not_found|invalid|expired|suspended)|no active subscription/i,
    cause: SUBSCRIPTION,
  },
  {
    when: /subscription (?:is invalid|has expired|is suspended)|订阅额度不足|訂閱額度不足/i,
    cause: SUBSCRIPTION,
  },
  // A key's own quota. sub2api 0.1.135 (API key 额度已用完); new-api up to 0.9 and one-api 0.6 (该令牌额度已用尽);
  // new-api 0.13.2 (pre_consume_token_quota_failed, token quota is not enough); LiteLLM 1.97 (exceeded! key=).
  {
    when: /key_quota_exhausted|pre_consume_token_quota_failed|token[ _]quota (?:is )?(?:exhausted|not enough|insufficient)|api key .{0,8}额度已用[完尽]|令牌.{0,80}(?:额度|額度)(?:不足|已用[完尽盡])|exceeded! key=/i,
    cause: KEY_QUOTA,
  },
  // LiteLLM 1.106 (422): a team's budget, and that of a request's `user`.
  { when: /budget has been exceeded! team=/i, cause: TEAM_BUDGET },
  { when: /exceededbudget: end user=/i, cause: END_USER_BUDGET },
  // An account's balance. sub2api 0.1.27 and 0.1.135; new-api 0.13.2 (用户额度不足); one-api 0.6; OpenRouter;
  // LiteLLM 1.106 (ExceededBudget: User=).
  {
    when: /insufficient_user_quota|insufficient[_ ](?:account[_ ])?balance|user[ _]quota is not enough|(?:用户|用戶|使用者)(?:剩余|剩餘)?(?:额度|額度)|余额不足|餘額不足|insufficient credits|requires more credits|exceededbudget: user=/i,
    cause: ACCOUNT_BALANCE,
  },
  // Either of them. sub2api on /v1/responses, LiteLLM 1.97, one-api 0.6.
  {
    when: /quota_exhausted|insufficient_quota|billing_error|budget_exceeded|budget has been exceeded|quota is not enough|(?:额度|額度)(?:不足|已用[完尽盡])|限额已用完/i,
    cause: BALANCE,
  },
  // sub2api 0.1.135 (403 API key 已过期); new-api up to 0.9 and one-api 0.6 (该令牌已过期); LiteLLM 1.97 (expired_key).
  {
    when: /api_key_expired|key has expired|expired[_ ]key|key 已过期|令牌已(?:过期|過期)|this token has expired/i,
    statuses: DENIED,
    cause: KEY_EXPIRED,
  },
  // sub2api 0.1.27 and 0.1.135; new-api 2d8e50bf on /api/usage/token/ and one-api 0.6 (该令牌状态不可用); LiteLLM 1.97.
  {
    when: /api_key_(?:disabled|inactive)|key is (?:disabled|blocked|not active)|令牌(?:状态|狀態)不可用|token status is unavailable/i,
    statuses: DENIED,
    cause: KEY_DISABLED,
  },
  // sub2api 0.1.27 and 0.1.135 (401); new-api 0.13.2 and 2d8e50bf (403), in three languages; one-api 0.6.
  {
    when: /user_inactive|user account is not active|"USER_NOT_FOUND"|user associated with api key not found|user has been banned|(?:用户|用戶|使用者)已被封禁/i,
    statuses: DENIED,
    cause: ACCOUNT_DISABLED,
  },
  // sub2api 0.1.135 (ACCESS_DENIED; 0.1.179 adds the address); new-api 0.13.2 and 2d8e50bf; one-api 0.6; LiteLLM 1.97.
  {
    when: /"code":\s*"ACCESS_DENIED"|"message":\s*"access denied["., ]|ip 不在令牌允许|无法解析客户端 ip|令牌只能在指定网段|ip address not allowed/i,
    statuses: [403],
    cause: IP_NOT_ALLOWED,
  },
  // A group. sub2api 0.1.135; new-api 0.13.2 and 2d8e50bf (弃用: its operator removed it).
  { when: /group_deleted|分组.{0,40}(?:弃用|删除)/i, cause: GROUP_DELETED },
  { when: /group_disabled|分组.{0,40}停用/i, cause: GROUP_DISABLED },
  // LiteLLM 1.106 (401).
  { when: /\bteam=\S+ is blocked/i, statuses: DENIED, cause: TEAM_BLOCKED },
  {
    when: /group_not_allowed|no permission to access this group|无权(?:访问|使用)[^模]{0,40}分组|無權(?:存取|使用)[^模]{0,40}分組/i,
    cause: GROUP_NOT_ALLOWED,
  },
  { when: /not assigned to any group/i, cause: NO_GROUP },
  {
    when: /no access to any models|无权(?:访问|使用)任何模型|無權(?:存取|使用)任何模型/i,
    cause: GROUP,
  },
  // No account can serve now. sub2api 0.1.135 gives this the status of the last provider that failed, even 401.
  { when: /"all available accounts exhausted"/i, cause: NO_ACCOUNTS },
  // sub2api 0.1.27 and 0.1.135, which also says only "Service temporarily unavailable".
  {
    when: /no available (?:gemini |openai )?accounts|"service temporarily unavailable"/i,
    statuses: [503],
    cause: NO_ACCOUNTS,
  },
  // LiteLLM 1.106 (403): the key's, its team's or its user's models.
  { when: /(?:key|team|user|org|project)_model_access_denied/, cause: MODEL_NOT_ALLOWED },
  // A model. sub2api 0.1.135 (404); new-api 0.13.2 and 2d8e50bf (403, 503); one-api 0.6; LiteLLM 1.97.
  {
    when: /model_not_found|no available channel|not supported by any configured account|no access to model|not allowed to access model|model_access_denied|invalid model name passed|无权(?:访问|使用)|無權(?:存取|使用)|无可用渠道|無可用管道|可用渠道不存在|可用管道不存在/i,
    cause: MODEL,
  },
  // All programs here are Go with gin, or OpenAI's and FastAPI's words for a path that is not there.
  { when: /404 page not found|invalid url \(|"detail":\s*"not found"/i, cause: BASE_URL },
  // sub2api 0.1.179 blocks an address after about 120 requests with a bad key.
  { when: /invalid_auth_rate_limited|too many invalid authentication/i, cause: TOO_MANY_BAD_KEYS },
  // Concurrency. sub2api 0.1.27 and 0.1.135 (429), also when its queue is full. LiteLLM 1.106 (429).
  {
    when: /concurrency limit exceeded|too many pending requests|limit type: max_parallel_requests/i,
    cause: CONCURRENCY,
  },
  // LiteLLM 1.106 (429): all are busy, or wait after a failure.
  { when: /no deployments available/i, cause: NO_DEPLOYMENTS },
  // sub2api 0.1.27 and 0.1.135 (429, 503, 529); new-api 0.13.2 and 2d8e50bf (503 system cpu overloaded).
  {
    when: /overloaded_error|upstream rate limit exceeded|service overloaded|server (?:is )?overloaded|auth_overloaded|system[_ ](?:cpu|memory|disk)[_ ]overloaded/i,
    cause: BUSY,
  },
  // sub2api 0.1.27 and 0.1.135 (502): the provider behind it refused or failed.
  { when: /"upstream_error"/, cause: PROVIDER },
  // sub2api 0.1.135 passes on a provider's 402 with this type.
  { when: /"server_error"/, statuses: [402], cause: PROVIDER },
  // new-api 0.13.2 and 2d8e50bf say this of keys that are deleted, disabled, expired or used up.
  {
    when: /^(?=.*"new_api_error").*(?:invalid token|无效的令牌|無效的令牌)/is,
    statuses: DENIED,
    cause: KEY_NOT_VALID,
  },
  // one-api 0.6 only of unknown ones, and new-api on /api/usage/token/.
  { when: /invalid token|无效的令牌|無效的令牌|令牌验证失败/i, statuses: DENIED, cause: KEY_UNKNOWN },
  // sub2api 0.1.27 and 0.1.135; LiteLLM 1.97; OpenRouter (no auth credentials, user not found); new-api 0.13.2 and
  // 2d8e50bf of a key with a hyphen too many (普通用户不支持指定渠道).
  {
    when: /invalid_api_key|api_key_required|invalid api key|incorrect api key|token_not_found_in_db|invalid proxy server token|malformed api key|no api key passed|virtual key expected|未提供令牌|token not provided|no auth credentials|user not found|普通用户不支持指定渠道/i,
    statuses: DENIED,
    cause: KEY_UNKNOWN,
  },
];

/** null: the gateway did not refuse. */
export function findCause(answer: GatewayAnswer): Cause | null {
  const isPage = contentKind(answer.contentType) === "page";
  // A console answers every unknown path with its own page and 200.
  if (answer.status < 400) return isPage && answer.status === 200 ? BASE_URL : null;
  const isRelayed = isFromProvider(answer);
  if (isRelayed && DENIALS.includes(answer.status)) return PROVIDER;
  const rule = RULES.find(
    ({ when, statuses }) => (statuses?.includes(answer.status) ?? true) && when.test(answer.body),
  );
  // OpenAI answers 429 insufficient_quota to an operator who has not paid. The owner's key and balance are good.
  if (rule) return isRelayed && rule.cause.concernsKey ? PROVIDER : rule.cause;
  if (answer.status === 402) return BALANCE;
  if (answer.status === 429) return RATE;
  if (answer.status === 529) return BUSY;
  if (isRelayed && (answer.status >= 500 || answer.status === TIMED_OUT)) return PROVIDER;
  if (answer.status === 404 || answer.status === 405)
    return isPage || answer.body === "" ? BASE_URL : UNKNOWN;
  return answer.status === 401 ? KEY_REFUSED : UNKNOWN;
}

/**
 * The cause of an error inside an answer with a good status, such as sub2api's to a stream that waited in its queue (0.1.27,
 * 0.1.135). null: its words are not known.
 */
export function findEventCause(text: string): Cause | null {
  return RULES.find(({ when, statuses }) => statuses === undefined && when.test(text))?.cause ?? null;
}

/** LiteLLM (1.97, 1.106) passes on a provider's error with the status and this before its text. */
const FROM_LITELLM = /\blitellm\.(?:\w+Error|Timeout): |\b\w+Exception - /;
/** With this LiteLLM answers if its provider takes too long. */
const TIMED_OUT = 408;

/**
 * new-api passes on what its provider answers, also a 401 to its own key (0.13.2, 2d8e50bf). Its own errors have a type of
 * their own and end with the request's id. If the provider is a new-api too, its id is there as well, or alone.
 */
function isFromProvider({ body, isNewApi = false, requestId }: GatewayAnswer): boolean {
  if (FROM_LITELLM.test(body)) return true;
  if (!isNewApi || body === "") return false;
  if (!body.includes('"new_api_error"')) return true;
  if (requestId === undefined) return false;
  return [...body.matchAll(/\(request id: (\w+)\)/g)].some(([, id]) => id !== requestId);
}

/** What may be wrong with a key or its account, as a gateway or its console reports it. */
export type KeyDetail =
  | "key-disabled"
  | "key-expired"
  | "key-deleted"
  | "key-quota"
  | "account-balance"
  | "account-disabled"
  | "window-used-up";

const KEY_CAUSES: Readonly<Record<KeyDetail, Cause>> = {
  "key-disabled": KEY_DISABLED,
  "key-expired": KEY_EXPIRED,
  "key-deleted": KEY_DELETED,
  "key-quota": KEY_QUOTA,
  "account-balance": ACCOUNT_BALANCE,
  "account-disabled": ACCOUNT_DISABLED,
  "window-used-up": WINDOW,
};

export function isKeyDetail(detail: CauseDetail | null): detail is KeyDetail {
  return detail !== null && Object.hasOwn(KEY_CAUSES, detail);
}

/** The state of a key as a console lists it. */
export type ListedState = "active" | "disabled" | "expired" | "deleted" | "quota-exhausted" | "unknown";

/** What a state that a console lists says is wrong with the key. */
export const DETAIL_BY_STATE: Partial<Record<ListedState, KeyDetail>> = {
  disabled: "key-disabled",
  expired: "key-expired",
  deleted: "key-deleted",
  "quota-exhausted": "key-quota",
};

/** The cause of an ambiguous answer, once it is known what is wrong with the key. */
export function causeFor(detail: KeyDetail): Cause {
  return KEY_CAUSES[detail];
}

/** The gateway reports that the window of a subscription is used up. */
export const PLAN_USED_UP: Cause = PLAN;

/** The gateway does not know the key, or says no more than that it is not valid. Whether it worked before says more. */
export function isUnexplained({ name, detail, isAmbiguous }: Cause): boolean {
  return isAmbiguous || (name === "incomplete-key" && detail === null);
}

/** The key's group lacks the model of the request, and maybe every other. Its list of models says which. */
export function isModelRefusal({ name, detail, concernsKey }: Cause): boolean {
  if (name !== "group-unavailable") return false;
  return detail === "no-models" || (detail === null && !concernsKey);
}

/** The cause of such an answer to a key that worked before. A gateway that does not know it has deleted it. */
export function causeOfEndedKey({ isAmbiguous }: Cause): Cause {
  return isAmbiguous ? KEY_ENDED : KEY_DELETED;
}

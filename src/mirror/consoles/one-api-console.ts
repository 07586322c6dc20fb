import type { JsonObject } from "../../core/json.ts";
import type { Secret } from "../../core/secret.ts";
import type { AccountFacts, KeyActions, Page } from "./console.ts";
import { type AdapterDeps, type CallLimit, type ConsoleClient, pacedClient } from "./http.ts";
import type { KeyCallBudget } from "./key-calls.ts";
import {
  type Get,
  ListedRows,
  type LogSource,
  listPages,
  type PageNumbers,
  readAll,
  walkLog,
} from "./log-walk.ts";
import { NewApiKeyActions } from "./new-api-key-actions.ts";
import {
  getWithToken,
  ONE_API_ID_NAMES,
  readAccount,
  readStatus,
  type SiteStatus,
} from "./one-api-protocol.ts";

export interface OneApiDeps extends AdapterDeps {
  readonly accessToken: Secret;
}

/** How the two differ. */
interface Dialect {
  /** The first page of a list, until the console shows another one. */
  readonly firstPage: PageNumbers["first"];
  /** The end of a list's query. */
  readonly pageSize: string;
  readonly readRow: (raw: JsonObject, quotaPerUnit: number) => ReturnType<LogSource["readRow"]>;
  readonly limit: (version: string | null) => CallLimit;
  /** Of every request with the access token. */
  readonly headers: Readonly<Record<string, string>>;
  /** null: no calls are needed to see a key. */
  readonly keyCalls: KeyCallBudget | null;
}

/** one-api or its fork new-api, read with an account's access token. */
export abstract class OneApiConsole {
  readonly idNames = ONE_API_ID_NAMES;
  readonly billsFailures = false;
  protected readonly get: Get;
  protected readonly now: () => number;
  readonly #dialect: Dialect;
  readonly #client: ConsoleClient;
  /** For the usage log. */
  readonly #getRows: Get;
  readonly #keyActions: KeyActions;
  readonly #listed = new ListedRows();
  #status: SiteStatus | null = null;

  constructor(deps: OneApiDeps, dialect: Dialect) {
    const { accessToken, now } = deps;
    const { limit, headers, keyCalls } = dialect;
    const currentLimit = () => limit(this.#status?.version ?? null);
    const client = pacedClient(deps, currentLimit);
    this.now = now;
    this.#dialect = dialect;
    this.#client = client;
    this.get = getWithToken(client, accessToken, headers);
    this.#getRows = getWithToken(pacedClient(deps, currentLimit, "rows"), accessToken, headers);
    this.#keyActions = new NewApiKeyActions({ client, accessToken, headers, now, keyCalls });
  }

  async *walk(cursor: string | null, since: number): AsyncGenerator<Page> {
    const { quotaPerUnit, time } = await this.#readStatus();
    const { firstPage, pageSize, readRow } = this.#dialect;
    const ahead = time === null ? 0 : time - this.now();
    const source: LogSource = {
      get: this.#getRows,
      numbers: { first: firstPage },
      path: (page, { from, to }) =>
        `/api/log/self?p=${page}${pageSize}&type=0&start_timestamp=${from}&end_timestamp=${to}`,
      readRow: (raw) => readRow(raw, quotaPerUnit),
    };
    yield* walkLog(source, cursor, since + ahead, this.now() + ahead, this.#listed);
  }

  /** What the console lists as its keys. */
  protected async listKeys(
    about: string,
  ): Promise<{ readonly items: unknown[]; readonly quotaPerUnit: number }> {
    const { quotaPerUnit } = await this.#knownStatus();
    const { firstPage, pageSize } = this.#dialect;
    const path = (page: number) => `/api/token/?p=${page}${pageSize}`;
    return {
      items: await readAll(listPages(this.get, about, { first: firstPage }, path)),
      quotaPerUnit,
    };
  }

  async account(): Promise<AccountFacts> {
    return readAccount(this.get, await this.#knownStatus());
  }

  keyActions(): KeyActions {
    return this.#keyActions;
  }

  async #knownStatus(): Promise<SiteStatus> {
    return this.#status ?? this.#readStatus();
  }

  async #readStatus(): Promise<SiteStatus> {
    this.#status = await readStatus(this.#client);
    return this.#status;
  }
}

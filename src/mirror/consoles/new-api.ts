import type { Secret } from "../../secret.ts";
import { otherShape } from "./answers.ts";
import type { AccountFacts, AdapterDeps, ConsoleAdapter, ConsoleKey } from "./console.ts";
import { pacedClient } from "./http.ts";
import { asObject, countAt, type JsonObject, textAt, wholeAt } from "./json.ts";
import { allowanceOf } from "./new-api/allowance.ts";
import { type Ask, createAsk } from "./new-api/envelope.ts";
import { readKey, readMultipliers } from "./new-api/keys.ts";
import { microdollarsOf } from "./new-api/money.ts";
import { createPager, readAll } from "./new-api/pager.ts";
import { readNewApiRow } from "./new-api/row.ts";
import { readStatus, type SiteStatus } from "./new-api/status.ts";
import { timesOf, walkLog } from "./new-api/walk.ts";
import type { Span } from "./new-api/windows.ts";
import { cleanAt } from "./texts.ts";

export interface NewApiMeans extends AdapterDeps {
  readonly accessToken: Secret;
  /** The number of the access token's user; null: not told. */
  readonly user: string | null;
}

/** The header, and the end of an error's text. */
export const NEW_API_ID_NAMES: readonly string[] = ["x-oneapi-request-id", "error"];

const KEY_PAGES = 50;

export function createNewApi(means: NewApiMeans): ConsoleAdapter {
  const { accessToken, user, now } = means;
  // Versions after rc.21 no longer want it, and take no offence.
  const headers: Record<string, string> =
    user !== null && /^[\x21-\x7e]+$/.test(user) ? { "New-Api-User": user } : {};
  let status: SiteStatus | null = null;
  const client = pacedClient(means.client, means, () => allowanceOf(status?.version ?? null));
  const ask = createAsk({ client, accessToken, headers });
  const statusNow = async () => {
    status = await readStatus(client);
    return status;
  };
  return {
    kind: "new-api",
    idNames: NEW_API_ID_NAMES,
    // Up to rc.5 the id of another gateway behind this one overwrites its own in the answer.
    billsFailures: false,
    socketRowsHaveIds: true,
    async *walk(cursor, since) {
      const site = await statusNow();
      const times = timesOf(since, now(), site);
      const pages = createPager({ ask, about: "its usage log", zeroBased: false });
      const source = {
        counted: true,
        readRow: (raw: JsonObject) => readNewApiRow(raw, site.quotaPerUnit),
        pages: ({ from, to }: Span) =>
          pages(
            (p) => `/api/log/self?p=${p}&page_size=100&type=0&start_timestamp=${from}&end_timestamp=${to}`,
          ),
      };
      yield* walkLog(source, cursor, times);
    },
    async keys() {
      const { quotaPerUnit } = status ?? (await statusNow());
      return listKeys(ask, quotaPerUnit, now());
    },
    account: async () => readAccount(ask, await statusNow()),
  };
}

async function listKeys(ask: Ask, quotaPerUnit: number, now: number): Promise<ConsoleKey[]> {
  const about = "its keys";
  const pager = createPager({ ask, about, zeroBased: false });
  const listed = await readAll(
    pager((p) => `/api/token/?p=${p}&page_size=100`),
    KEY_PAGES,
  );
  const multiplierOf = await readMultipliers(ask);
  const keys = new Map<string, ConsoleKey>();
  for (const item of listed) {
    const raw = asObject(item) ?? {};
    const id = countAt(raw, "id");
    const facts = readKey(raw, quotaPerUnit, now);
    if (id === null || facts === null) continue;
    const group = textAt(raw, "group") ?? "";
    keys.set(`id:${id}`, {
      ref: `id:${id}`,
      ...facts,
      group: cleanAt(raw, "group"),
      multiplier: group === "" ? null : multiplierOf(group),
    });
  }
  if (listed.length > 0 && keys.size === 0) throw otherShape(about, "id");
  return [...keys.values()];
}

/** The same for both kinds. */
export async function readAccount(ask: Ask, status: SiteStatus): Promise<AccountFacts> {
  const about = "its account";
  const user = asObject(await ask("/api/user/self", about));
  if (user === null) throw otherShape(about, "data");
  const quota = wholeAt(user, "quota");
  return {
    balance: quota === null ? null : microdollarsOf(quota, status.quotaPerUnit),
    console_version: status.version,
  };
}

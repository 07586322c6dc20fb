import type { Secret } from "../../secret.ts";
import { otherShape } from "./answers.ts";
import type { AdapterDeps, ConsoleAdapter, ConsoleKey } from "./console.ts";
import { type Allowance, pacedClient } from "./http.ts";
import { asObject, type JsonObject } from "./json.ts";
import { type Ask, createAsk } from "./new-api/envelope.ts";
import { readKey } from "./new-api/keys.ts";
import { createPager, readAll } from "./new-api/pager.ts";
import { readStatus } from "./new-api/status.ts";
import { timesOf, walkLog } from "./new-api/walk.ts";
import type { Span } from "./new-api/windows.ts";
import { NEW_API_ID_NAMES, readAccount } from "./new-api.ts";
import { readOneApiRow } from "./one-api/row.ts";

export interface OneApiMeans extends AdapterDeps {
  readonly accessToken: Secret;
}

/** An address may call 480 times in three minutes; 40 calls are left to the owner's browser. */
const ALLOWANCE: Allowance = { calls: 440, milliseconds: 180_000 };
const KEY_PAGES = 50;

/** What new-api grew from: ten rows a page, nobody counts them, and keys have nothing but their names. */
export function createOneApi(means: OneApiMeans): ConsoleAdapter {
  const { accessToken, now } = means;
  const client = pacedClient(means.client, means, () => ALLOWANCE);
  const ask = createAsk({ client, accessToken });
  return {
    kind: "one-api",
    idNames: NEW_API_ID_NAMES,
    billsFailures: false,
    socketRowsHaveIds: false,
    async *walk(cursor, since) {
      const site = await readStatus(client);
      const times = timesOf(since, now(), site);
      const pages = createPager({ ask, about: "its usage log", zeroBased: true });
      const source = {
        counted: false,
        readRow: (raw: JsonObject) => readOneApiRow(raw, site.quotaPerUnit),
        pages: ({ from, to }: Span) =>
          pages((p) => `/api/log/self?p=${p}&type=0&start_timestamp=${from}&end_timestamp=${to}`),
      };
      yield* walkLog(source, cursor, times);
    },
    async keys() {
      const { quotaPerUnit } = await readStatus(client);
      return listKeys(ask, quotaPerUnit, now());
    },
    account: async () => readAccount(ask, await readStatus(client)),
  };
}

/** Two keys of one name are both listed: which of them a row belongs to cannot be told, and whoever reads this sees it. */
async function listKeys(ask: Ask, quotaPerUnit: number, now: number): Promise<ConsoleKey[]> {
  const about = "its keys";
  const pager = createPager({ ask, about, zeroBased: true });
  const listed = await readAll(
    pager((p) => `/api/token/?p=${p}`),
    KEY_PAGES,
  );
  const keys: ConsoleKey[] = [];
  const seen = new Set<unknown>();
  for (const item of listed) {
    const raw = asObject(item) ?? {};
    const facts = readKey(raw, quotaPerUnit, now);
    // A key that is made while pages are read pushes another onto the next page, where it is met again.
    if (facts === null || seen.has(raw.id)) continue;
    if (raw.id !== undefined) seen.add(raw.id);
    keys.push({ ref: `name:${facts.name}`, ...facts, group: null, multiplier: null });
  }
  if (listed.length > 0 && keys.length === 0) throw otherShape(about, "name");
  return keys;
}

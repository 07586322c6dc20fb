import { bodyOf } from "../answers.ts";
import type { AccountFacts, AdapterMeans, ConsoleAdapter } from "../console.ts";
import { objectAt } from "../json.ts";
import { cleanAt } from "../texts.ts";
import { dataOf } from "./envelope.ts";
import { listKeys } from "./key-list.ts";
import { moneyAt } from "./money.ts";
import { createPace } from "./pace.ts";
import type { Sub2apiSession } from "./session.ts";
import { createUsagePages } from "./usage-page.ts";
import { walkUsage } from "./walk.ts";

export type Sub2apiMeans = AdapterMeans & { readonly session: Sub2apiSession };

export function createSub2api(means: Sub2apiMeans): ConsoleAdapter {
  const { session, wire, now } = means;
  const pages = createUsagePages(session, createPace(means));

  async function version(): Promise<string | null> {
    const answer = await wire.ask({ method: "GET", path: "/api/v1/settings/public", bearer: null });
    const data = answer.status === 200 ? objectAt(bodyOf(answer) ?? {}, "data") : null;
    return data === null ? null : cleanAt(data, "version");
  }

  return {
    kind: "sub2api",
    // The second for versions before 0.1.88, whose rows have no other id.
    idNames: ["x-client-request-id", "x-request-id"],
    billsFailures: false,
    socketRowsHaveIds: false,
    walk: (mark, since) => walkUsage({ pages, now }, mark, since),
    keys: () => listKeys(session),
    async account(): Promise<AccountFacts> {
      const answer = await session.ask("/api/v1/auth/me");
      const balance = answer.status === 404 ? null : moneyAt(dataOf(answer, "the account"), "balance");
      return { balance, console_version: await version() };
    },
  };
}

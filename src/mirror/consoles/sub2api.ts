import { bodyOf } from "./answers.ts";
import type { AccountFacts, AdapterDeps, ConsoleAdapter } from "./console.ts";
import { type Allowance, CallHistory } from "./http.ts";
import { objectAt } from "./json.ts";
import { dataOf } from "./sub2api/envelope.ts";
import { listKeys } from "./sub2api/key-list.ts";
import { moneyAt } from "./sub2api/money.ts";
import { createUsagePages } from "./sub2api/usage-page.ts";
import { walkUsage } from "./sub2api/walk.ts";
import type { Sub2apiSession } from "./sub2api-session.ts";
import { cleanAt } from "./texts.ts";

export type Sub2apiMeans = Omit<AdapterDeps, "calls"> & { readonly session: Sub2apiSession };

/**
 * The panel allows an account 60 calls in a minute under /usage (0.1.179), and its owner may be looking at it in a browser.
 * Fixed windows: what stays below this in every minute stays below it in theirs.
 */
const USAGE_ALLOWANCE: Allowance = { calls: 50, milliseconds: 60_000 };

export function createSub2api(means: Sub2apiMeans): ConsoleAdapter {
  const { session, client, now } = means;
  // Of this account alone: the panel counts by user, not by address.
  const calls = new CallHistory();
  const pages = createUsagePages(session, () => calls.wait(USAGE_ALLOWANCE, means));

  async function version(): Promise<string | null> {
    const answer = await client.send({ method: "GET", path: "/api/v1/settings/public", bearer: null });
    const data = answer.status === 200 ? objectAt(bodyOf(answer) ?? {}, "data") : null;
    return data === null ? null : cleanAt(data, "version");
  }

  return {
    kind: "sub2api",
    // The second for versions before 0.1.88, whose rows have no other id.
    idNames: ["x-client-request-id", "x-request-id"],
    billsFailures: false,
    socketRowsHaveIds: false,
    walk: (cursor, since) => walkUsage({ pages, now }, cursor, since),
    keys: () => listKeys(session),
    async account(): Promise<AccountFacts> {
      const answer = await session.ask("/api/v1/auth/me");
      const balance = answer.status === 404 ? null : moneyAt(dataOf(answer, "the account"), "balance");
      return { balance, console_version: await version() };
    },
  };
}

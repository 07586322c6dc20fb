import type Database from "libsql";
import t from "tap";
import type { ConsoleAdapter } from "../../src/mirror/consoles/console.ts";
import { Syncer } from "../../src/mirror/sync/syncer.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { heldClock } from "../keys/held-clock.ts";

/** A database without anything in it. */
const EMPTY = { prepare: () => ({ raw: () => ({ get: () => undefined }) }) } as unknown as Database.Database;

function adapterWith(rowsPerKey: number | null): ConsoleAdapter {
  return {
    kind: "new-api",
    idNames: [],
    billsFailures: false,
    socketRowsHaveIds: false,
    async *walk() {},
    keys: async () => null,
    account: async () => ({ balance: null, console_version: null }),
    ...(rowsPerKey === null ? {} : { rowsPerKey }),
  };
}

t.test("a key whose own traffic nears what the console lists of it is read before its time", async (t) => {
  for (const [rowsPerKey, calls, syncs] of [
    [1000, 500, 1],
    [1000, 700, 2],
    [null, 5000, 1],
  ] as const) {
    const clock = heldClock();
    let done = 0;
    const since: number[] = [];
    const syncer = new Syncer({
      gateway: "main",
      clock,
      log: quietLog(),
      database: { ask: (question) => question(EMPTY) },
      prepare: async () => {},
      connect: async () => adapterWith(rowsPerKey),
      since: () => 0,
      onKeys: () => {},
      onRows: async () => {
        done += 1;
      },
      onFailed: () => {},
      busiestKey: async (from) => {
        since.push(from);
        return calls;
      },
    });
    t.teardown(() => syncer.stop());
    await syncer.lookEarly();
    t.equal(done, 0, "not before the first sync, which is on its way");
    await syncer.sync();
    const synced = clock.now();
    clock.pass(60_000);
    await syncer.lookEarly();
    t.equal(done, syncs, `${calls} calls, ${rowsPerKey} rows`);
    t.strictSame(since, rowsPerKey === null ? [] : [synced]);
  }
});

import { setTimeout as pause } from "node:timers/promises";
import t from "tap";
import { until } from "../../doubles/until.ts";
import { closing, isSound, opening, recordsIn, startLedger } from "./ledger-under-test.ts";

for (const sync of ["normal", "full"] as const)
  t.test(
    `a file that may not grow is a full disk: nothing new is let in, what runs is kept, and it comes back (${sync})`,
    async (t) => {
      const { ledger, file } = startLedger(t, { sync });
      const running = opening();
      t.equal(await ledger.open(running), true);
      const pages = Number(ledger.ask((db) => db.prepare("PRAGMA log.page_count").raw().get())?.toString());
      ledger.ask((db) =>
        db
          .prepare(`PRAGMA log.max_page_count = ${pages + 2}`)
          .raw()
          .get(),
      );

      const opened: string[] = [];
      let refused = 0;
      for (let n = 0; n < 500 && refused === 0; n += 1) {
        const one = opening({ endpoint: `/v1/${"x".repeat(2000)}` });
        if (await ledger.open(one)) opened.push(one.id);
        else refused += 1;
        // What is only noted is soon to be written.
        await pause(1);
      }
      t.equal(refused, 1, "a record that cannot be written is not opened");
      t.ok(opened.length > 0);
      t.equal(ledger.available(), false);
      t.match(ledger.state(), { condition: "unavailable", reason: /full/ });
      ledger.close(running.id, closing());
      t.equal(ledger.state().waiting, 1, "what has ended meanwhile waits");

      // The connection is made anew at every try, without the bound: the disk is back.
      await until("it can be written again", () => ledger.available());
      t.equal(await ledger.open(opening()), true);
      await until("what waited is there", () =>
        recordsIn(file).some(({ id, end }) => id === running.id && end !== null),
      );
      const ids = new Set(recordsIn(file).map(({ id }) => id));
      t.ok(
        opened.every((id) => ids.has(id)),
        "and so is all that was let in",
      );
      t.equal(ledger.state().lost, 0);
      t.ok(isSound(file));
    },
  );

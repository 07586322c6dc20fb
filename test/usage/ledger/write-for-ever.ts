import { setTimeout as wait } from "node:timers/promises";
import { pino } from "pino";
import { systemClock } from "../../../src/clock.ts";
import { createLedger } from "../../../src/usage/ledger/ledger.ts";
import { closing, opening, REFUSED, turn } from "./ledger-under-test.ts";

// Run by a test, and killed by it: so many requests at once, each opened and closed, until then. Tells what is done.
const file = process.argv[2];
if (file === undefined) throw new Error("the test that runs this names the file");
const ledger = createLedger({
  file,
  clock: systemClock,
  log: pino({ level: "silent" }),
  keep: () => 400 * 86_400_000,
  sync: "normal",
});

async function requests(): Promise<never> {
  for (;;) {
    const one = opening();
    if (await ledger.open(one)) {
      process.send?.({ opened: one.id });
      await wait(Math.random() * 5);
      ledger.close(one.id, closing());
      await turn();
      if (ledger.available()) process.send?.({ closed: one.id });
    } else {
      process.send?.({ refused: one.id });
      ledger.add(one, REFUSED);
      await wait(200);
    }
  }
}

// Node ignores the signal of a file that may not grow; what the test runner loads into this process does not.
process.on("SIGXFSZ", () => {});
setInterval(() => process.send?.({ state: ledger.state() }), 100);
process.on("message", () => void ledger.stop().then(() => process.exit(0)));
process.send?.({ state: ledger.state() });
await Promise.all(Array.from({ length: 20 }, requests));

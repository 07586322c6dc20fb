// A process that queues alerts for a receiver, says so, and is killed before any is delivered.
import { systemClock } from "../../src/core/clock.ts";
import { createTicker } from "../../src/core/ticker.ts";
import { Notifier } from "../../src/notify/notifier.ts";
import { eventOf, NO_DESKTOP, trustedSnapshot } from "../doubles/alerts.ts";
import { quietLog } from "../doubles/quiet-log.ts";

const [, , file = "", notify = "", count = "1"] = process.argv;
const notifier = new Notifier(
  {
    file,
    clock: systemClock,
    ticker: createTicker(),
    log: quietLog(),
    env: {},
    desktop: NO_DESKTOP,
    isSandbox: () => false,
  },
  trustedSnapshot(notify),
);
for (let number = 1; number <= Number(count); number += 1)
  notifier.notify(eventOf({ message: `alert ${number}` }));
// No turn of the event loop has passed, so nothing was sent.
process.kill(process.pid, "SIGKILL");

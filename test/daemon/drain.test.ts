import t from "tap";
import { Drain } from "../../src/daemon/drain.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { quietLog } from "../doubles/quiet-log.ts";

const HOUR_MS = 3_600_000;

t.test(
  "requests have the time since the stop began, and not what earlier steps took of it again",
  async (t) => {
    for (const leftMs of [0, 50]) {
      const clock = heldClock();
      const lines: string[] = [];
      let end = () => {};
      const drained = new Promise<void>((resolve) => {
        end = resolve;
      });
      const drain = new Drain({
        clock,
        log: quietLog(lines),
        port: { drain: () => drained, cut: () => end() },
        inFlight: { size: 1, cutAll: () => {} },
      });
      t.equal(drain.leftSeconds(), null);
      drain.begin(HOUR_MS);
      t.equal(drain.leftSeconds(), 3600);
      clock.pass(HOUR_MS - leftMs);
      await drain.finish();
      t.equal(
        lines.some((line) => line.includes("waiting for 1 request, 1 s left")),
        leftMs > 0,
      );
      clock.pass(HOUR_MS);
      t.equal(drain.leftSeconds(), 0);
    }
  },
);

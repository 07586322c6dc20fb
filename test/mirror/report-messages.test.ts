import t from "tap";
import { formatReason } from "../../src/mirror/report/messages.ts";

/** By the local calendar, as a person types it. */
const at = (day: number, hour: number, minute: number) => new Date(2026, 10, day, hour, minute).getTime();
const stored = (time: number) => `${new Date(time).toISOString().slice(0, 16)}Z`;

t.test("a stored reason is shown with local times, and with the date on another day", (t) => {
  const now = at(14, 15, 0);
  const reason = `cannot see: desktop since ${stored(at(3, 9, 30))}, laptop since ${stored(at(14, 14, 2))}`;
  t.equal(formatReason(reason, now), "cannot see: desktop since 2026-11-03 09:30, laptop since 14:02");
  t.equal(
    formatReason(reason, at(15, 0, 0)),
    "cannot see: desktop since 2026-11-03 09:30, laptop since 2026-11-14 14:02",
  );
  t.equal(formatReason("cannot see: server since it joined", now), "cannot see: server since it joined");
  t.end();
});

t.test("other reasons are not changed, whatever the model is called", (t) => {
  const reason = "the console lists model 2026-11-14T14:02Z, asked for was gpt-5.1";
  t.equal(formatReason(reason, at(15, 0, 0)), reason);
  t.end();
});

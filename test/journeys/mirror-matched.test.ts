import t from "tap";
import { EVERY_CONSOLE, FEW_CONSOLES } from "../doubles/consoles/start-console.ts";
import { LONG } from "../doubles/effort.ts";
import { startJourney } from "../doubles/mirror-journey.ts";
import { recordsIn } from "../doubles/usage-file.ts";

const COUNTS = {
  "x-test-input": "21",
  "x-test-output": "8",
  "x-test-cache-read": "6",
  "x-test-cache-write": "3",
};

for (const name of LONG ? EVERY_CONSOLE : FEW_CONSOLES) {
  t.test(`${name}: each request that passed is matched, and nothing else has a verdict`, async (t) => {
    const journey = await startJourney(t, name);
    await journey.idle();
    const routes = ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings"];
    const billed: string[] = [];
    for (const path of routes) {
      for (const stream of path === "/v1/embeddings" ? [false] : [false, true]) {
        const answer = await journey.ask(COUNTS, { path, stream });
        // Not every kind has every endpoint.
        if (answer.status === 200) billed.push(answer.id);
        journey.clock.pass(2000);
      }
    }
    t.equal(billed.length, name === "one-api" ? 2 : 4, "one for each protocol that it has");
    await journey.ask({}, { path: "/v1/messages/count_tokens" });
    await journey.ask({}, { path: "/v1/models", method: "GET" });
    // new-api lists failed requests, too.
    const failed = [
      await journey.ask({ "x-test-status": "503" }, { path: "/v1/messages" }),
      await journey.ask({ "x-test-status": "429" }),
    ];
    await journey.ask({ authorization: "Bearer kb_nobody" });
    journey.clock.pass(2000);

    const status = await journey.sync();
    t.equal(status.state, "ok", status.why ?? "");
    const report = await journey.mirror();
    const { by_id, by_pair, by_sum } = report.rows;
    const all = billed.length + (name.startsWith("new-api") ? failed.length : 0);
    t.equal(by_id + by_pair + by_sum, all, JSON.stringify(report.rows));
    t.equal(by_id, name === "sub2api without ids" ? 0 : all, "by id where it hands out ids");
    const { foreign_certain, foreign_suspected, differs, pending } = report.rows;
    t.strictSame(
      [foreign_certain, foreign_suspected, differs, pending],
      [0, 0, 0, 0],
      JSON.stringify(report.rows),
    );
    t.strictSame(report.records, { matched: all, differs: 0, pending: 0, missing: 0 });
    t.strictSame(status.alarms, []);
    const records = recordsIn(journey.paths.usage);
    for (const record of records) {
      const { id, endpoint, status, billed_microdollars: money, tokens_from } = record;
      // Without ids, requests with the same numbers cannot be distinguished.
      if (name === "sub2api without ids" && money === null) continue;
      const expected = billed.includes(id) ? 196 : failed.some((one) => one.id === id) ? money && 0 : null;
      t.equal(money, expected, `${endpoint} ${status}`);
      if (billed.includes(id)) t.equal(tokens_from, "reported");
    }

    journey.clock.pass(20 * 60_000);
    await journey.sync();
    const later = await journey.mirror();
    t.strictSame(later.rows, report.rows, "time changes nothing");
    t.strictSame(later.records, report.records);
    t.strictSame(await journey.diff(), []);
  });
}

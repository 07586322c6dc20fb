import { readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { hang, leave, MINUTE, type MirrorJourney, startJourney } from "../doubles/mirror-journey.ts";
import { ROOT } from "../doubles/paths.ts";
import { until } from "../doubles/until.ts";
import { recordsIn } from "../doubles/usage-file.ts";
import { checkWithPromtool, findFaults, parseScrape } from "./scrape.ts";

/* One daemon with a console: every metric has a value there. */

async function scrape({ daemon }: MirrorJourney): Promise<string> {
  const address = (await daemon.status()).metrics?.address ?? "";
  return (await fetch(address.replace("localhost", "127.0.0.1"))).text();
}

function valuesOf(text: string, name: string): Record<string, number> {
  const found = parseScrape(text).filter((sample) => sample.name === name);
  return Object.fromEntries(found.map(({ labels, value }) => [Object.values(labels).join(" "), value]));
}

interface Target {
  readonly expr: string;
  readonly legendFormat: string;
}

/** The queries of the Grafana dashboard, with Grafana's own variables filled in. */
function dashboardQueries(): Target[] {
  const { panels, templating } = JSON.parse(readFileSync(join(ROOT, "docs/grafana-dashboard.json"), "utf8"));
  const targets = (panels as { targets: Target[] }[]).flatMap((panel) => panel.targets);
  const variables = (templating.list as { query: { query?: string } }[]).flatMap(
    ({ query }) => query.query ?? [],
  );
  return [...targets, ...variables.map((expr) => ({ expr, legendFormat: "" }))];
}

t.test("rows of a console are counted by verdict, and a correction lowers no counter", async (t) => {
  const journey = await startJourney(t, "sub2api", { more: ["metrics: { listen: localhost:0 }"] });
  await journey.idle();
  await journey.ask({ "x-test-input": "21", "x-test-output": "8" });
  journey.clock.pass(2000);
  await leave(journey, "in-body", { "x-test-input": "4000", "x-test-output": "900" });
  await journey.ask({ "x-test-status": "500" });
  await journey.ask({ authorization: "Bearer kb_nobody" });
  await until("all have ended", () => journey.ended().length === 4);
  const before = await scrape(journey);
  const none = { "main foreign": 0, "main suspected": 0 };
  t.same(valuesOf(before, "keybearer_mirror_rows_total"), none, "no row was read yet");
  const recordsBefore = recordsIn(journey.paths.usage);

  journey.clock.pass(2000);
  journey.elsewhere();
  await journey.sync();
  journey.clock.pass(20 * MINUTE);
  await journey.sync();
  const report = await journey.mirror();
  const after = await scrape(journey);
  const rows = valuesOf(after, "keybearer_mirror_rows_total");
  const { by_id, by_pair, by_sum, presumed, foreign_certain, foreign_suspected } = report.rows;
  t.equal(rows["main matched"] ?? 0, by_id + by_pair + by_sum + presumed, JSON.stringify(report.rows));
  t.equal((rows["main foreign"] ?? 0) + (rows["main suspected"] ?? 0), foreign_certain + foreign_suspected);
  t.equal(foreign_certain + foreign_suspected, 1);

  const recordsAfter = recordsIn(journey.paths.usage);
  t.not(JSON.stringify(recordsAfter), JSON.stringify(recordsBefore), "the console corrected records");
  const samplesAfter = new Map(
    parseScrape(after).map(({ name, labels, value }) => [`${name}${JSON.stringify(labels)}`, value]),
  );
  for (const { name, labels, value } of parseScrape(before)) {
    if (!/_(?:total|count|sum|bucket)$/.test(name) || name === "keybearer_mirror_rows_total") continue;
    const later = samplesAfter.get(`${name}${JSON.stringify(labels)}`);
    t.equal(later, value, `${name} ${JSON.stringify(labels)} is as it was`);
  }
  const [syncedAt] = Object.values(valuesOf(after, "keybearer_last_sync_timestamp_seconds"));
  t.equal(syncedAt, ((await journey.status()).consoles[0]?.last_sync ?? 0) / 1000);
  await journey.sync();
  t.same(valuesOf(await scrape(journey), "keybearer_mirror_rows_total"), rows, "the same rows count once");

  const asking = await hang(journey, "in-body");
  t.same(valuesOf(await scrape(journey), "keybearer_requests_in_flight"), { codex: 1 });
  asking.destroy();
  await until(
    "it has ended",
    async () => valuesOf(await scrape(journey), "keybearer_requests_in_flight").codex === 0,
  );
});

t.test(
  "every query of the Grafana dashboard names metrics and labels of a scrape, and promtool finds no fault",
  async (t) => {
    const journey = await startJourney(t, "sub2api", {
      more: ["metrics: { listen: localhost:0 }", "prices: { m: { input: 1, output: 2 } }"],
      tools: { codex: "limits: { requests: 100/day }" },
    });
    await journey.idle();
    await journey.ask({ "x-test-input": "21", "x-test-output": "8" });
    await journey.ask({ authorization: "Bearer kb_nobody" });
    journey.clock.pass(2000);
    await journey.sync();
    await until("its row has a verdict", async () =>
      (await scrape(journey)).includes("keybearer_mirror_rows_total{"),
    );
    const text = await scrape(journey);
    t.same(findFaults(text), []);
    const labels = new Map<string, Set<string>>();
    for (const sample of parseScrape(text)) {
      const known = labels.get(sample.name) ?? new Set();
      for (const label of Object.keys(sample.labels)) known.add(label);
      labels.set(sample.name, known);
    }
    const families = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) =>
      type === "histogram" ? `${name}_bucket` : String(name),
    );
    const queries = dashboardQueries();
    const shown = new Set<string>();
    for (const { expr, legendFormat } of queries) {
      const names = [...expr.matchAll(/\b(?:keybearer|gen_ai_client)_\w+/g)].map(([name]) => name);
      t.not(names.length, 0, expr);
      const known = new Set<string>();
      for (const name of names) {
        t.ok(labels.has(name), `${name} is in a scrape`);
        shown.add(name);
        for (const label of labels.get(name) ?? []) known.add(label);
      }
      const matchers = [...expr.matchAll(/(\w+)(?:=~|!=|!~|=)"/g)].map(([, label]) => label);
      const groups = [...expr.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list = ""]) => list.split(/, */));
      const legend = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label);
      for (const label of [...matchers, ...groups, ...legend])
        t.ok(known.has(label ?? ""), `${label} in ${expr}`);
    }
    t.strictSame(
      families.filter((name) => !shown.has(name)),
      [],
      "the dashboard shows every metric",
    );
    const documented = readFileSync(join(ROOT, "docs/metrics.md"), "utf8");
    for (const name of families)
      t.match(documented, name.replace(/_bucket$/, ""), `docs/metrics.md has ${name}`);
    const checked = checkWithPromtool(text);
    const skip = checked === null ? "promtool is not installed: apt-get install prometheus" : false;
    await t.test("promtool check metrics", { skip }, async (t) =>
      t.strictSame(checked, { code: 0, said: "" }),
    );
  },
);

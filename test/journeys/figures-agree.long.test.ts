import t from "tap";
import type { Now, UsageChart } from "../../src/dashboard/api.ts";
import { amountIn } from "../../src/dashboard/page/components/chart-layers.ts";
import { statusFigures } from "../../src/limits/format.ts";
import { command } from "../doubles/command.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { visit } from "../doubles/dashboard-visit.ts";
import { examineHome } from "../doubles/doctor.ts";
import { caller, startPlayGateway } from "../doubles/limited-journey.ts";
import { until } from "../doubles/until.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

/* One amount has one text, and one tool one state, wherever they are shown. */

// No day may end during a test.
process.env.TZ = zoneAtNoon();

/** Every answer reports 7 tokens in and 5 out: $0.017. */
const PRICE = "{ input: 1000, output: 2000, cache_read: 1000, cache_write: 1000 }";

t.test("a limit, a sum that lacks something, a tool and a gateway read the same everywhere", async (t) => {
  const gateway = await startPlayGateway(t);
  const limited = freshToken();
  const free = freshToken();
  const config = `dashboard: { listen: localhost:0 }
gateways: { main: { base_url: "${gateway.baseUrl}" } }
prices: { penny: ${PRICE} }
tools:
  codex: { key: sk-codex-0123456789, token: "${limited.hash}", limits: { spend: $0.01/day } }
  free: { key: sk-free-0123456789, token: "${free.hash}" }
`;
  const under = await startUnderTest(t, config);
  const { home, paths } = under;
  const print = async (...args: string[]) => (await command(t, home, args)).stdout;
  await until("the log is indexed", async () => (await under.daemon.status()).gateways[0]?.before !== null);
  t.match(await print("status"), /^main +no request yet +2 +http/m);

  const call = caller(under.url, limited.token);
  t.equal((await call()).status, 200);
  await until("it is settled", async () => (await under.daemon.status()).tools[0]?.running === 0);
  const refused = await call();
  t.equal(refused.refusal, "spend-limited");
  t.match(refused.text, "at its limit of $0.01 per day: $0.017 of $0.01 used, this request may use $0.01.");
  t.equal((await call({ token: free.token, play: "no-usage" })).status, 200);

  const [codex, other] = (await under.daemon.status()).tools;
  t.match(codex, { state: "at-limit", why: /^spend\/day is used up: \$0\.017 of \$0\.01, resets / });
  t.equal(other?.state, "active");
  const tools = await print("tools");
  t.match(tools, /^codex +at-limit /m);
  t.match(tools, / \$0\.017\/\$0\.01 /);
  const notes = tools.match(
    /spend\/day is used up: \$0\.017 of \$0\.01, resets [^→]*→ keybearer tools lift/g,
  );
  t.equal(notes?.length, 1, "it is said once");
  const status = await print("status");
  t.match(status, /^codex +at-limit /m);
  t.match(status, /^codex: spend\/day is used up: \$0\.017 of \$0\.01, resets /m);
  const findings = await examineHome(paths);
  t.match(
    findings.filter(({ id }) => id === "limit"),
    [{ level: "warning", about: "tool codex", what: /^spend\/day is used up: \$0\.017 of \$0\.01/ }],
  );

  // The page writes these figures with the same functions.
  const { get } = await visit(paths.socket);
  let now: Now | undefined;
  await until("the page has both requests", async () => {
    now = (await get("/api/now")).json<Now>();
    return now.today?.total.requests === 3;
  });
  t.match(now?.today?.total, { cost_microdollars: 17_000, unknown_cost: 1 });
  const [shown] = now?.status.tools ?? [];
  t.match(shown, { state: "at-limit", limits: [{ limit: "spend", used: 17_000, most: 10_000 }] });
  const [limit] = shown?.limits ?? [];
  if (limit !== undefined) t.match(statusFigures(limit), { used: "$0.017", max: "$0.01" });
  const { series, total } = (await get("/api/usage?bin=day&by=tool")).json<UsageChart>();
  t.match(total, { cost_microdollars: 17_000, unpriced: 0, unmetered: 1 });
  const amount = amountIn("money");
  t.same(
    series.map((one) => [one.name, amount(one.cost_microdollars.at(-1) ?? 0, one.unknown_cost.at(-1))]),
    [
      ["codex", "$0.017"],
      ["free", "$?"],
    ],
  );
  const usage = await print("usage");
  t.match(usage, /^codex .* \$0\.017 {6}/m);
  t.match(usage, /^free .* \$\? /m);
  t.match(usage, /^sum .* \$0\.017 \+ \? /m);
  t.match(usage, /^3 requests, \$0\.017 \+ \?$/m);
  t.match(await print("status"), /^main +reachable +2 +http/m);

  await under.daemon.stop(0);
  const again = await startUnderTest(t, config, { home });
  const [main] = (await again.daemon.status()).gateways;
  t.match(
    main,
    { state: "unknown", before: { requests_today: 2 } },
    "a refusal is no request to the gateway",
  );
  t.match(await print("status"), /^main +2 today, none since start +2 +http/m);
  t.match((await again.daemon.status()).tools[0], { state: "at-limit" });
  t.equal((await caller(again.url, free.token)()).status, 200);
  await until(
    "it is known again",
    async () => (await again.daemon.status()).gateways[0]?.state === "reachable",
  );
  t.equal((await again.daemon.status()).gateways[0]?.before, null, "the log is not read any more");
});

import t from "tap";
import type { CandidateName } from "./candidates/candidate.ts";
import { inTurn } from "./measures/rounds.ts";
import { readOptions } from "./options.ts";
import { LATENCY_LOAD, RATIO_LOAD, RATIO_STREAMS } from "./plan.ts";
import { inSvg } from "./report/chart.ts";
import { inJson } from "./report/json.ts";
import { isMet, isWide, RATIO_NAMES, ratiosOf } from "./report/ratios.ts";
import type { Measured, Setting } from "./report/result.ts";
import { median, percentile, quotients } from "./report/statistics.ts";
import { inWords } from "./report/table.ts";
import { BODY_SIZES, plainAnswer, requestBody } from "./upstream/bodies.ts";

const way = { url: "", headers: {} };
const loaded = (rps: number, p50Ms: number) => ({
  ...{ rps, p50Ms, requests: rps, p99Ms: 2 * p50Ms, errors: 0, cpuMicroseconds: 100 },
});
const under = (candidate: CandidateName, load: typeof RATIO_LOAD | typeof LATENCY_LOAD, rps: number[]) => ({
  ...{ candidate, ...load, rounds: rps.map((one) => loaded(one, 1000 / one)) },
});
const streams = (candidate: CandidateName, delays: number[]) => ({
  ...{ candidate, streams: RATIO_STREAMS },
  rounds: delays.map((delay) => ({
    ...{ firstByteP50Ms: 1, firstByteP99Ms: 2, delayP50Ms: delay / 2, delayP99Ms: delay },
    ...{ events: 1000, broken: 0, rssDuring: 9e7, rssAfter: 8e7 },
  })),
});
const idle = (candidate: CandidateName, rssBytes: number) => ({
  ...{ candidate, rssBytes, seconds: 3, cpuMs: 1, wakeUpsPerSecond: 1 },
});

/** The second round was slow for both: their quotient does not show it. */
const measured: Measured = {
  loads: [
    under("http-proxy-3", RATIO_LOAD, [4000, 1000, 4000]),
    under("keybearer", RATIO_LOAD, [3200, 800, 3600]),
    under("portkey", RATIO_LOAD, [400, 100, 400]),
    under("http-proxy-3", LATENCY_LOAD, [2000, 2000, 2000]),
    under("keybearer", LATENCY_LOAD, [1000, 1000, 1000]),
  ],
  streams: [streams("http-proxy-3", [2, 2]), streams("keybearer", [3, 5])],
  downloads: [{ candidate: "keybearer", rounds: [1e9] }],
  starts: [
    { candidate: "node -e 0", rounds: [40, 40] },
    { candidate: "keybearer", rounds: [240, 280] },
  ],
  idle: [idle("node", 40e6), idle("keybearer", 80e6)],
  flat: [],
  reload: null,
  house: { reports: null, ledger: [], sync: null, match: [] },
};

const setting: Setting = {
  machine: { processor: "a <b> & c", cores: 2, memoryBytes: 8e9, system: "x", node: "20", loadBefore: 3 },
  ...{ date: "2026-11-15T12:00:00.000Z", quick: true, rounds: 3, secondsEach: 1 },
  ...{ loadGenerator: "wrk 4", upstream: "nginx 1" },
  contenders: [{ name: "portkey", title: "portkey", version: "1", bodiesUnchanged: false }],
  missing: [{ name: "nginx", why: "nginx is not installed" }],
};

t.test("the ratios are those of each round, and keep their names and order", (t) => {
  const ratios = ratiosOf(measured);
  const { ratios: told, spread } = JSON.parse(inJson(setting, measured, ratios));
  t.same(Object.keys(told), [
    ...["rps_vs_http_proxy_3", "rps_vs_portkey", "rps_vs_nginx", "added_p50_ms"],
    ...["event_delay_p99_vs_http_proxy_3", "rss_idle_vs_node", "startup_vs_node"],
  ]);
  t.same(told, {
    ...{ rps_vs_http_proxy_3: 0.8, rps_vs_portkey: 8, rps_vs_nginx: null, added_p50_ms: 0.5 },
    ...{ event_delay_p99_vs_http_proxy_3: 2, rss_idle_vs_node: 2, startup_vs_node: 6.5 },
  });
  t.same(spread.rps_vs_http_proxy_3, { least: 0.8, most: 0.9 });
  t.equal(spread.rps_vs_nginx, null, "who was not measured has no spread");
  t.same(
    RATIO_NAMES.map((name) => isMet(name, ratios[name])),
    [true, true, null, false, false, false, true],
  );
  t.equal(isWide({ median: 2, least: 1.5, most: 2.5 }), true);
  t.equal(isWide({ median: 2, least: 1.8, most: 2.2 }), false);
  t.end();
});

t.test("the table names who was not measured, what was not met, and that others were at work", (t) => {
  const table = inWords(setting, measured, ratiosOf(measured));
  t.match(table, /not measured: nginx, because nginx is not installed/);
  t.match(table, /added_p50_ms +0\.50 +at most 0\.15 +not met/);
  t.match(table, /others were at work/);
  t.match(table, /writes bodies anew/);
  t.notMatch(table, /NaN|undefined|null/);
  t.end();
});

t.test("the chart is well-formed, and carries machine, versions and date", (t) => {
  const svg = inSvg(setting, measured);
  t.match(svg, /a &lt;b> &amp; c, 2 cores/);
  t.match(svg, /2026-11-15/);
  t.match(svg, /portkey 1/);
  t.notMatch(svg, /NaN|undefined|Infinity/);
  t.end();
});

t.test("statistics, sizes, turns and options", (t) => {
  t.equal(median([3, 1, 2]), 2);
  t.equal(median([1, 2]), 1.5);
  t.equal(percentile([1, 2, 3, 4], 0.5), 2);
  t.equal(percentile([1, 2, 3, 4], 0.99), 4);
  t.same(quotients([2, 4], [1, 2, 3]), [2, 2]);
  for (const bytes of Object.values(BODY_SIZES)) t.equal(requestBody(bytes).length, bytes);
  t.equal(plainAnswer().length, 800);
  const all = (["nginx", "keybearer", "portkey"] as const).map((name) => ({
    ...{ name, title: "", version: "", child: null, startMs: 0 },
    ways: { plain: way, stream: way, download: way },
  }));
  t.same(
    inTurn(all, 1, ["nginx", "portkey"]).map(({ name }) => name),
    ["portkey", "nginx"],
  );
  t.match(readOptions(["--quick", "--json", "--without", "wrk"]), {
    quick: true,
    json: true,
    without: ["wrk"],
  });
  t.throws(() => readOptions(["--fast"]), /--fast/);
  t.throws(() => readOptions(["--rounds", "many"]), /1 to 99/);
  t.end();
});

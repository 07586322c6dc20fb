import t from "tap";
import type { CandidateName } from "./candidates/candidate.ts";
import { alternating, inTurn } from "./measures/rounds.ts";
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
/** @param first the number of its first slice; the others are two further each, with somebody else's between them. */
const under = (
  candidate: CandidateName,
  load: typeof RATIO_LOAD | typeof LATENCY_LOAD,
  first: number,
  rps: number[],
) => ({
  ...{ candidate, ...load },
  slices: rps.map((one, at) => ({ ...loaded(one, 1000 / one), round: 0, slice: first + 2 * at })),
});
const streams = (candidate: CandidateName, delays: number[]) => ({
  ...{ candidate, streams: RATIO_STREAMS },
  rounds: delays.map((delay) => ({
    ...{ firstByteP50Ms: 1, firstByteP99Ms: 2, delayP50Ms: delay / 2, delayP99Ms: delay, allOpenP99Ms: null },
    ...{ events: 1000, broken: 0, rssDuring: 9e7, rssAfter: 8e7 },
  })),
});
const idle = (candidate: CandidateName, rssBytes: number) => ({
  ...{ candidate, rssBytes, seconds: 3, cpuMs: 1, wakeUpsPerSecond: 1 },
});

/**
 * The machine became slow after the second slice, for both: the median of what is read off neighbours does not show it. In
 * the last slice of http-proxy-3 nothing was answered.
 */
const measured: Measured = {
  loads: [
    under("http-proxy-3", RATIO_LOAD, 0, [4000, 1000, 1000]),
    under("keybearer", RATIO_LOAD, 1, [3200, 800, 900]),
    under("portkey", RATIO_LOAD, 6, [100, 1]),
    under("http-proxy-3", LATENCY_LOAD, 10, [2000, 2000, 0]),
    under("keybearer", LATENCY_LOAD, 11, [1000, 1000, 1000]),
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
  house: { reports: null, journal: null, sync: null, match: [], lookups: [] },
};

const setting: Setting = {
  machine: { processor: "a <b> & c", cores: 2, memoryBytes: 8e9, system: "x", node: "20", loadBefore: 3 },
  ...{ date: "2026-11-15T12:00:00.000Z", quick: true, othersShare: null, rounds: 3, secondsEach: 1 },
  ...{ loadGenerator: "wrk 4", upstream: "nginx 1" },
  contenders: [{ name: "portkey", title: "portkey", version: "1", bodiesUnchanged: false }],
  missing: [{ name: "nginx", why: "nginx is not installed" }],
};

t.test("the ratios are those of slices beside each other, and keep their names and order", (t) => {
  const ratios = ratiosOf(measured);
  const { ratios: told, spread } = JSON.parse(inJson(setting, measured, ratios));
  t.same(Object.keys(told), [
    ...["rps_vs_http_proxy_3", "rps_vs_portkey", "rps_vs_nginx", "added_p50_ms"],
    ...["event_delay_p99_vs_http_proxy_3", "rss_idle_vs_node", "startup_vs_node"],
  ]);
  t.same(told, {
    ...{ rps_vs_http_proxy_3: 0.8, rps_vs_portkey: 9, rps_vs_nginx: null, added_p50_ms: 0.5 },
    ...{ event_delay_p99_vs_http_proxy_3: 2, rss_idle_vs_node: 2, startup_vs_node: 6.5 },
  });
  t.same(spread.rps_vs_http_proxy_3, { least: 0.8, most: 3.2 });
  t.same(spread.added_p50_ms, { least: 0.5, most: 0.5 }, "a slice without an answer is left out");
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
  const busy = inWords({ ...setting, othersShare: 0.42 }, measured, ratiosOf(measured));
  t.match(busy, /others took 42 % of the processors/);
  t.notMatch(inWords({ ...setting, othersShare: 0.01 }, measured, ratiosOf(measured)), /others/);
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
  const names = (candidates: readonly { name: string }[]) => candidates.map(({ name }) => name);
  t.same(names(inTurn(all, 1)), ["keybearer", "portkey", "nginx"]);
  t.same(names(alternating(all, 1, undefined)), ["portkey", "keybearer", "nginx"]);
  t.same(names(alternating(all, 0, ["nginx", "portkey", "nginx", "httpxy"])), [
    ...["nginx", "keybearer", "portkey", "keybearer", "nginx"],
  ]);
  t.same(names(alternating(all, 0, ["nginx"])), ["nginx", "keybearer"]);
  t.match(readOptions(["--quick", "--json", "--without", "wrk"]), {
    quick: true,
    json: true,
    without: ["wrk"],
  });
  t.throws(() => readOptions(["--fast"]), /--fast/);
  t.throws(() => readOptions(["--rounds", "many"]), /1 to 99/);
  t.end();
});

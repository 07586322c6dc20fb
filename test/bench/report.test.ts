import t from "tap";
import { ResponseReader } from "./connection.ts";
import { rotate } from "./load-measures.ts";
import { readOptions } from "./options.ts";
import { promptBody, readInstruction } from "./prompts.ts";
import { type Setting, toJson, toText } from "./report.ts";
import { median, pairRounds, percentile } from "./statistics.ts";
import type { Measured } from "./targets.ts";

const slice = { promptKb: 1, connections: 16, reconnect: false, requests: 1000 };
const streams = { protocol: "chat", clients: 200, streamsPerClient: 1, paceMs: 30 } as const;

/** The machine was slow in the second round, for both: the ratio of that round does not show it. */
const measured: Measured = {
  requests: [
    { candidate: "http-proxy-3", slice, cpuMicroseconds: [100, 200, 100], failed: 0 },
    { candidate: "keybearer", slice, cpuMicroseconds: [120, 220, 110], failed: 2 },
  ],
  latency: [
    { candidate: "direct", slice, p50Ms: [0.1, 0.2], p99Ms: [0.3, 0.3] },
    { candidate: "http-proxy-3", slice, p50Ms: [0.2, 0.3], p99Ms: [0.4, 0.4] },
    { candidate: "keybearer", slice, p50Ms: [0.4, 0.5], p99Ms: [0.6, 0.6] },
  ],
  streams: [
    {
      candidate: "http-proxy-3",
      slice: streams,
      cpuMilliseconds: [10],
      lateP50Ms: [1],
      lateP99Ms: [2],
      failed: 0,
    },
    {
      candidate: "keybearer",
      slice: streams,
      cpuMilliseconds: [12],
      lateP50Ms: [1],
      lateP99Ms: [3],
      failed: 0,
    },
  ],
  delay: [],
  starts: [],
  memory: [{ candidate: "keybearer", requests: 100, bytes: [50e6, 100e6, 100e6, 100e6, 105e6] }],
  usageLog: null,
};

const setting: Setting = {
  date: "2026-11-16T12:00:00.000Z",
  quick: true,
  othersShare: 0.42,
  candidates: [{ name: "portkey", version: "1", converts: true }],
  leftOut: [{ name: "nginx", why: "nginx is not installed" }],
};

t.test("targets compare the values of the same round", (t) => {
  const { targets, version } = JSON.parse(toJson(setting, measured));
  t.equal(version, 1);
  const find = (name: string) => targets.find((target: { name: string }) => target.name === name);
  t.match(find("CPU per request, 1 KB, ratio"), {
    value: { median: 1.1, max: 1.2 },
    at_most: 1.2,
    met: true,
  });
  t.match(find("p50 over http-proxy-3, 1 KB, ms"), { value: { median: 0.2 }, met: false });
  t.match(find("late p99, 200 clients, ratio"), { value: { median: 1.5 }, met: false });
  t.match(find("memory over all requests, last to first"), { value: { median: 1.05 }, met: true });
  t.match(find("event-loop delay p99.9, ratio"), { value: null, met: null }, "not measured is no verdict");
  t.end();
});

t.test("the JSON has the same fields in the same order, measured or not", (t) => {
  const nothing = {
    requests: [],
    latency: [],
    streams: [],
    delay: [],
    starts: [],
    memory: [],
    usageLog: null,
  };
  const full = JSON.parse(toJson(setting, measured));
  const empty = JSON.parse(toJson(setting, nothing));
  t.same(Object.keys(empty), Object.keys(full));
  const names = (report: { targets: { name: string }[] }) => report.targets.map(({ name }) => name);
  t.same(names(empty), names(full));
  t.end();
});

t.test("the tables say what failed, what was left out and that the machine was busy", (t) => {
  const text = toText(setting, measured);
  t.match(text, /keybearer +120 \(110 to 220\) +2 failed/);
  t.match(text, /left out: nginx, nginx is not installed/);
  t.match(text, /Other programs used 42 %/);
  t.match(text, /1 KB +keybearer +0\.45 .* 0\.30 \(0\.30 to 0\.30\)/, "added latency is over going direct");
  t.match(text, /late p99, 200 clients, ratio +1\.50 .* ≤ 1\.3 +miss/);
  t.notMatch(text, /NaN|undefined|null/);
  t.end();
});

t.test("a response is read in pieces of any size", (t) => {
  const chunked =
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nb;x=y\r\n world\r\n123\r\n0\r\nx: y\r\n\r\n";
  const sized = "HTTP/1.1 429 No\r\nContent-Length: 11\r\nConnection: close\r\n\r\nhello world";
  for (const [text, status, body] of [
    [chunked, 200, "hello world\r\n123"],
    [sized, 429, "hello world"],
  ] as const) {
    for (let size = 1; size <= text.length; size += 1) {
      const parts: string[] = [];
      const reader = new ResponseReader((chunk) => parts.push(chunk.toString()));
      for (let at = 0; at < text.length; at += size) {
        if (reader.isComplete) t.fail("complete before the end");
        reader.push(Buffer.from(text.slice(at, at + size)));
      }
      if (!reader.isComplete || reader.status !== status || parts.join("") !== body)
        t.fail(`pieces of ${size}`);
    }
  }
  t.end();
});

t.test("prompts have exactly the size asked for, and carry what the upstream is to do", (t) => {
  for (const bytes of [1000, 20_000, 100_000, 500_000]) {
    for (const modelLast of [false, true]) {
      const body = promptBody({ protocol: "chat", bytes, modelLast, stream: null });
      t.equal(body.length, bytes);
      t.equal(Object.keys(JSON.parse(body.toString())).at(modelLast ? -1 : 0), "model");
      t.equal(readInstruction(body), null);
    }
  }
  const stream = { events: 300, paceMs: 5 };
  const body = promptBody({ protocol: "messages", bytes: 100_000, modelLast: false, stream });
  t.same(readInstruction(body), stream);
  t.end();
});

t.test("statistics, turns and options", (t) => {
  t.equal(median([3, 1, 2]), 2);
  t.equal(median([1, 2]), 1.5);
  t.equal(percentile([4, 3, 2, 1], 0.5), 2);
  t.equal(percentile([1, 2, 3, 4], 0.99), 4);
  t.same(
    pairRounds([2, 4, 6], [1, 0], (our, their) => our / their),
    [2],
    "a round without a partner or a finite value is left out",
  );
  t.same(rotate(["a", "b", "c"], 4), ["b", "c", "a"]);
  t.match(readOptions(["--quick", "--only", "nginx", "--only", "keybearer"]), {
    quick: true,
    only: ["nginx", "keybearer"],
  });
  t.throws(() => readOptions(["--fast"]), /--fast/);
  t.throws(() => readOptions(["--only", "squid"]), /no such candidate/);
  t.throws(() => readOptions(["--part", "tea"]), /no such part/);
  t.end();
});

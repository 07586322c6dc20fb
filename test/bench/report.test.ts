import t from "tap";
import { ResponseReader } from "./connection.ts";
import { rotate } from "./measures.ts";
import { readOptions } from "./options.ts";
import { promptBody, readInstruction } from "./prompts.ts";
import { toJson, toText } from "./report.ts";
import { median, percentile, Results } from "./results.ts";

const setting = {
  date: "2026-11-16T12:00:00.000Z",
  quick: true,
  othersShare: 0.42,
  candidates: [{ name: "keybearer", version: "1.2.3" }],
  leftOut: [{ name: "nginx", why: "not installed" }],
};

/** The machine was slow in the second round, for both: the ratio of that round does not show it. */
function measured(): Results {
  const results = new Results();
  for (const value of [100, 200, 100]) results.add("CPU µs per request, 1 KB", "http-proxy-3", value);
  for (const value of [120, 220, 110]) results.add("CPU µs per request, 1 KB", "keybearer", value, 1);
  for (const value of [0.2, 0.3]) results.add("latency p50 ms, 1 KB", "http-proxy-3", value);
  for (const value of [0.6, 0.8]) results.add("latency p50 ms, 1 KB", "keybearer", value);
  results.add("memory growth over 100,000 requests", "keybearer", 1.05);
  return results;
}

t.test("targets compare the values of the same round", (t) => {
  const { targets } = JSON.parse(toJson(setting, measured()));
  const find = (name: string) => targets.find(({ measure }: { measure: string }) => measure === name);
  t.match(find("CPU µs per request, 1 KB"), { median: 1.1, max: 1.2, at_most: 1.9, met: true });
  t.match(find("latency p50 ms, 1 KB"), { median: 0.45, at_most: 0.25, met: false });
  t.match(find("memory growth over 100,000 requests"), { median: 1.05, met: true });
  t.match(find("event-loop delay p99.9 ms"), { median: null, met: null }, "not measured is no verdict");
  t.end();
});

t.test("the JSON has the same fields in the same order, measured or not", (t) => {
  const full = JSON.parse(toJson(setting, measured()));
  const empty = JSON.parse(toJson(setting, new Results()));
  t.equal(full.version, 1);
  t.same(Object.keys(empty), Object.keys(full));
  t.same(Object.keys(empty.targets[0]), Object.keys(full.targets[0]));
  t.equal(empty.targets.length, full.targets.length);
  t.end();
});

t.test("the tables say what failed, what was left out and that the machine was busy", (t) => {
  const text = toText(setting, measured());
  t.match(text, /http-proxy-3 +keybearer 1\.2\.3/);
  t.match(text, /CPU µs per request, 1 KB +100 \(100 to 200\) +120 \(110 to 220\), 3 failed/);
  t.match(text, /Left out: nginx \(not installed\)/);
  t.match(text, /Other programs used 42 %/);
  t.match(text, /latency p50 ms, 1 KB +0\.45 \(0\.40 to 0\.50\) +over http-proxy-3 +at most 0\.25 +miss/);
  t.notMatch(text, /NaN|undefined|null/);
  t.end();
});

t.test("the end of a response is found in pieces of any size", (t) => {
  const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n0\r\n0\r\n\r\n";
  const sized = "HTTP/1.1 429 No\r\nContent-Length: 11\r\n\r\nhello world";
  for (const text of [chunked, sized]) {
    for (let size = 1; size <= text.length; size += 1) {
      const reader = new ResponseReader(() => {});
      let endedAt = 0;
      for (let start = 0; start < text.length; start += size)
        if (reader.push(Buffer.from(text.slice(start, start + size)))) endedAt = start + size;
      if (endedAt < text.length || reader.status !== Number(text.slice(9, 12))) t.fail(`pieces of ${size}`);
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
  t.same(rotate(["a", "b", "c"], 4), ["b", "c", "a"]);
  t.match(readOptions(["--quick", "--only", "nginx"]), { quick: true, only: ["nginx"] });
  t.throws(() => readOptions(["--fast"]), /--fast/);
  t.throws(() => readOptions(["--only", "squid"]), /choose from http-proxy-3/);
  t.throws(() => readOptions(["--part", "tea"]), /choose from requests/);
  t.end();
});

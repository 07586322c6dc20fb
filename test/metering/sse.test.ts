import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import t from "tap";
import { EventReader } from "../../src/metering/sse.ts";
import { runs } from "../doubles/effort.ts";
import { until } from "../doubles/until.ts";
import { cutAt, someCuts } from "./cuts.ts";

const MB = 1024 * 1024;

/** Each event as name and data. */
type Events = (readonly [name: string, data: string])[];

function events(text: string, cuts: readonly number[] = []): Events {
  const seen: Events = [];
  const reader = new EventReader(({ name, data }) => seen.push([name, data]));
  for (const piece of cutAt(Buffer.from(text, "latin1"), cuts)) reader.see(piece.toString("latin1"));
  reader.finish();
  // The end of a stream dispatches what is left, which may be nothing.
  return seen.filter(([name, data]) => name !== "" || data !== "");
}

const CASES: readonly (readonly [text: string, events: Events])[] = [
  ["data: a\n\n", [["", "a"]]],
  [
    "data:a\r\rdata:b\r\r",
    [
      ["", "a"],
      ["", "b"],
    ],
  ],
  ["event: x\r\ndata: a\r\n\r\n", [["x", "a"]]],
  ["data:a\ndata\ndata:b\n\n", [["", "a\n\nb"]]],
  [": comment\nid: 1\nretry: 5\nother\ndata:a\n\n", [["", "a"]]],
  ["\n\n\r\n\r\rdata:a\n\n\n\n", [["", "a"]]],
  [
    "event:a\nevent:b\ndata:1\n\ndata:2\n\n",
    [
      ["b", "1"],
      ["", "2"],
    ],
  ],
  ["datax: a\n data: b\ndata :c\n\n", []],
  ["data: \xe4\xb8\x96\n\n", [["", "\xe4\xb8\x96"]]],
  ["", []],
  ["\n", []],
];

t.test("events are read as the standard says, wherever they are cut", async (t) => {
  for (const [text, expected] of CASES) {
    t.strictSame(events(text), expected, JSON.stringify(text));
    for (let at = 0; at < text.length; at += 1)
      t.strictSame(events(text, [at, at + 1]), expected, `${JSON.stringify(text)} cut at ${at}`);
  }
});

t.test("the last event counts even if the stream ends in the middle of it", async (t) => {
  for (const end of ["", "\n", "\r", "\r\n"]) {
    t.strictSame(events(`event:message_stop${end}`), [["message_stop", ""]], JSON.stringify(end));
    t.equal(events(`data:[DONE]${end}`)[0]?.[1].trim(), "[DONE]", JSON.stringify(end));
  }
});

t.test("any text in any pieces is read as the whole", async () => {
  const words = ["data", "event", ":", " ", "\n", "\r", "\r\n", "\n\n", "x", "\xe9", "data: ", "id: 7\n"];
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...words), { maxLength: 40 }), someCuts, (all, cuts) => {
      const text = all.join("");
      return JSON.stringify(events(text, cuts)) === JSON.stringify(events(text));
    }),
    { numRuns: runs(150) },
  );
});

t.test("a line that is too long loses its middle, and the following ones are read again", async (t) => {
  const line = `data: {"begin":1,"image":"${"A".repeat(5 * MB)}","end":2}`;
  for (const cuts of [[], [20, MB, 2 * MB], Array.from({ length: 300 }, (_, i) => i * 20_011)]) {
    const [first, second, ...more] = events(`${line}\r\nevent: e\n\ndata: next\n\n`, cuts);
    const { begin, end, image } = JSON.parse(first?.[1] ?? "");
    t.strictSame([first?.[0], begin, end], ["e", 1, 2]);
    t.ok(image.length < MB, `${image.length} characters are left of the image`);
    t.strictSame(second, ["", "next"]);
    t.strictSame(more, []);
  }
});

t.test("an event of endless lines is dropped, and the following ones are read again", async (t) => {
  const endless = `data: ${"x".repeat(1000)}\n`.repeat(5000);
  const [first, second] = events(`${endless}\ndata: next\n\n`);
  t.ok((first?.[1].length ?? 0) < 3 * MB);
  t.strictSame(second, ["", "next"]);
});

t.test("memory is bounded, whatever comes", async () => {
  const hostile = {
    "a line without end": Buffer.alloc(64 * 1024, "x"),
    "data without end": Buffer.alloc(64 * 1024, "data: some more words that are kept\n"),
    "a little data between comments": Buffer.from(`data: some words to be kept\n:${"x".repeat(65_000)}\n`),
  };
  setFlagsFromString("--expose-gc");
  const collectGarbage: () => void = runInNewContext("gc");
  for (const [what, chunk] of Object.entries(hostile)) {
    collectGarbage();
    const before = process.memoryUsage().heapUsed;
    const reader = new EventReader(() => {});
    for (let i = 0; i < 512; i += 1) reader.see(chunk.toString("latin1"));
    await until(`${what}: next to nothing is left of 32 MB`, () => {
      collectGarbage();
      return process.memoryUsage().heapUsed - before < 16 * MB;
    });
    reader.finish();
  }
});

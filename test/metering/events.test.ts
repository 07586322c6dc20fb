import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import t from "tap";
import { type EventListener, EventReader } from "../../src/metering/events.ts";
import { runs } from "../doubles/random.ts";
import { until } from "../doubles/until.ts";
import { cutAt, someCuts } from "./cuts.ts";

interface Seen {
  readonly name: string;
  readonly data: string | null;
  readonly usage?: unknown;
}

function events(text: string | Buffer, cuts: readonly number[] = [], most?: number): Seen[] {
  const seen: Seen[] = [];
  const listener: EventListener = {
    onEvent: (name, bytes, from, to) =>
      seen.push({ name: name.text, data: bytes.toString("utf8", from, to) }),
    onLongEvent: (name, fields) => seen.push({ name: name.text, data: null, usage: fields.get("usage") }),
  };
  const reader = new EventReader(listener, ["usage"], most);
  for (const piece of cutAt(Buffer.from(text), cuts)) reader.see(piece);
  reader.finish();
  return seen;
}

const CASES: readonly (readonly [string, readonly (readonly [string, string])[]])[] = [
  ["data: a\n\n", [["", " a"]]],
  [
    "data:a\r\rdata:b\r\r",
    [
      ["", "a"],
      ["", "b"],
    ],
  ],
  ["event: x\r\ndata: a\r\n\r\n", [["x", " a"]]],
  ["data:a\ndata\ndata:b\n\n", [["", "a\n\nb"]]],
  [": comment\nid: 1\nretry: 5\nother\ndata:a\n\n", [["", "a"]]],
  ["\uFEFFdata:a\n\n", [["", "a"]]],
  ["\uFEFFevent:a\ndata:b\n\n", [["a", "b"]]],
  ["\n\n\r\n\r\rdata:a\n\n\n\n", [["", "a"]]],
  [
    "event:a\nevent:b\ndata:1\n\ndata:2\n\n",
    [
      ["b", "1"],
      ["", "2"],
    ],
  ],
  ["datax: a\n data: b\ndata :c\n\n", []],
  ["data: 世界😀é\n\n", [["", " 世界😀é"]]],
  ["data:a", [["", "a"]]],
  ["event:message_stop", [["message_stop", ""]]],
  ["data:a:b:c\n", [["", "a:b:c"]]],
  ["", []],
  ["\n", []],
];

t.test("events are read as the standard says, and the last one also without an empty line", (t) => {
  for (const [text, expected] of CASES) {
    const wanted = expected.map(([name, data]) => ({ name, data }));
    t.strictSame(events(text), wanted, JSON.stringify(text));
    for (let at = 0; at < Buffer.from(text).length; at += 1)
      t.strictSame(events(text, [at, at + 1]), wanted, `${JSON.stringify(text)} cut at ${at}`);
  }
  t.end();
});

/** What it does, the slow way: on the whole text. */
function slowly(text: string): Seen[] {
  const seen: Seen[] = [];
  let name = "";
  let data: string[] = [];
  for (const line of [...text.replace(/^\uFEFF/, "").split(/\r\n|\r|\n/), ""]) {
    const [, field = "", value = ""] = /^([^:]*)(?::(.*))?$/s.exec(line) ?? [];
    if (line === "") {
      if (data.length > 0 || name !== "") seen.push({ name: name.trim(), data: data.join("\n") });
      name = "";
      data = [];
    } else if (field === "data") data.push(value);
    else if (field === "event") name = Buffer.from(value).toString("latin1");
  }
  return seen;
}

t.test("any text in any pieces is read as the whole is by a simpler reader", async () => {
  const word = fc.constantFrom(
    "data",
    "event",
    ":",
    " ",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "x",
    "é",
    "data: ",
    "id: 7\n",
  );
  fc.assert(
    fc.property(fc.array(word, { maxLength: 40 }), someCuts, (words, cuts) => {
      const text = words.join("");
      return JSON.stringify(events(text, cuts)) === JSON.stringify(slowly(text));
    }),
    { numRuns: runs(150) },
  );
});

t.test("of an event over the bound only the fields are kept, and the following ones are read again", (t) => {
  const long = `{"text":"${"x".repeat(300)}",\ndata:"usage":7}`;
  for (const cuts of [[], [20, 50, 120], Array.from({ length: 400 }, (_, i) => i)]) {
    t.strictSame(events(`event:e\ndata:${long}\n\ndata:{"usage":8}\n\n`, cuts, 100), [
      { name: "e", data: null, usage: 7 },
      { name: "", data: '{"usage":8}' },
    ]);
  }
  t.strictSame(events(`data:${"x".repeat(100)}\n\n`, [], 100), [{ name: "", data: "x".repeat(100) }]);
  t.end();
});

t.test("a line without an end and without a meaning is not kept", async (t) => {
  const none = () => void t.fail("there is no event");
  const reader = new EventReader({ onEvent: none, onLongEvent: none }, []);
  const chunk = Buffer.alloc(64 * 1024, "x");
  const before = process.memoryUsage().arrayBuffers;
  for (let i = 0; i < 512; i += 1) reader.see(chunk);
  setFlagsFromString("--expose-gc");
  const collectGarbage: () => void = runInNewContext("gc");
  await until("next to nothing is left of the 32 MB that came", () => {
    collectGarbage();
    return process.memoryUsage().arrayBuffers - before < 8 * 1024 * 1024;
  });
  reader.finish();
});

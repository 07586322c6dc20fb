import { once } from "node:events";
import fc from "fast-check";
import t from "tap";
import { createUsageFilter } from "../../src/proxy/usage-filter.ts";
import { runs } from "../doubles/random.ts";

const DELTA =
  'data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hé"}}],"usage":null}\n\n';
const LAST = 'data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n';
const USAGE = 'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}\n\n';
const DONE = "data: [DONE]\n\n";

/** What passes, one entry for each chunk that went in, and one for the end. */
async function filtered(chunks: readonly (string | Buffer)[]): Promise<string[]> {
  const filter = createUsageFilter();
  const out: Buffer[][] = [];
  filter.on("data", (chunk: Buffer) => void out.at(-1)?.push(chunk));
  for (const chunk of chunks) {
    out.push([]);
    await new Promise((resolve) => filter.write(chunk, resolve));
  }
  out.push([]);
  filter.end();
  await once(filter, "end");
  return out.map((parts) => Buffer.concat(parts).toString("latin1"));
}

function latin1(text: string): string {
  return Buffer.from(text).toString("latin1");
}

async function whole(text: string): Promise<string> {
  return (await filtered([text])).join("");
}

t.test("the chunk that only tells the usage is taken out, and nothing else", async (t) => {
  t.equal(await whole(DELTA + LAST + USAGE + DONE), latin1(DELTA + LAST + DONE));
  const windows = (DELTA + LAST + USAGE + DONE).replaceAll("\n", "\r\n");
  t.equal(await whole(windows), latin1((DELTA + LAST + DONE).replaceAll("\n", "\r\n")), "with CRLF too");
  t.equal(await whole(DELTA + USAGE.trimEnd()), latin1(DELTA), "also where the stream ends right behind it");
  const spaced = 'event: message\nid: 7\ndata:{"choices" : [ ],\ndata: "usage":{"total_tokens":1}}\n\n';
  t.equal(await whole(spaced + DONE), DONE, "on several lines too");
});

t.test("what looks similar passes", async (t) => {
  for (const event of [
    'data: {"choices":[],"prompt_filter_results":[{}]}\n\n',
    'data: {"choices":[],"usage":null}\n\n',
    'data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}\n\n',
    'data: {"choices":[{"delta":{"content":"\\"choices\\":[],\\"usage\\":{}"}}],"usage":{}}\n\n',
    'data: {"usage":{"prompt_tokens":1}}\n\n',
    'data: {"x":{"choices":[],"usage":{}}}\n\n',
    'data: {"choices":[],"usage":{"prompt_tokens":1}\n\n',
    'datas: {"choices":[],"usage":{"prompt_tokens":1}}\n\n',
    ": comment\n\n",
    "event: ping\n\n",
    "\n\n\r\n",
    '{"object":"chat.completion","choices":[],"usage":{"prompt_tokens":1}}',
    '{"error":{"message":"no"}}\n',
    "\u001f\u008b\u0008\n\n",
  ]) {
    t.equal(await whole(event), latin1(event), event);
  }
});

const EVENTS = fc.oneof(
  fc.constantFrom(DELTA, LAST, USAGE, DONE, ": ping\n\n", ": ping\n", "event: x\ndata: {}\n\n", "\n"),
  fc.string({ maxLength: 30 }).map((text) => `data: ${JSON.stringify({ choices: [{ delta: text }] })}\n\n`),
);
const CUTS = fc.array(fc.nat(2000), { maxLength: 30 });

t.test("it makes no difference where the stream is cut", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(EVENTS, { maxLength: 8 }), fc.boolean(), CUTS, async (events, crlf, cuts) => {
      const ends = (text: string) => (crlf ? text.replaceAll("\n", "\r\n") : text);
      const bytes = Buffer.from(ends(events.join("")));
      const at = [0, ...cuts.filter((cut) => cut < bytes.length), bytes.length].sort((a, b) => a - b);
      const out = await filtered(at.slice(1).map((end, i) => bytes.subarray(at[i], end)));
      return out.join("") === latin1(ends(events.filter((event) => event !== USAGE).join("")));
    }),
    { numRuns: runs(40) },
  );
});

t.test("any bytes at all pass, as long as they are no usage", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 40 })), async (chunks) => {
      const bytes = chunks.map((chunk) => Buffer.from(chunk));
      return (await filtered(bytes)).join("") === Buffer.concat(bytes).toString("latin1");
    }),
    { numRuns: runs(30) },
  );
});

t.test(
  "an event passes as soon as it is whole, and before that as soon as it can be told apart",
  async (t) => {
    t.strictSame(await filtered([DELTA, LAST, USAGE, DONE]), [...[DELTA, LAST].map(latin1), "", DONE, ""]);
    const [begin, end] = [LAST.slice(0, 40), LAST.slice(40)];
    t.match(begin, /"choices":\[\{/, "here it can");
    t.strictSame(await filtered([begin, end]), [begin, end, ""]);
    t.strictSame(await filtered(["data: [", "DONE]\n\n"]), ["data: [", "DONE]\n\n", ""]);
    t.strictSame(
      await filtered([": still thinking\n", DONE]),
      [": still thinking\n", DONE, ""],
      "a sign of life",
    );
    t.strictSame(await filtered(['{"object"', ":1}"]), ['{"object"', ":1}", ""], "no event stream");
  },
);

t.test("an event that is too long to be a usage is not held", async (t) => {
  const long = `data: {"x":"${"x".repeat(40_000)}`;
  const out = await filtered([long, `${"x".repeat(2_000_000)}"}\n\n`, USAGE, DONE]);
  t.equal(out[0], long);
  t.equal(out.slice(2).join(""), DONE, "and the ones behind it are looked at again");
});

t.test("a chunk of which nothing is taken passes as it is", async (t) => {
  const filter = createUsageFilter();
  const chunk = Buffer.from(DELTA + LAST);
  filter.write(chunk);
  const [out] = await once(filter, "data");
  t.equal(out, chunk, "without a copy");
});

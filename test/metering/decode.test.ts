import { randomBytes } from "node:crypto";
import { once } from "node:events";
import type { Transform } from "node:stream";
import zlib from "node:zlib";
import fc from "fast-check";
import t from "tap";
import { Decoder, decodeSync, decodes } from "../../src/metering/decode.ts";
import { longTest, runs } from "../doubles/effort.ts";
import { until } from "../doubles/until.ts";
import { encodings } from "./captured.ts";
import { cutAt } from "./cuts.ts";

const zstd: unknown = Reflect.get(zlib, "createZstdCompress");

/** A decoder, what it has given so far, and its end. */
function decoding(encoding: string) {
  const out: Buffer[] = [];
  const decoder = new Decoder(encoding, (bytes) => out.push(Buffer.from(bytes)));
  return {
    see: (bytes: Buffer) => decoder.see(bytes),
    finish: () => decoder.finish(),
    get text() {
      return Buffer.concat(out).toString("latin1");
    },
    get size() {
      return out.reduce((sum, { length }) => sum + length, 0);
    },
  };
}

const flushing: readonly (readonly [string, () => Transform & { flush(done: () => void): void }])[] = [
  ["gzip", () => zlib.createGzip()],
  ["deflate", () => zlib.createDeflate()],
  ["deflate", () => zlib.createDeflateRaw()],
  ["br", () => zlib.createBrotliCompress()],
  ...(typeof zstd === "function" ? ([["zstd", zstd as () => zlib.Gzip]] as const) : []),
];

t.test("flushed bytes are decoded at once", async (t) => {
  for (const [encoding, make] of flushing) {
    const encoder = make();
    const reading = decoding(encoding);
    encoder.on("data", (bytes: Buffer) => reading.see(bytes));
    let sent = "";
    for (let i = 0; i < 5; i += 1) {
      const event = `data: {"n":${i},"x":"${randomBytes(40).toString("hex")}"}\n\n`;
      sent += event;
      encoder.write(event);
      await new Promise<void>((flushed) => encoder.flush(flushed));
      await until("the event is there", () => reading.text === sent);
    }
    encoder.end();
    await once(encoder, "end");
    t.equal(await reading.finish(), null, encoding);
    t.equal(reading.text, sent, encoding);
  }
});

t.test("a stream that was cut is decoded as far as it came, without a problem", async (t) => {
  const text = Buffer.from(Array.from({ length: 300 }, (_, i) => `data: {"line":${i * i}}\n\n`).join(""));
  for (const [encoding, encode] of encodings) {
    const bytes = encode(text);
    for (const part of [1, 2, 5, 0.1, 0.5, 0.9, 0.999]) {
      const cut = bytes.subarray(0, part < 1 ? Math.floor(bytes.length * part) : part);
      const reading = decoding(encoding);
      reading.see(cut);
      t.equal(await reading.finish(), null, `${encoding}, ${cut.length} bytes of ${bytes.length}`);
      t.ok(text.toString("latin1").startsWith(reading.text));
    }
  }
});

t.test("an empty body is decoded at once", async (t) => {
  for (const encoding of ["gzip", "deflate", "br", "gzip, br", "identity"]) {
    const reading = decoding(encoding);
    t.equal(await reading.finish(), null);
    t.equal(reading.size, 0);
  }
});

t.test("bytes in another encoding than named are a problem, and nothing is thrown", async (t) => {
  for (const encoding of ["gzip", "deflate", "br", "gzip, br", "br, gzip"]) {
    const reading = decoding(encoding);
    for (let i = 0; i < 20; i += 1) {
      reading.see(Buffer.alloc(1000, 0xfe));
      await new Promise(setImmediate);
    }
    t.equal(await reading.finish(), "it could not be decoded", encoding);
    reading.see(Buffer.from("after the end"));
  }
});

t.test(
  "bytes after the end of a compressed body are a problem, unless they are another part of it",
  async (t) => {
    const after = decoding("br");
    after.see(Buffer.concat([zlib.brotliCompressSync("one"), Buffer.from("more")]));
    t.equal(await after.finish(), "bytes follow its end");
    t.equal(after.text, "one");
    const parts = decoding("gzip");
    parts.see(Buffer.concat([zlib.gzipSync("one "), zlib.gzipSync("two")]));
    t.equal(await parts.finish(), null);
    t.equal(parts.text, "one two");
    const frame: unknown = Reflect.get(zlib, "zstdCompressSync");
    if (typeof frame !== "function")
      return void t.skip("frames of zstd, which this Node has not", async () => {});
    const frames = decoding("zstd");
    frames.see(Buffer.concat([frame("one "), frame("two")]));
    const problem = await frames.finish();
    t.ok(frames.text === "one two" ? problem === null : problem === "bytes follow its end");
  },
);

longTest(t, "no more than 64 MB are decoded, so that a bomb fills no memory", async (t) => {
  const bomb = zlib.gzipSync(Buffer.alloc(80 * 1024 * 1024));
  for (const [encoding, bytes] of [
    ["gzip", bomb],
    ["gzip, gzip", zlib.gzipSync(bomb)],
  ] as const) {
    const reading = decoding(encoding);
    reading.see(bytes);
    t.equal(await reading.finish(), "it decodes to too many bytes", encoding);
    t.ok(reading.size < 65 * 1024 * 1024, `${reading.size} bytes were decoded`);
  }
});

t.test("a large answer that compresses well is decoded whole", async (t) => {
  const line = Buffer.from(
    Array.from({ length: 1000 }, (_, i) => `{"n":${i % 50},"t":"some words"}`).join("\n"),
  );
  const text = Buffer.concat(Array.from({ length: 400 }, () => Buffer.concat([line, randomBytes(100)])));
  t.ok(text.length > 9 * 1024 * 1024);
  const reading = decoding("gzip");
  for (const piece of cutAt(
    zlib.gzipSync(text),
    Array.from({ length: 50 }, (_, i) => i * 10_007),
  )) {
    reading.see(piece);
    await new Promise(setImmediate);
  }
  t.equal(await reading.finish(), null);
  t.equal(reading.size, text.length);
});

t.test("more than eight megabytes are not kept waiting", async (t) => {
  const bytes = zlib.gzipSync(randomBytes(16 * 1024 * 1024));
  const reading = decoding("gzip");
  for (let at = 0; at < bytes.length; at += 65_536) reading.see(bytes.subarray(at, at + 65_536));
  t.equal(await reading.finish(), "decoding fell behind");
});

t.test("the bytes that are seen are left as they are", async (t) => {
  const bytes = zlib.gzipSync("some text");
  const before = Buffer.from(bytes);
  const reading = decoding("gzip");
  reading.see(bytes);
  await reading.finish();
  t.strictSame(bytes, before);
});

t.test("it can be asked which encodings are read", (t) => {
  for (const encoding of ["gzip", "X-GZIP", "deflate", " br ", "gzip, br", "identity", ""])
    t.ok(decodes(encoding), encoding);
  for (const encoding of ["compress", "gzip, compress", "*", "gzip;q=1", "aes128gcm", "gzip,gzip,gzip,gzip"])
    t.notOk(decodes(encoding), encoding);
  t.equal(decodes("zstd"), typeof zstd === "function");
  t.end();
});

t.test("a short body is decoded at once, as far as it came", (t) => {
  const text = Buffer.from("an error that names a key ".repeat(100));
  for (const [encoding, encode] of encodings) {
    const bytes = encode(text);
    t.strictSame(decodeSync(bytes, encoding, text.length), text, encoding);
    t.equal(decodeSync(bytes, encoding, 1000), "too-large", encoding);
    const part = decodeSync(bytes.subarray(0, bytes.length - 5), encoding, text.length);
    t.ok(Buffer.isBuffer(part) && text.subarray(0, part.length).equals(part), `${encoding}, cut`);
  }
  for (const encoding of ["gzip", "deflate", "br", "gzip, br"])
    t.equal(decodeSync(Buffer.alloc(50, 0xfe), encoding, 1000), null, encoding);
  t.equal(decodeSync(text, "compress", 9999), null);
  for (const encoding of ["", "identity", "identity, Identity"])
    t.equal(decodeSync(text, encoding, 10), text, "as it is");
  t.end();
});

t.test("nothing of an unsupported encoding is decoded", async (t) => {
  const reading = decoding("compress");
  reading.see(Buffer.from("some bytes"));
  t.equal(await reading.finish(), "its content encoding is not supported");
  t.equal(reading.size, 0);
});

t.test("whatever the bytes, finish answers, and bytes after it are ignored", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom("gzip", "br", "deflate", "gzip, br"),
      fc.array(fc.uint8Array({ maxLength: 100 }), { maxLength: 5 }),
      async (encoding, pieces) => {
        const reading = decoding(encoding);
        for (const piece of pieces) reading.see(Buffer.from(piece));
        const problem = await reading.finish();
        const { size } = reading;
        reading.see(Buffer.from("after the end"));
        return (await reading.finish()) === problem && reading.size === size;
      },
    ),
    { numRuns: runs(30) },
  );
});

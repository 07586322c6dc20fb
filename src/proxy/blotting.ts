import { Transform, type TransformCallback } from "node:stream";
import type { Secret } from "../secret.ts";

/**
 * Takes a key out of bytes that stream by, wherever they are cut: as many as could be the beginning of it are held back
 * until the next ones come. One character for each byte, so that everything else stays as it was, in whatever charset;
 * and none more or fewer, because their number was told already.
 */
export function createBlotting(key: Secret): Transform {
  const kept = key.longest - 1;
  let held = "";
  return new Transform({
    transform(chunk: Buffer, _encoding, done: TransformCallback) {
      const clean = key.maskIn(held + chunk.toString("latin1"));
      const passed = Math.max(0, clean.length - kept);
      held = clean.slice(passed);
      done(null, Buffer.from(clean.slice(0, passed), "latin1"));
    },
    flush(done) {
      done(null, Buffer.from(held, "latin1"));
    },
  });
}

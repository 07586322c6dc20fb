import { systemClock } from "../../src/core/clock.ts";
import { Secret } from "../../src/core/secret.ts";
import { Trust } from "../../src/keys/trust.ts";

// Run by a test, and killed by it: pins keys and writes them down until then.
const file = process.argv[2];
if (file === undefined) throw new Error("the test that runs this names the file");
const trust = new Trust({ file, clock: systemClock, ranBefore: () => false });
await trust.load();
const subject = { name: "codex", source: { kind: "env", name: "KEY" } as const, home: [] };
for (let i = 0; ; i += 1) {
  for (let j = 0; j < 50; j += 1) {
    trust.judgeKey(
      { ...subject, origins: ["https://a.example.com"] },
      new Secret(`a-key-${process.pid}-${i}-${j}`),
    );
  }
  await trust.settle();
  process.send?.(i);
}

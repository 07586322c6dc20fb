import { readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { TokenUses } from "../../src/proxy/token-uses.ts";
import { newHome } from "../doubles/command.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { quietLog } from "../doubles/quiet-log.ts";

t.test(
  "of many revoked tokens the last 200 are remembered, and one that returns is not revoked",
  async (t) => {
    const file = join(await newHome(t), "token-uses.json");
    const clock = heldClock();
    const known = new Set<string>(["returns"]);
    const open = () =>
      new TokenUses({
        file,
        clock,
        log: quietLog(),
        isKnown: (hash) => known.has(hash),
        configChangedAt: () => null,
      });
    const uses = open();
    known.delete("returns");
    uses.follow(Array.from({ length: 500 }, (_, at) => `hash${at}`));
    uses.follow(["returns"]);
    t.equal(uses.revokedAt("returns"), clock.now());
    t.equal(uses.revokedAt("hash299"), null);
    t.equal(uses.revokedAt("hash301"), clock.now());
    known.add("returns");
    uses.follow([]);
    t.equal(uses.revokedAt("returns"), null);
    await uses.stop();
    t.equal(readFileSync(file, "utf8").match(/revoked_at/g)?.length, 199);
    const again = open();
    again.followStart();
    t.equal(again.revokedAt("hash499"), clock.now(), "after a restart, too");
  },
);

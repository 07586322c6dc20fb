import { mkdirSync } from "node:fs";
import t, { type Test } from "tap";
import type { KeyChange } from "../../src/lifecycle/lifecycle.ts";
import { ConsoleError } from "../../src/mirror/consoles/console.ts";
import { LONG, repeats } from "../doubles/effort.ts";
import { type Daemon, World } from "./world.ts";

const SETTINGS = { group: "coding", quota: null, windows: [], expires_at: null, models: [] };
const ROTATE = { reason: "asked", store: null, force: false, renew: false } as const;

const CHANGES: Readonly<Record<string, { hasKey: boolean; begin(daemon: Daemon): Promise<KeyChange> }>> = {
  "a rotation": { hasKey: true, begin: ({ lifecycle }) => lifecycle.rotate("codex", ROTATE) },
  "a first key": {
    hasKey: false,
    begin: ({ lifecycle }) => lifecycle.create("codex", { account: null, settings: SETTINGS }),
  },
};

/** Killed at every point, or at every third. */
const STEP = LONG ? 1 : 3;
const SEEDS = repeats("KEYBEARER_CHANGE_SEEDS", 3, 40);

/** More than any change has: the last rounds are not killed. */
const MOST_EFFECTS = 100;

for (const [what, { hasKey, begin }] of Object.entries(CHANGES)) {
  for (const takesOwnKeys of [true, false]) {
    const console = takesOwnKeys ? "takes our keys" : "makes the keys";
    t.test(
      `${what} that is killed at any point ends with one key, where the console ${console}`,
      async (t) => {
        let killed = 0;
        let finished = false;
        for (let effects = 0; effects < MOST_EFFECTS && !finished; effects += STEP) {
          const world = new World(takesOwnKeys, hasKey);
          const first = world.usedKey();
          const daemon = await world.start(effects);
          await begin(daemon).catch(() => {});
          finished = !daemon.fuse.isBurnt;
          if (!finished) killed += 1;
          await finishLater(world);
          const used = world.usedKey();
          // Killed before the first intent was written: nothing has begun.
          const hasBegun = finished || used !== null;
          if (hasBegun) checkOneKey(t, world, `killed at effect ${effects}`);
          else t.strictSame(world.live, [], `killed at effect ${effects}: nothing is left at the console`);
          if (finished && first !== null) t.notOk(used?.equals(first), "the key is another one");
          world.clean();
        }
        t.ok(finished, "a change that is not killed finishes");
        t.ok(killed > 20 / STEP, `there were ${killed} points to be killed at`);
      },
    );
  }
}

t.test("a change that is killed several times ends with one key", async (t) => {
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    const world = new World(seed % 2 === 0, true);
    let random = seed;
    const next = () => {
      random = (random * 48_271) % 2_147_483_647;
      return random % 12;
    };
    const first = await world.start(next());
    await first.lifecycle.rotate("codex", ROTATE).catch(() => {});
    for (let life = 0; life < 6; life += 1) await resume(await world.start(next()));
    await finishLater(world);
    checkOneKey(t, world, `seed ${seed}`);
    world.clean();
  }
});

t.test(
  "a deletion that is killed is finished if the tool was removed meanwhile, and dropped otherwise",
  async (t) => {
    for (let effects = 1; effects < 12; effects += 1) {
      const world = new World(true, true);
      const daemon = await world.start(effects);
      await daemon.lifecycle.delete("codex").catch(() => {});
      const hasBegun = (await world.start()).intents.all().length > 0 || world.live.length === 0;
      world.named.set("other", "/keys/other");
      if (effects % 2 === 0) world.named.delete("codex");
      const isDeleted = world.live.length === 0;
      await finishLater(world);
      // What a file says is no reason to delete a key that a tool has.
      if (effects % 2 === 0 || isDeleted)
        t.equal(world.live.length, hasBegun ? 0 : 1, `killed at effect ${effects}`);
      else t.not(world.usedKey(), null, `killed at effect ${effects}: the tool has its key`);
      t.strictSame(
        (await world.start()).intents.all(),
        [],
        `killed at effect ${effects}: nothing is unfinished`,
      );
      world.clean();
    }
  },
);

t.test(
  "a key of its own after another machine's rotation, killed at any point: the other machine's key stays",
  async (t) => {
    for (const takesOwnKeys of [true, false]) {
      let finished = false;
      for (let effects = 0; effects < MOST_EFFECTS && !finished; effects += STEP) {
        const at = `killed at effect ${effects}`;
        const world = new World(takesOwnKeys, true);
        const old = world.usedKey();
        world.live.splice(0);
        const other = world.addKey("codex-abc1234");
        const daemon = await world.start(effects);
        await daemon.lifecycle.replace("codex", other.name).catch(() => {});
        finished = !daemon.fuse.isBurnt;
        await finishLater(world);
        const [kept, ...own] = world.live;
        t.equal(kept, other, at);
        const used = world.usedKey();
        if (own.length === 0)
          t.ok(old !== null && used?.equals(old), `${at}: nothing has begun, or it was undone`);
        else
          t.ok(own.length === 1 && own[0] !== undefined && used?.equals(own[0].key), `${at}: it has one key`);
        t.strictSame((await world.start()).intents.all(), [], `${at}: nothing is unfinished`);
        t.strictSame(world.notified, [], "this machine deleted nothing");
        world.clean();
      }
      t.ok(finished, "a change that is not killed finishes");
    }
  },
);

t.test("a key that others use is rotated by force or after a leak, and they are notified", async (t) => {
  const sentence = {
    message:
      "the key of codex is also used on desktop, server, and would stop working there: each machine needs its own key",
    next: "keybearer tools rotate codex --force",
  };
  for (const [options, isRotated] of [
    [ROTATE, false],
    [{ ...ROTATE, reason: "age" }, false],
    [{ ...ROTATE, force: true }, true],
    [{ ...ROTATE, reason: "leak" }, true],
  ] as const) {
    const world = new World(true, true);
    world.users = ["desktop", "server"];
    const old = world.usedKey()?.fingerprint ?? "";
    const daemon = await world.start();
    if (!isRotated) {
      await t.rejects(daemon.lifecycle.rotate("codex", options), sentence);
      await t.rejects(daemon.lifecycle.rotatable("codex", options), sentence);
    } else await daemon.lifecycle.rotate("codex", options);
    checkOneKey(t, world, JSON.stringify(options));
    const successor = world.live[0]?.name;
    t.strictSame(world.notified, isRotated ? [{ key: old, successor }] : []);
    world.clean();
  }
});

t.test("no key is made like one that the console does not list, or while it lists the old one", async (t) => {
  const world = new World(true, true);
  const daemon = await world.start();
  await t.rejects(daemon.lifecycle.replace("codex", "first"), { message: /still lists the key of codex/ });
  world.live.splice(0);
  await t.rejects(daemon.lifecycle.replace("codex", "codex-abc1234"), {
    message: /lists no active key codex-abc1234, whose settings/,
  });
  t.strictSame(world.live, []);
  world.clean();
});

t.test("the intent names no key", async (t) => {
  const world = new World(true, true);
  const old = world.usedKey();
  for (let effects = 1; effects < 30; effects += 1) {
    const daemon = await world.start(effects);
    await daemon.lifecycle.rotate("codex", ROTATE).catch(() => {});
    const keys = [...world.stored.values(), ...world.live.map(({ key }) => key)];
    if (old !== null) keys.push(old);
    const text = world.intentText();
    t.notOk(
      keys.some((key) => text.includes(key.reveal().slice(6))),
      `no key is in the file, killed at effect ${effects}`,
    );
    await finishLater(world);
  }
  world.clean();
});

t.test("a key that the console refuses to make changes nothing", async (t) => {
  const world = new World(true, true);
  const before = world.usedKey();
  world.refusal = new ConsoleError("refused", "allows no more keys");
  const daemon = await world.start();
  await t.rejects(daemon.lifecycle.rotate("codex", ROTATE), { message: /allows no more keys/ });
  t.ok(before !== null && world.usedKey()?.equals(before), "the tool has its old key");
  checkOneKey(t, world, "refused");
  t.equal(world.stored.size, 1, "no new key is stored");
  world.clean();
});

t.test("a new key that the gateway does not accept is deleted again", async (t) => {
  const world = new World(false, true);
  const before = world.usedKey();
  world.verdict = { state: "refused", problem: "the group is disabled", next: "choose another" };
  const daemon = await world.start();
  await t.rejects(daemon.lifecycle.rotate("codex", ROTATE), { message: /the group is disabled/ });
  t.ok(before !== null && world.usedKey()?.equals(before), "the tool has its old key");
  checkOneKey(t, world, "not accepted");
  world.clean();
});

/** A key that was to last for 90 days, and has used up its quota of $20. */
const ENDED = { created_at: 0, expires_at: 90 * 86_400_000, quota: 20_000_000, quota_used: 20_000_001 };

t.test("no key that is over is replaced without a person's consent", async (t) => {
  const world = new World(true, true);
  world.facts = ENDED;
  const { lifecycle } = await world.start();
  for (const reason of ["asked", "age", "leak"] as const)
    await t.rejects(lifecycle.rotate("codex", { ...ROTATE, reason }), {
      message:
        "the key of codex has expired and has used up its quota: a person at a terminal must agree to what the new one gets",
      next: "keybearer tools rotate codex",
    });
  t.strictSame(world.asked, []);
  checkOneKey(t, world, "refused");
  const { renewed } = await lifecycle.rotatable("codex", ROTATE);
  t.match(renewed, { quota: 20_000_000 });
  t.ok((renewed?.expires_at ?? 0) - Date.now() > 89 * 86_400_000);
  await lifecycle.rotate("codex", { ...ROTATE, renew: true });
  t.match(world.asked, [{ like: "id:1", renewed: { quota: 20_000_000 } }]);
  checkOneKey(t, world, "agreed");
  world.clean();
});

for (const takesOwnKeys of [true, false])
  t.test(
    `after a kill no key is created with settings that only the file has (${takesOwnKeys ? "our keys" : "theirs"})`,
    async (t) => {
      let made = 1;
      for (let effects = 0; effects < MOST_EFFECTS && made === 1; effects += 1) {
        const world = new World(takesOwnKeys, true);
        world.facts = ENDED;
        const daemon = await world.start(effects);
        await daemon.lifecycle.rotate("codex", { ...ROTATE, renew: true }).catch(() => {});
        made = world.made;
        await finishLater(world);
        t.equal(world.made, made, `killed at effect ${effects}: none is created later`);
        checkOneKey(t, world, `killed at effect ${effects}`);
        world.clean();
      }
      t.equal(made, 2, "the last one was killed after the key was created");
    },
  );

t.test("two rotations at once: the second is refused", async (t) => {
  const world = new World(true, true);
  const { lifecycle } = await world.start();
  const both = await Promise.allSettled([
    lifecycle.rotate("codex", ROTATE),
    lifecycle.rotate("codex", ROTATE),
  ]);
  t.strictSame(both.map(({ status }) => status).toSorted(), ["fulfilled", "rejected"]);
  checkOneKey(t, world, "after both");
  world.clean();
});

t.test("a tool keeps its new key if the gateway cannot be reached after a crash", async (t) => {
  let finished = false;
  for (let effects = 0; effects < MOST_EFFECTS && !finished; effects += STEP) {
    const world = new World(true, true);
    const daemon = await world.start(effects);
    await daemon.lifecycle.rotate("codex", ROTATE).catch(() => {});
    finished = !daemon.fuse.isBurnt;
    world.verdict = { state: "unclear", problem: "it cannot be reached", next: "" };
    await resume(await world.start());
    t.not(world.usedKey(), null, `killed at effect ${effects}: the tool has a key meanwhile`);
    world.verdict = { state: "accepted" };
    await finishLater(world);
    checkOneKey(t, world, `killed at effect ${effects}`);
    world.clean();
  }
  t.ok(finished);
});

t.test("a key that is created after its answer was lost is deleted, too", async (t) => {
  const world = new World(false, true);
  world.refusal = new ConsoleError("slow", "did not answer within 30 s");
  const daemon = await world.start();
  let pauses = 0;
  world.onPause = () => {
    const [intent] = daemon.intents.all();
    // Not while the creation is still being tried again.
    if (intent?.step !== "undo") return;
    pauses += 1;
    world.addKey(intent.successor?.name ?? "");
  };
  await t.rejects(daemon.lifecycle.rotate("codex", ROTATE), { message: /did not answer/ });
  t.equal(pauses, 1, "it waited for the key");
  checkOneKey(t, world, "created late");
  world.clean();
});

t.test("two tools with one key: the last rotation deletes it", async (t) => {
  const world = new World(true, true);
  const shared = world.live[0];
  world.named.set("zed", "/keys/codex");
  const { lifecycle } = await world.start();
  t.match(await lifecycle.rotate("codex", ROTATE), { state: "kept" });
  t.ok(shared !== undefined && world.live.includes(shared), "zed still has it");
  t.match(await lifecycle.rotate("zed", ROTATE), { state: "done" });
  t.notOk(shared !== undefined && world.live.includes(shared), "no tool has it any more");
  world.clean();
});

t.test("two tools with one key that are rotated at the same time delete it", async (t) => {
  const world = new World(true, true);
  const shared = world.live[0];
  world.named.set("zed", "/keys/codex");
  const { lifecycle } = await world.start();
  await Promise.all([lifecycle.rotate("codex", ROTATE), lifecycle.rotate("zed", ROTATE)]);
  t.notOk(shared !== undefined && world.live.includes(shared));
  t.equal(world.live.length, 2, "each has its own");
  world.clean();
});

t.test("a new key that its tool does not use yet is not deleted by hand", async (t) => {
  const world = new World(true, true);
  const { lifecycle } = await world.start();
  world.verdict = { state: "unclear", problem: "it cannot be reached", next: "" };
  let byHand: Promise<unknown> | null = null;
  world.onPause = () => {
    const successor = world.live[1];
    if (successor === undefined || byHand !== null) return;
    byHand = t.rejects(lifecycle.changeUnheld(world.report(successor), "delete"), {
      message: "the change of the key of codex is not finished",
    });
    world.verdict = { state: "accepted" };
  };
  await lifecycle.rotate("codex", ROTATE);
  t.not(byHand, null);
  await byHand;
  checkOneKey(t, world, "after both");
  world.clean();
});

t.test("a key that cannot be read is not searched at the console", async (t) => {
  const world = new World(true, true);
  world.stored.clear();
  const { lifecycle } = await world.start();
  const refusal = { message: /the key of codex cannot be read/ };
  await t.rejects(lifecycle.rotate("codex", ROTATE), refusal);
  await t.rejects(lifecycle.delete("codex"), refusal);
  await t.rejects(lifecycle.setEnabled("codex", false), refusal);
  world.clean();
});

t.test("a key that the console refuses to delete can be deleted by hand", async (t) => {
  const world = new World(true, true);
  world.keepsKeys = true;
  const daemon = await world.start();
  const problem = "the console of main does not let users delete keys";
  t.match(await daemon.lifecycle.rotate("codex", ROTATE), { state: "retiring", why: problem });
  const old = world.live[0];
  t.strictSame(daemon.lifecycle.unfinished(), [
    { tool: "codex", problem, next: `delete key ${old?.key.fingerprint} in the console` },
  ]);
  world.live.shift();
  await resume(daemon);
  t.strictSame(daemon.intents.all(), []);
  checkOneKey(t, world, "deleted by hand");
  world.clean();
});

t.test("nothing begins if the intent cannot be written", async (t) => {
  const world = new World(true, true);
  const daemon = await world.start();
  mkdirSync(world.intentFile);
  await t.rejects(daemon.lifecycle.rotate("codex", ROTATE), {
    message: /key-changes.json cannot be written/,
  });
  await t.rejects(daemon.lifecycle.delete("codex"), { message: /key-changes.json cannot be written/ });
  t.strictSame(daemon.intents.all(), []);
  checkOneKey(t, world, "not begun");
  world.clean();
});

/** The next daemon finishes what the killed one began. */
async function finishLater(world: World): Promise<void> {
  const daemon = await world.start();
  for (let turn = 0; turn < 5 && daemon.intents.all().length > 0; turn += 1) await resume(daemon);
}

async function resume({ lifecycle }: Daemon): Promise<void> {
  lifecycle.resume();
  await lifecycle.settled();
}

function checkOneKey(t: Test, world: World, when: string): void {
  const used = world.usedKey();
  t.equal(world.live.length, 1, `${when}: the console has one key`);
  t.ok(used !== null && world.live[0]?.key.equals(used), `${when}: it is the tool's`);
  t.equal(world.stored.size, 1, `${when}: one key is stored`);
}

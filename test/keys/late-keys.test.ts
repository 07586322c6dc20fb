import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { Secret } from "../../src/core/secret.ts";
import { notedPids } from "../doubles/secret-service.ts";
import { until } from "../doubles/until.ts";
import { isAlive } from "./is-alive.ts";
import {
  A,
  B,
  describeState,
  EVIL,
  keyringIn,
  ONE,
  script,
  TWO,
  waiting,
  want,
} from "./keyring-under-test.ts";

const literal = (value: string) => ({ kind: "literal", secret: new Secret(value) }) as const;

function pidsOf(folder: string, name = "wait"): number[] {
  return notedPids(join(folder, `${name}.pids`));
}

t.test("a slow command does not keep the others waiting, and is reported when it arrives", async (t) => {
  const { folder, keyring, late } = await keyringIn(t);
  const wants = [want("slow", waiting(folder), A), want("quick", literal(TWO), A)];
  const states = await keyring.resolve(wants, 50);
  t.match(describeState(states.get("slow")), /unavailable command .* is still being read/);
  t.equal(describeState(states.get("quick")), `ready ${TWO}`);
  t.equal(late(), 0);
  writeFileSync(join(folder, "go"), ONE);
  await until("the late key is reported", () => late() === 1);
  t.equal(describeState(keyring.current().get("slow")), `ready ${ONE}`);
  t.match(describeState(states.get("slow")), /still being read/, "a returned map does not change later");
});

t.test("without a time limit, resolve waits for every key", async (t) => {
  const { folder, keyring, late } = await keyringIn(t);
  const states = keyring.resolve([want("slow", waiting(folder), A)], Number.POSITIVE_INFINITY);
  await until("the command runs", () => pidsOf(folder).length === 1);
  writeFileSync(join(folder, "go"), ONE);
  t.equal(describeState((await states).get("slow")), `ready ${ONE}`);
  t.equal(late(), 0);
});

t.test("while an unchanged source is read again, the tool goes on with its key", async (t) => {
  const { folder, keyring, late } = await keyringIn(t);
  const source = waiting(folder);
  writeFileSync(join(folder, "go"), ONE);
  await keyring.resolve([want("slow", source, A)], Number.POSITIVE_INFINITY);
  rmSync(join(folder, "go"));
  t.equal(describeState((await keyring.resolve([want("slow", source, A)], 50)).get("slow")), `ready ${ONE}`);
  writeFileSync(join(folder, "go"), TWO);
  await until("the late key is reported", () => late() === 1);
  t.equal(describeState(keyring.current().get("slow")), `ready ${TWO}`);
});

t.test("the same key that arrives late is not reported", async (t) => {
  const { folder, keyring, late } = await keyringIn(t);
  const source = waiting(folder);
  writeFileSync(join(folder, "go"), ONE);
  await keyring.resolve([want("slow", source, A)], Number.POSITIVE_INFINITY);
  rmSync(join(folder, "go"));
  const other = want(
    "other",
    script(folder, "other", `while [ ! -s "$DIR/go" ]; do sleep 0.02; done; sleep 0.2; echo ${TWO}`),
    A,
  );
  await keyring.resolve([want("slow", source, A), other], 50);
  writeFileSync(join(folder, "go"), ONE);
  await until(
    "the other key is there",
    () => describeState(keyring.current().get("other")) === `ready ${TWO}`,
  );
  await until("a late key is reported", () => late() > 0);
  t.equal(late(), 1, "only the other tool's key was news");
});

t.test("the key of a tool that moved meanwhile is held", async (t) => {
  const { folder, keyring, trust } = await keyringIn(t);
  const source = waiting(folder);
  writeFileSync(join(folder, "go"), ONE);
  await keyring.resolve([want("slow", source, A)], Number.POSITIVE_INFINITY);
  await trust.settle();
  rmSync(join(folder, "go"));
  const states = await keyring.resolve([want("slow", source, EVIL)], 50);
  t.equal(describeState(states.get("slow")), `held ${A} → ${EVIL}`);
});

t.test("a newer configuration ends commands that only the older one needs", async (t) => {
  const { folder, keyring, late } = await keyringIn(t);
  const older = keyring.resolve([want("codex", waiting(folder), EVIL)], Number.POSITIVE_INFINITY);
  await until("the command runs", () => pidsOf(folder).length === 1);
  const newer = await keyring.resolve([want("codex", literal(TWO), A)], Number.POSITIVE_INFINITY);
  t.equal(describeState(newer.get("codex")), `ready ${TWO}`);
  const [pid = 0] = pidsOf(folder);
  t.ok(pid > 1);
  await until("the older command is ended", () => !isAlive(pid));
  t.match(describeState((await older).get("codex")), /unavailable/, "and the older one is answered");
  t.equal(describeState(keyring.current().get("codex")), `ready ${TWO}`);
  t.equal(late(), 0);
});

t.test("a command that both configurations need goes on, and its key belongs to the newer one", async (t) => {
  const { folder, keyring, trust, late } = await keyringIn(t);
  const source = waiting(folder);
  await keyring.resolve([want("codex", source, A)], 50);
  await until("the command runs", () => pidsOf(folder).length === 1);
  // Still the first start, which is why the command may serve another origin here.
  await keyring.resolve([want("codex", source, B)], 50);
  await trust.settle();
  writeFileSync(join(folder, "go"), ONE);
  await until("the late key is reported", () => late() === 1);
  t.equal(describeState(keyring.current().get("codex")), `ready ${ONE}`);
  t.equal(pidsOf(folder).length, 1, "a fingerprint was asked for only once");
  const key = new Secret(ONE);
  t.match(
    trust.judgeKey(want("x", { kind: "env", name: "K" }, A), key),
    { from: B, to: A },
    "nothing pinned it to A",
  );
});

t.test("a key that arrives late needs the same trust as any other", async (t) => {
  const { folder, keyring, trust, late } = await keyringIn(t);
  await keyring.resolve([want("codex", literal(ONE), A), want("slow", waiting(folder), B)], 50);
  await trust.settle();
  writeFileSync(join(folder, "go"), ONE);
  await until("the late key is reported", () => late() === 1);
  t.equal(describeState(keyring.current().get("slow")), `held ${A} → ${B}`);
});

t.test(
  "a key that was read for an older configuration is not pinned to where that one sent it",
  async (t) => {
    const { folder, keyring, trust } = await keyringIn(t);
    await trust.settle();
    const path = join(folder, "key");
    writeFileSync(path, ONE);
    const source = { kind: "file", path } as const;
    trust.grant(want("codex", source, A, EVIL), null);
    const older = keyring.resolve([want("codex", source, EVIL)], Number.POSITIVE_INFINITY);
    const newer = keyring.resolve([want("codex", source, A)], Number.POSITIVE_INFINITY);
    t.equal(describeState((await newer).get("codex")), `ready ${ONE}`);
    t.match(describeState((await older).get("codex")), /unavailable/);
    t.match(trust.judgeKey(want("codex", source, EVIL), new Secret(ONE)), { from: A, to: EVIL });
  },
);

import { randomBytes } from "node:crypto";
import t, { type Test } from "tap";
import { stringify } from "yaml";
import { command } from "../doubles/command.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { liveKeys } from "../doubles/key-journey.ts";
import { hello, newKey, post, startSandbox, type TestGateway } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";
import { emptyStore, missingStore, type StoreServer } from "../shared/redis.ts";

const skip = missingStore() ?? false;
const ROTATE = ["tools", "rotate", "codex", "--store", "file", "--yes"];

interface Common {
  readonly store: StoreServer;
  readonly sandbox: TestGateway;
  readonly secret: string;
  readonly key: string;
}

async function startMachine(t: Test, name: string, { store, sandbox, secret, key }: Common) {
  const { account } = sandbox;
  const { token, hash } = freshToken();
  const login = { email: account.email, password: account.password.reveal() };
  const console = { kind: "sub2api", url: sandbox.origin, login };
  const { username, password } = store;
  const under = await startUnderTest(
    t,
    stringify({
      gateways: { main: { base_url: sandbox.baseUrl, console } },
      tools: { codex: { key, token: hash } },
      shared: {
        store: { url: `redis://127.0.0.1:${store.port}`, username, password },
        secret,
        machine: name,
        timezone: "UTC",
      },
    }),
  );
  return {
    ...under,
    ask: async () => (await post(`${under.url}/v1/chat/completions`, token, hello())).status,
    keyOf: async () => (await under.daemon.status()).tools[0]?.key,
    rotate: (...more: string[]) => command(t, under.home, [...ROTATE, ...more]),
  };
}

/** Two machines that use one key, and the first knows it. */
async function startBoth(t: Test) {
  const store = await emptyStore();
  const sandbox = await startSandbox(t);
  const { text: key, fingerprint } = newKey(sandbox);
  const common = { store, sandbox, key, secret: randomBytes(32).toString("hex") };
  const laptop = await startMachine(t, "laptop", common);
  const desktop = await startMachine(t, "desktop", common);
  await until("both machines know each other", async () => {
    const known = await Promise.all(
      [laptop, desktop].map(async ({ daemon }) => (await daemon.status()).shared),
    );
    return known.every((shared) => shared?.machines.length === 2);
  });
  // The desktop reports its keys with its first call.
  await until("the laptop knows whose key it is", async () =>
    /also used on desktop/.test((await laptop.rotate()).stderr),
  );
  return { store, sandbox, key, fingerprint, laptop, desktop };
}

t.test(
  "after a rotation by hand, the other machines need a key before the old one is deleted",
  { skip },
  async (t) => {
    const { sandbox, fingerprint, laptop, desktop } = await startBoth(t);
    const typed = ["tools", "rotate", "codex", "--key-stdin", "--store", "file"];
    const { code, stderr } = await command(t, laptop.home, typed, { input: newKey(sandbox).text });
    t.equal(code, 0, stderr);
    const words =
      "also used on desktop: give each of these machines a key of its own first, then delete the old key";
    t.match(stderr, `${words} ${fingerprint} in the gateway's console`);
    t.strictSame([await laptop.ask(), await desktop.ask()], [200, 200]);
  },
);

t.test("a key that two machines use is rotated only with --force", { skip }, async (t) => {
  const { store, sandbox, key, fingerprint, laptop, desktop } = await startBoth(t);
  const refused = await laptop.rotate();
  t.match(
    refused.stderr,
    /also used on desktop, and would stop working there: each machine needs its own key/,
  );
  t.match(refused.stderr, /keybearer tools rotate codex --force/);
  t.strictSame([await laptop.keyOf(), await laptop.ask(), await desktop.ask()], [fingerprint, 200, 200]);

  const forced = await laptop.rotate("--force");
  t.equal(forced.code, 0, forced.stderr);
  await until("the desktop makes itself a key", async () => (await desktop.keyOf()) !== fingerprint);
  const keys = [await laptop.keyOf(), await desktop.keyOf()];
  t.ok(new Set([...keys, fingerprint]).size === 3, "each machine has its own key");
  t.strictSame([await laptop.ask(), await desktop.ask()], [200, 200]);
  t.equal(liveKeys(sandbox).length, 2, "and the console has no other");
  await until("it is reported", async () =>
    (await desktop.daemon.status()).actions.some(({ what }) =>
      /gave codex a key of its own, because machine laptop/.test(what),
    ),
  );
  const stored = await store.dump();
  t.notOk(stored.includes(key.slice(-16)), "the old key is not in the store");
  t.notMatch(stored, /sk-/, "and no other");

  // Both report.
  for (const { daemon } of [desktop, laptop]) await daemon.status();
  const alone = await laptop.rotate();
  t.equal(alone.code, 0, `no other machine uses the laptop's key: ${alone.stderr}`);
});

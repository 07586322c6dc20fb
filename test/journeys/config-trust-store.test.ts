import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import t from "tap";
import { newHome } from "../doubles/command.ts";
import { holdsNone, messages } from "../doubles/config-journey.ts";
import { type DaemonUnderTest, startUnderTest } from "../doubles/daemon-under-test.ts";
import { until } from "../doubles/until.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

/* The password of the shared store. Nothing listens at these addresses. */
const HERE = "redis://127.0.0.1:9";
const ELSEWHERE = "redis://127.0.0.1:10";

const newPassword = () => `canary-${randomBytes(16).toString("hex")}`;

function configOf(url: string, password: string): string {
  return `gateway: http://127.0.0.1:9/v1
tools: { codex: { key: sk-0123456789abcdef } }
shared: { store: { url: "${url}", password: ${password} }, machine: laptop }
`;
}

async function sharedOf(under: DaemonUnderTest) {
  const { shared } = await under.daemon.status();
  return shared;
}

async function untilNext(under: DaemonUnderTest, next: string | null): Promise<void> {
  await until(`what to type is ${next}`, async () => ((await sharedOf(under))?.next ?? null) === next);
}

t.test("status has nothing about a store that is not configured", async (t) => {
  const under = await startUnderTest(t, "gateway: http://127.0.0.1:9/v1\ntools: { codex: {} }\n");
  t.equal((await under.daemon.status()).shared, null);
});

t.test("a known password is held at another address, over a restart too", async (t) => {
  const home = await newHome(t);
  const password = newPassword();
  const under = await startUnderTest(t, configOf(HERE, password), { home });
  t.match(await sharedOf(under), { address: HERE, next: null });

  await under.save(configOf(ELSEWHERE, password));
  await untilNext(under, "keybearer trust shared");
  t.match(await sharedOf(under), {
    state: "refused",
    problem: `the password of the shared store waits for your confirmation: ${HERE} → ${ELSEWHERE}`,
  });
  const log = messages(under).join("\n");
  t.match(log, `shared: store ${HERE} → ${ELSEWHERE}`);
  t.match(log, /shared: password ready → held \(the password of the shared store: /);
  await under.daemon.reload();
  t.equal(
    (await sharedOf(under))?.next,
    "keybearer trust shared",
    "reading everything again is no way around",
  );

  await under.save(configOf(ELSEWHERE, newPassword()));
  await until("the new password was judged", () =>
    under.daemon.status().then(({ config }) => config.revision > 3),
  );
  t.equal((await sharedOf(under))?.next, "keybearer trust shared", "another password does not release it");
  await under.save(configOf(ELSEWHERE, password));
  await under.daemon.stop(0);

  const again = await startUnderTest(t, null, { home });
  t.equal((await sharedOf(again))?.next, "keybearer trust shared");
  await again.save(configOf(HERE, password));
  await untilNext(again, null);
  for (const daemon of [under, again]) holdsNone(t, daemon, [password]);
});

t.test(
  "another database of the same server needs no confirmation, and neither does a rotation",
  async (t) => {
    const under = await startUnderTest(t, configOf(HERE, newPassword()));
    await under.save(configOf(`${HERE}/3`, newPassword()));
    await until("the save is in force", async () => (await sharedOf(under))?.address === `${HERE}/3`);
    t.equal((await sharedOf(under))?.next, null);
    t.match(messages(under).join("\n"), /^shared: password changed$/m);
  },
);

t.test("a key of a tool is not sent to a store", async (t) => {
  const under = await startUnderTest(t, configOf(HERE, newPassword()));
  await under.save(configOf(HERE, "sk-0123456789abcdef"));
  await untilNext(under, "keybearer trust shared");
  t.match((await sharedOf(under))?.problem, /http:\/\/127\.0\.0\.1:9 → redis:\/\/127\.0\.0\.1:9/);
});

t.test("a password in a file is watched, and one that is missing is reported", async (t) => {
  const home = await newHome(t);
  const file = join(home, "keys-store");
  const under = await startUnderTest(t, configOf(HERE, `file:${file}`), { home });
  t.match(await sharedOf(under), {
    state: "refused",
    problem: /its password cannot be read: /,
    next: "correct shared.store.password in config.yaml",
  });
  const password = newPassword();
  await writeFile(file, `${password}\n`, { mode: 0o600 });
  await untilNext(under, null);
  t.match(messages(under).join("\n"), /^shared: password unavailable → ready$/m);
  holdsNone(t, under, [password]);
});

t.test("a new variable, command or file outside keybearer's folders is held and not read", async (t) => {
  const env = { STORE_PASSWORD: newPassword() };
  const under = await startUnderTest(t, configOf(HERE, newPassword()), { env });
  for (const source of [
    "env:STORE_PASSWORD",
    "file:/etc/hostname",
    "{ command: [/bin/echo, correct-horse-battery] }",
  ]) {
    await under.save(configOf(HERE, source));
    const words = source.includes("command") ? "/bin/echo" : source.replace("file:", "");
    await until(`${source} is held`, async () => (await sharedOf(under))?.problem?.includes(words) === true);
    t.equal((await sharedOf(under))?.next, "keybearer trust shared");
  }
});

t.test("a command of another key does not see the variable with the password", async (t) => {
  const env = { STORE_PASSWORD: newPassword(), PATH: "/usr/bin:/bin" };
  const home = await newHome(t);
  const seen = join(home, "seen");
  const text = `gateway: http://127.0.0.1:9/v1
tools: { codex: { key: { command: [/bin/sh, -c, "env > ${seen}; echo sk-0123456789abcdef"] } } }
shared: { store: { url: "${HERE}", password: env:STORE_PASSWORD } }
`;
  const under = await startUnderTest(t, text, { home, env });
  t.equal((await sharedOf(under))?.next, null);
  t.notMatch(await readFile(seen, "utf8"), "STORE_PASSWORD");
});

t.test("the secret that signs records follows the same rules as the password", async (t) => {
  const withSecret = (url: string, secret: string) =>
    `${configOf(url, "another-password").trimEnd().slice(0, -2)}, secret: ${secret} }\n`;
  const secret = randomBytes(32).toString("hex");
  const under = await startUnderTest(t, withSecret(HERE, secret));
  t.equal((await sharedOf(under))?.next, null);

  await under.save(withSecret(ELSEWHERE, secret));
  await untilNext(under, "keybearer trust shared");
  await under.save(withSecret(HERE, "file:/etc/hostname"));
  await until(
    "a file is held",
    async () => (await sharedOf(under))?.problem?.includes("/etc/hostname") === true,
  );
  t.match((await sharedOf(under))?.problem, "the secret of the shared store waits for your confirmation");

  await under.save(withSecret(HERE, "0123456789abcdef"));
  await untilNext(under, "make one with: openssl rand -hex 32");
  t.match(await sharedOf(under), { state: "refused", problem: /fewer than 32 characters/ });
  await under.save(withSecret(HERE, secret));
  await untilNext(under, null);
  holdsNone(t, under, [secret]);
  t.notMatch(JSON.stringify(await under.daemon.status()), secret.slice(-8));
});

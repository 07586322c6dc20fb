import { existsSync, readdirSync, readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { join } from "node:path";
import t, { type Test } from "tap";
import { command, newHome, type Running, saveConfig, startServing } from "../doubles/command.ts";
import { freshToken } from "../doubles/daemon-under-test.ts";
import { hello, newKey, post, TestGateway } from "../doubles/sandbox.ts";
import { filesBelow, scan, textsOf } from "../doubles/secret-scan.ts";
import { missingForSecrets, startSecretService } from "../doubles/secret-service.ts";
import { until } from "../doubles/until.ts";

/** A gateway whose console can kill the daemon at its n-th call. */
class DeadlyGateway extends TestGateway {
  /** How many calls to the console it lives through; null: all. */
  lives: number | null = null;
  /** The call is served before the kill. */
  isServedFirst = false;
  kill = (): void => {};

  protected override async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const isKeyCall = /^\/api\/v1\/keys/.test(request.url ?? "") || request.url === "/v1/models";
    if (this.lives === null || !isKeyCall) return super.serve(request, response);
    this.lives -= 1;
    if (this.lives > 0) return super.serve(request, response);
    this.lives = null;
    if (this.isServedFirst) {
      const served = super.serve(request, response);
      await new Promise((resolve) => response.once("finish", resolve));
      this.kill();
      return served;
    }
    this.kill();
    response.destroy();
  }
}

interface Setup {
  readonly gateway: DeadlyGateway;
  readonly home: string;
  readonly token: string;
  /** The key that the tool begins with. */
  readonly first: string;
}

async function setUp(t: Test, tool = ""): Promise<Setup> {
  const gateway = new DeadlyGateway({}, (error) => t.fail(String(error)));
  await gateway.start();
  t.teardown(() => gateway.stop());
  const { token, hash } = freshToken();
  const home = await newHome(t);
  const { email, password } = gateway.account;
  const { text: first } = newKey(gateway);
  await saveConfig(
    home,
    `listen: localhost:0
gateways:
  main:
    base_url: ${gateway.baseUrl}
    console: { kind: sub2api, url: ${gateway.origin}, login: { email: ${email}, password: ${password.reveal()} } }
tools:
  codex:
    key: ${first}
    token: ${hash}
${tool}
`,
  );
  return { gateway, home, token, first };
}

/** The keys that exist at the gateway, without those that were deleted. */
function liveKeys(gateway: TestGateway): string[] {
  return gateway.account.keys.filter(({ deletedAt }) => deletedAt === null).map(({ name }) => name);
}

function storedKey(home: string): string {
  const [, path = ""] = /^ {4}key: file:(.*)$/m.exec(readFileSync(join(home, "config.yaml"), "utf8")) ?? [];
  return readFileSync(path.replace(/^~/, home), "utf8").trim();
}

const ROTATE = ["tools", "rotate", "codex", "--store", "file", "--yes"];

t.test("a rotation through the console replaces the key under load, and no request fails", async (t) => {
  const { gateway, home, token, first } = await setUp(t);
  const daemon = await startServing(t, home);
  const load = sendRequests(daemon.url, token);
  await until("requests pass", () => load.answered() > 20);
  for (let turn = 1; turn <= 3; turn += 1) {
    const { code, stdout, stderr } = await command(t, home, ROTATE);
    t.equal(code, 0, stderr);
    t.match(stdout, /^codex: key …\w{4} → …\w{4}$/m);
    t.match(stderr, /the old key is deleted at the console, and the gateway refuses it/);
    t.equal(liveKeys(gateway).length, 1, "the console has one key");
  }
  const before = load.answered();
  await until("requests still pass", () => load.answered() > before + 20);
  t.strictSame(await load.stop(), [], "no request failed");
  t.equal(
    (await post(`${gateway.baseUrl}/chat/completions`, first, hello())).status,
    401,
    "the first key is dead",
  );
  t.strictSame(readdirSync(join(home, "keys")).length, 1, "one key is stored");
  t.equal((await command(t, home, ["mirror", "sync"])).code, 0);
  t.equal((await command(t, home, ["mirror"])).code, 0, "there is no alarm");
});

t.test("nobody sees a key that the console made", async (t) => {
  const { gateway, home, first } = await setUp(t);
  const daemon = await startServing(t, home);
  const added = await command(t, home, [
    ...["tools", "add", "zed", "--create", "--store", "file", "--group", "default", "--quota", "20"],
    ...["--expires", "90d", "--yes"],
  ]);
  t.equal(added.code, 0, added.stderr);
  const rotated = await command(t, home, ROTATE);
  t.equal(rotated.code, 0, rotated.stderr);
  const made = gateway.account.keys.find(({ name }) => name.startsWith("zed-"));
  t.equal(made?.quota, 20, "the console has its quota");
  t.ok((made?.expiresAt ?? 0) > Date.now() + 89 * 86_400_000, "and its expiry");
  const token = added.stdout.trim();
  t.equal((await post(`${daemon.url}/v1/chat/completions`, token, hello())).status, 200, "its token works");
  const keys = filesBelow(join(home, "keys")).map((file) => readFileSync(file, "utf8").trim());
  t.equal(keys.length, 2);
  daemon.child.kill("SIGTERM");
  const { stdout, stderr } = await daemon.ended;
  const files = filesBelow(home).filter((file) => !file.startsWith(join(home, "keys")));
  const places = {
    ...textsOf(files),
    stdout: stdout + added.stdout + rotated.stdout,
    stderr: stderr + added.stderr + rotated.stderr,
  };
  t.strictSame(
    scan(places, { zed: keys[0] ?? "", codex: keys[1] ?? "", first }),
    [],
    "no key is anywhere else",
  );
});

t.test("a key that cannot be made leaves nothing behind", async (t) => {
  const { gateway, home } = await setUp(t);
  await startServing(t, home);
  const before = readFileSync(join(home, "config.yaml"), "utf8");
  const { code, stderr } = await command(t, home, [
    "tools",
    "add",
    "zed",
    "--create",
    "--group",
    "nowhere",
    "--store",
    "file",
    "--yes",
  ]);
  t.equal(code, 1);
  t.match(stderr, /has no group nowhere for this account; it has .*default/);
  const bare = await command(t, home, ["tools", "add", "zed", "--create", "--store", "file", "--yes"]);
  t.match(bare.stderr, /makes no key without --group; it has .*default/);
  t.equal(
    withoutGroups(readFileSync(join(home, "config.yaml"), "utf8")),
    withoutGroups(before),
    "config.yaml is as before",
  );
  t.strictSame(liveKeys(gateway), ["test"]);
  t.notOk(existsSync(join(home, "keys", "zed")));
});

t.test("a daemon that is killed during a rotation finishes it at its next start", async (t) => {
  let kills = 0;
  for (const isServedFirst of [false, true]) {
    for (let lives = 1; lives <= 12; lives += 1) {
      const { gateway, home, token, first } = await setUp(t);
      const daemon = await startServing(t, home);
      await until("the console was read", () =>
        gateway.requests().some(({ path }) => path.startsWith("/api/v1/usage")),
      );
      let isKilled = false;
      gateway.kill = () => {
        isKilled = true;
        daemon.child.kill("SIGKILL");
      };
      gateway.isServedFirst = isServedFirst;
      gateway.lives = lives;
      await command(t, home, ROTATE);
      gateway.lives = null;
      if (isKilled) kills += 1;
      else daemon.child.kill("SIGKILL");
      await daemon.ended;
      const again = await startServing(t, home);
      await finished(home, again);
      const what = `killed at call ${lives}${isServedFirst ? ", after its answer" : ""}`;
      const live = liveKeys(gateway);
      t.equal(live.length, 1, `${what}: the console has one key (${live.join(", ")})`);
      t.equal(
        (await post(`${again.url}/v1/chat/completions`, token, hello())).status,
        200,
        `${what}: it works`,
      );
      const config = readFileSync(join(home, "config.yaml"), "utf8");
      const isRotated = !config.includes(first);
      if (isRotated) {
        const key = storedKey(home);
        t.strictSame(readdirSync(join(home, "keys")).length, 1, `${what}: one key is stored`);
        t.strictSame(
          scan({ intents: intentsOf(home) }, { key, first }),
          [],
          `${what}: no key is in the intents`,
        );
        const old = await post(`${gateway.baseUrl}/chat/completions`, first, hello());
        t.equal(old.status, 401, `${what}: the old key is dead`);
      }
      again.child.kill("SIGKILL");
      await again.ended;
    }
  }
  t.ok(kills >= 12, `the daemon was killed ${kills} times`);
});

t.test(
  "a tool whose first key was being made when the daemon was killed gets it at the next start",
  async (t) => {
    let made = 0;
    for (let lives = 1; lives <= 8; lives += 1) {
      const { gateway, home } = await setUp(t);
      const daemon = await startServing(t, home);
      gateway.kill = () => daemon.child.kill("SIGKILL");
      gateway.isServedFirst = true;
      gateway.lives = lives;
      const added = await command(t, home, [
        "tools",
        "add",
        "zed",
        "--create",
        "--group",
        "default",
        "--store",
        "file",
        "--yes",
      ]);
      gateway.lives = null;
      daemon.child.kill("SIGKILL");
      await daemon.ended;
      const again = await startServing(t, home);
      await finished(home, again);
      const what = `killed at call ${lives}`;
      const isAdded = /^ {2}zed:/m.test(readFileSync(join(home, "config.yaml"), "utf8"));
      const isMade = liveKeys(gateway).some((name) => name.startsWith("zed-"));
      t.ok(isAdded || !isMade, `${what}: no key is without its tool`);
      if (isMade) {
        made += 1;
        const status = await post(`${again.url}/v1/chat/completions`, added.stdout.trim(), hello());
        t.equal(status.status, 200, `${what}: the tool works with the token that was printed`);
      }
      again.child.kill("SIGKILL");
      await again.ended;
    }
    t.ok(made > 0, `${made} keys were made`);
  },
);

const missing = missingForSecrets();
if (missing !== null) process.stderr.write(`!!! no ${missing}: a rotation in the keychain is not tested\n`);

t.test("a rotation in the keychain leaves one entry", { skip: missing ?? false }, async (t) => {
  const { gateway, home, token, first } = await setUp(t);
  const { env } = await startSecretService(t);
  const keychain = { env: { DBUS_SESSION_BUS_ADDRESS: env.DBUS_SESSION_BUS_ADDRESS } };
  const daemon = await startServing(t, home, keychain);
  for (const name of ["codex", "codex-2", "codex"]) {
    const rotated = await command(
      t,
      home,
      ["tools", "rotate", "codex", "--store", "keychain", "--yes"],
      keychain,
    );
    t.equal(rotated.code, 0, rotated.stderr);
    t.match(readFileSync(join(home, "config.yaml"), "utf8"), `key: keychain:keybearer/${name}\n`);
    t.equal((await post(`${daemon.url}/v1/chat/completions`, token, hello())).status, 200, "it works");
  }
  t.equal(liveKeys(gateway).length, 1, "the console has one key");
  t.equal(
    (await post(`${gateway.baseUrl}/chat/completions`, first, hello())).status,
    401,
    "the first is dead",
  );
});

t.test("a key that is used elsewhere is rotated only by force", async (t) => {
  const { gateway, home } = await setUp(t, "    keys_elsewhere: true");
  await startServing(t, home);
  const refused = await command(t, home, ROTATE);
  t.not(refused.code, 0);
  t.match(refused.stderr, /also used on other machines .*--force/s);
  t.strictSame(liveKeys(gateway), ["test"]);
  const forced = await command(t, home, [...ROTATE, "--force"]);
  t.equal(forced.code, 0, forced.stderr);
});

t.test("several keys are rotated by their age", async (t) => {
  const { gateway, home } = await setUp(t);
  await startServing(t, home);
  const none = await command(t, home, ["tools", "rotate", "--older-than", "90d", "--store", "file", "--yes"]);
  t.match(none.stderr, /no key is to be rotated/);
  const all = await command(t, home, ["tools", "rotate", "--all", "--store", "file", "--yes"]);
  t.equal(all.code, 0, all.stderr);
  t.match(all.stdout, /^codex: key/m);
  t.equal(liveKeys(gateway).length, 1);
});

t.test(
  "without a daemon, or with a console that is gone, nothing changes and the manual way is named",
  async (t) => {
    const { gateway, home, first } = await setUp(t);
    const alone = await command(t, home, ROTATE);
    t.match(alone.stderr, /keybearer is not running/);
    await startServing(t, home);
    await gateway.stop();
    const { code, stderr } = await command(t, home, ROTATE);
    t.not(code, 0);
    t.match(stderr, /the console of main cannot be reached/);
    t.match(readFileSync(join(home, "config.yaml"), "utf8"), first, "config.yaml is as before");
    await gateway.start(
      Number(new URL(/url: (\S+),/.exec(readFileSync(join(home, "config.yaml"), "utf8"))?.[1] ?? "").port),
    );
  },
);

/** Waits until no change of a key is unfinished. */
async function finished(home: string, daemon: Running): Promise<void> {
  await until("the change is finished", () => {
    if (daemon.child.exitCode !== null) throw new Error("the daemon ended");
    return !intentsOf(home).includes('"step"');
  });
}

function intentsOf(home: string): string {
  const file = join(home, "state", "key-changes.json");
  return existsSync(file) ? readFileSync(file, "utf8") : "";
}

/** The group of a new tool may stay: it is the gateway's. */
function withoutGroups(text: string): string {
  return text.replace(/^ {4}groups:[^\n]*\n(?: {6}[^\n]*\n)*/m, "").trim();
}

interface Load {
  answered(): number;
  /** What failed. */
  stop(): Promise<string[]>;
}

/** Twenty requests a second, until it is stopped. */
function sendRequests(url: string, token: string): Load {
  const failures: string[] = [];
  const running = new Set<Promise<void>>();
  let answered = 0;
  const send = async () => {
    try {
      const { status, text } = await post(`${url}/v1/chat/completions`, token, hello());
      answered += 1;
      if (status !== 200) failures.push(`${status} ${text}`);
    } catch (error) {
      failures.push(String(error));
    }
  };
  const timer = setInterval(() => {
    const one = send().finally(() => running.delete(one));
    running.add(one);
  }, 50);
  return {
    answered: () => answered,
    async stop() {
      clearInterval(timer);
      await Promise.all(running);
      return failures;
    },
  };
}

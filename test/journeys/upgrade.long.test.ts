import { cp, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { type IncomingMessage, request } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { askKeychain } from "../../src/keys/keychain.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { bareEnv, command, newHome, saveConfig, startProgram, startServing } from "../doubles/command.ts";
import { freshToken } from "../doubles/daemon-under-test.ts";
import { ROOT } from "../doubles/paths.ts";
import { hello, startSandbox } from "../doubles/sandbox.ts";
import { missingForSecrets, startSecretService } from "../doubles/secret-service.ts";
import { until } from "../doubles/until.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

const OLD = "0.0.1-old";

/** The package as npm installs it, dependencies and all: nothing in it leads back to this checkout. */
async function installPackage(t: Test): Promise<{ readonly main: string; replace(): Promise<void> }> {
  const top = await mkdtemp(join(tmpdir(), "kb-package-"));
  t.teardown(() => rm(top, { recursive: true, force: true }));
  const folder = join(top, "keybearer");
  const lock = JSON.parse(await readFile(join(ROOT, "package-lock.json"), "utf8"));
  const packages = Object.entries<{ dev?: boolean; devOptional?: boolean }>(lock.packages);
  const needed = packages.filter(([path, { dev, devOptional }]) => path !== "" && !dev && !devOptional);
  for (const path of ["dist", "service", ...needed.map(([path]) => path)]) {
    // Packages for other systems are in the lock, but not here.
    await cp(join(ROOT, path), join(folder, path), { recursive: true, filter: isRun }).catch((error) => {
      if (error.code !== "ENOENT") throw error;
    });
  }
  const own = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8"));
  await writeFile(join(folder, "package.json"), JSON.stringify({ ...own, version: OLD }));
  return {
    main: join(folder, "dist", "cli", "main.js"),
    /** As an installer does it, with other files in the same place; these cannot be used. */
    async replace() {
      const away = join(top, "away");
      await rename(folder, away);
      for (const entry of await readdir(away, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile()) continue;
        const file = join(entry.parentPath, entry.name).replace(away, folder);
        await mkdir(dirname(file), { recursive: true });
        await writeFile(file, entry.name === "package.json" ? '{ "version": "99.0.0" }' : "}{ replaced");
      }
      await rm(away, { recursive: true });
    },
  };
}

/** Not the half of a package that is only read by people and compilers. */
function isRun(path: string): boolean {
  return !/\.(?:ts|mts|cts|map|md)$|\/(?:docs|test|browser|benchmarks)$/.test(path);
}

interface Answer {
  readonly status: number;
  readonly refusal: string | undefined;
  readonly text: string;
}

interface Call {
  readonly token?: string;
  readonly path?: string;
  readonly model?: string;
  readonly stream?: boolean;
  readonly headers?: Readonly<Record<string, string>>;
  readonly onFirst?: () => void;
}

/** By node:http: fetch chooses some headers by itself. */
function callTo(port: number, call: Call): Promise<Answer> {
  const { token, path = "/v1/chat/completions", model, stream = false, headers = {}, onFirst } = call;
  return new Promise((resolve, reject) => {
    const auth = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const sent = { "content-type": "application/json", ...auth, ...headers };
    const asking = request({ host: "127.0.0.1", port, path, method: "POST", headers: sent, agent: false });
    asking.on("error", reject).on("response", (response: IncomingMessage) => {
      let text = "";
      const refusal = response.headers["x-keybearer-refusal"];
      response.setEncoding("utf8").on("error", reject);
      response.on("data", (piece: string) => {
        if (text === "") onFirst?.();
        text += piece;
      });
      response.on("end", () =>
        resolve({ status: response.statusCode ?? 0, refusal: refusal?.toString(), text }),
      );
    });
    asking.end(JSON.stringify({ ...hello(model), stream }));
  });
}

interface Tools {
  readonly config: string;
  readonly tokens: Readonly<Record<string, string>>;
}

/** One tool for each thing that can be refused, beside those that work. */
function tools(baseUrl: string, home: string, keys: () => string, keychain: boolean): Tools {
  const tokens: Record<string, string> = {};
  const tool = (name: string, more: string, key = keys()) => {
    const { token, hash } = freshToken();
    tokens[name] = token;
    return `  ${name}: { key: "${key}", token: "${hash}", ${more} }`;
  };
  const lines = [
    "listen: localhost:0",
    `gateways: { main: { base_url: "${baseUrl}", groups: { coding: { models: ["sandbox-*"] }, closed: { enabled: false } } }, gone: { base_url: "http://127.0.0.1:1/v1", timeouts: { retry_connect: 0s } } }`,
    "prices: { sandbox-small: { input: 1, output: 2 } }",
    "tools:",
    tool("codex", "gateway: main, group: coding", `file:${join(home, "codex.key")}`),
    ...(keychain ? [tool("vault", "gateway: main", "keychain:keybearer/vault")] : []),
    tool("asleep", "gateway: main, enabled: false"),
    tool("late", "gateway: main, expires: 2020-01-01"),
    tool("keyless", "gateway: main", `file:${join(home, "none.key")}`),
    tool("closed", "gateway: main, group: closed"),
    tool("priced", "gateway: main, limits: { spend: $1/day }"),
    tool("spent", "gateway: main, quota: $0.000001"),
    tool("rated", "gateway: main, limits: { requests: 1/month }"),
    tool("counted", "gateway: main, limits: { tokens: 1/month }"),
    tool("paid", "gateway: main, limits: { spend: $0.000001/month }"),
    tool("gone", "gateway: gone"),
  ];
  return { config: `${lines.join("\n")}\n`, tokens };
}

async function refusesAll(t: Test, port: number, tokens: Tools["tokens"]): Promise<number> {
  const { codex = "", asleep = "", late = "", keyless = "", closed = "", priced = "" } = tokens;
  const { spent = "", rated = "", counted = "", paid = "", gone = "" } = tokens;
  for (const token of [spent, rated, counted, paid]) {
    t.equal((await callTo(port, { token })).status, 200, "the only one it may have");
  }
  const cases: readonly (readonly [string, Call])[] = [
    ["token-missing", {}],
    ["token-incomplete", { token: codex.slice(0, -3) }],
    ["token-unknown", { token: freshToken().token }],
    ["foreign-key", { token: "sk-0123456789abcdef0123456789" }],
    ["tool-disabled", { token: asleep }],
    ["tool-expired", { token: late }],
    ["key-unavailable", { token: keyless }],
    ["group-disabled", { token: closed }],
    ["model-not-in-group", { token: codex, model: "gpt-5.1" }],
    ["price-unknown", { token: priced, model: "nobody-knows-this" }],
    ["quota-exhausted", { token: spent }],
    ["rate-limited", { token: rated }],
    ["tokens-limited", { token: counted }],
    ["spend-limited", { token: paid }],
    ["wrong-base-url", { token: codex, path: "/v1/v1/messages" }],
    ["host-not-allowed", { token: codex, headers: { host: "attacker.example" } }],
    ["browser-request", { token: codex, headers: { origin: "https://attacker.example" } }],
    ["headers-too-large", { token: codex, headers: { "x-large": "x".repeat(100_000) } }],
    ["gateway-unreachable", { token: gone }],
  ];
  for (const [code, call] of cases) t.equal((await callTo(port, call)).refusal, code, code);
  return cases.length;
}

async function exported(t: Test, home: string): Promise<readonly UsageRecord[]> {
  const { code, stdout } = await command(t, home, ["usage", "export", "--json"]);
  t.equal(code, 0);
  return JSON.parse(stdout);
}

t.test("a daemon keeps working while its package is replaced", async (t) => {
  const [sandbox, home, installed] = await Promise.all([startSandbox(t), newHome(t), installPackage(t)]);
  const keys = () => sandbox.createKey({ name: "upgrade", group: "default" });
  const service = missingForSecrets() === null ? await startSecretService(t) : null;
  if (service === null) t.skip("keys of a keychain: there is no Secret Service here", async () => {});
  const [first, second, vault] = [keys(), keys(), keys()];
  const canaries = [first, second, vault].map(({ key }) => key.reveal());
  if (service !== null) {
    const request = { operation: "store", key: vault.key.reveal(), replace: true } as const;
    const entry = { service: "keybearer", account: "vault" };
    await askKeychain(entry, request, { env: service.env, limit: 10_000 });
  }
  await writeFile(join(home, "codex.key"), first.key.reveal(), { mode: 0o600 });
  const { config, tokens } = tools(sandbox.baseUrl, home, () => keys().key.reveal(), service !== null);
  await saveConfig(home, config);
  const bus = service === null ? {} : { DBUS_SESSION_BUS_ADDRESS: service.env.DBUS_SESSION_BUS_ADDRESS };
  // No month may end during the test.
  const env = bareEnv(home, { ...bus, TZ: zoneAtNoon() });
  const daemon = startProgram(t, process.execPath, [installed.main, "run"], env);
  const [, found] = await daemon.says(/serves http:\/\/localhost:(\d+)/);
  const port = Number(found);
  const { codex = "" } = tokens;
  const served = { codex: 0 };
  const asks = async (call: Call = {}) => {
    served.codex += 1;
    return callTo(port, { token: codex, ...call });
  };
  t.equal((await asks()).status, 200);
  // The index is made by a thread, which cannot be started any more once its file is replaced.
  t.match(await command(t, home, ["usage", "--json"]), { code: 0, stdout: /"codex"/ });
  await installed.replace();
  t.teardown(() => {
    if (!t.passing()) t.comment(daemon.stderr().split("\n").slice(-30).join("\n"));
  });
  const status = async () => JSON.parse((await command(t, home, ["status", "--json"])).stdout);
  const broken = await startProgram(t, process.execPath, [installed.main, "--version"], env).ended;
  t.not(broken.code, 0, "what lies there now cannot be started at all");

  await t.test("a request, a stream and every kind of refusal work", async (t) => {
    t.equal((await asks()).status, 200);
    t.match((await asks({ stream: true })).text, /data: \[DONE\]\s*$/);
    t.equal((await asks({ path: "/v1/messages" })).status, 200);
    await refusesAll(t, port, tokens);
  });

  await t.test("status names the version that runs, and usage can be read", async (t) => {
    const { version, pid } = await status();
    t.same({ version, pid }, { version: OLD, pid: daemon.pid });
    const { code, stdout, stderr } = await command(t, home, ["usage", "--json"]);
    t.equal(code, 0);
    t.match(stdout, /"codex"/);
    t.match(stderr, /^$|the index is behind .*: keybearer was replaced on disk → restart it/);
  });

  await t.test("an edit is loaded, a broken one is not, and a key file is read again", async (t) => {
    await saveConfig(home, config.replace("expires: 2020-01-01", "enabled: true"));
    await daemon.logs(/tool late: expires/);
    t.equal((await callTo(port, { token: tokens.late ?? "" })).status, 200);
    await saveConfig(home, "tools: [");
    await daemon.logs(/config\.yaml has 1 problem; keybearer keeps using the last valid version/);
    t.equal((await asks()).status, 200, "the last good one serves");
    await saveConfig(home, config);
    await daemon.logs(/"revision":3,"msg":"configuration loaded"/);
    await writeFile(join(home, "codex.key"), second.key.reveal());
    await daemon.logs(/tool codex: key …\w+ → …\w+/);
    t.equal((await asks()).status, 200);
    t.equal(sandbox.requests().at(-1)?.keyId, second.id, "the new key is used");
  });

  await t.test(
    "SIGHUP reads every source again, and keeps the keys of sources it can no longer read",
    async (t) => {
      const loads = () => daemon.stderr().split('"configuration loaded"').length;
      const before = loads();
      process.kill(daemon.pid, "SIGHUP");
      await until("everything is read again", () => loads() > before);
      t.equal((await asks()).status, 200);
      if (service === null) return;
      t.equal(
        (await callTo(port, { token: tokens.vault ?? "" })).status,
        200,
        "the keychain's key is used on",
      );
      t.match((await status()).problems, [{ path: "tools.vault.key", message: /restart it/ }]);
    },
  );

  await t.test("SIGTERM lets a stream finish, and the new package finds every record", async (t) => {
    sandbox.gateway.wordDelay = 60;
    const streaming = new Promise<Answer>((resolve, reject) => {
      const onFirst = () => process.kill(daemon.pid, "SIGTERM");
      asks({ stream: true, onFirst }).then(resolve, reject);
    });
    t.match((await streaming).text, /data: \[DONE\]\s*$/);
    t.equal((await daemon.ended).code, 0);
    sandbox.gateway.wordDelay = 0;
    const again = await startServing(t, home, { env: bus });
    t.equal((await callTo(again.port, { token: codex })).status, 200);
    served.codex += 1;
    let all: readonly UsageRecord[] = [];
    await until("the last record is closed", async () => {
      all = await exported(t, home);
      return all.at(-1)?.ended_at != null;
    });
    const records = all.filter(({ tool, end }) => tool === "codex" && end !== "refused");
    t.equal(records.length, served.codex);
    t.same(new Set(records.map(({ end }) => end)), new Set(["complete"]), "none was interrupted");
    t.match((await status()).version, /^(?!0\.0\.1-old)/);
  });

  const said = daemon.stdout() + daemon.stderr();
  t.equal(
    said.split('"level":"error"').length - 1,
    2,
    "nothing failed inside but the broken file, in two lines",
  );
  t.notMatch(
    said,
    /\}\{ replaced|SyntaxError|MODULE_NOT_FOUND|99\.0\.0/,
    "and nothing was read of what lies there now",
  );
  for (const canary of canaries) t.notOk(said.includes(canary), "no key is in the log");
});

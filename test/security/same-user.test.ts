import { readFileSync, writeFileSync } from "node:fs";
import { link, mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import t from "tap";
import { askDaemon } from "../../src/control/client.ts";
import { makeCertificates } from "../doubles/certificates.ts";
import {
  bareEnv,
  builtProgram,
  newHome,
  saveConfig,
  start,
  startProgram,
  startServing,
} from "../doubles/command.ts";
import { ask, toolState } from "../doubles/config-journey.ts";
import { startConnectProxy } from "../doubles/connect-proxy.ts";
import { canaryKey, freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { newKey, startSandbox } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

/** What a program of the same user can try without reading keybearer's memory. SECURITY.md says what it can do anyway. */

t.test("SIGUSR1 opens no debugger", async (t) => {
  const home = await newHome(t);
  const key = canaryKey();
  await saveConfig(
    home,
    `listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: { key: ${key} } }\n`,
  );
  const running = await startServing(t, home);
  running.child.kill("SIGUSR1");
  // Node would say before it takes the next signal that a debugger listens.
  running.child.kill("SIGHUP");
  await running.logs(/configuration loaded/);
  running.child.kill("SIGTERM");
  const { code, stderr } = await running.ended;
  t.equal(code, 0);
  t.notMatch(stderr, /debugger/i);
});

t.test("with what can reveal or redirect a key in the environment, it does not start", async (t) => {
  const empty = join(t.testdir({ "empty.mjs": "" }), "empty.mjs");
  const refused: [env: NodeJS.ProcessEnv, named: string][] = [
    [{ NODE_OPTIONS: "--inspect=127.0.0.1:0" }, "NODE_OPTIONS holds --inspect,"],
    [{ NODE_OPTIONS: `--require "${empty}"` }, "NODE_OPTIONS holds --require,"],
    [{ NODE_OPTIONS: `-r ${empty}` }, "NODE_OPTIONS holds -r,"],
    [{ NODE_OPTIONS: `--max-old-space-size=512 --import ${empty}` }, "NODE_OPTIONS holds --import,"],
    [{ NODE_OPTIONS: `"\\--require" ${empty}` }, "NODE_OPTIONS holds a backslash,"],
    [{ NODE_OPTIONS: "--heapsnapshot-signal=SIGUSR2" }, "NODE_OPTIONS holds --heapsnapshot-signal,"],
    [{ NODE_OPTIONS: "--report_on_signal" }, "NODE_OPTIONS holds --report_on_signal,"],
    [{ NODE_OPTIONS: "--diagnostic-dir=/tmp" }, "NODE_OPTIONS holds --diagnostic-dir,"],
    [{ NODE_OPTIONS: "--trace-tls" }, "NODE_OPTIONS holds --trace-tls,"],
    [{ NODE_OPTIONS: "--use-openssl-ca", SSL_CERT_FILE: empty }, "NODE_OPTIONS holds --use-openssl-ca,"],
    [{ NODE_EXTRA_CA_CERTS: "/nowhere.pem" }, "write ca_file: at the gateway instead"],
    [{ NODE_TLS_REJECT_UNAUTHORIZED: "0" }, "write ca_file: at the gateway instead"],
    [{ NODE_USE_ENV_PROXY: "1" }, "write proxy: at the gateway instead"],
    [{ NODE_COMPILE_CACHE: "/tmp/cache" }, "env -u NODE_COMPILE_CACHE keybearer run"],
    [{ NODE_PATH: "/tmp" }, "env -u NODE_PATH keybearer run"],
    [{ OPENSSL_CONF: "/dev/null" }, "env -u OPENSSL_CONF keybearer run"],
  ];
  const home = await newHome(t);
  await saveConfig(home, "listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: {} }\n");
  for (const [env, named] of refused) {
    const running = start(t, home, ["run"], { env });
    const serves = running.says(/serves/).then(
      () => null,
      () => running.ended,
    );
    const ended = await Promise.race([running.ended, serves]);
    t.equal(ended?.code, 78, JSON.stringify(env));
    t.ok(running.stderr().includes(named), running.stderr());
    running.child.kill("SIGTERM");
    await running.ended;
  }
});

t.test("nor with such an option in front of the program", async (t) => {
  const home = await newHome(t);
  const running = startProgram(
    t,
    process.execPath,
    ["--inspect=127.0.0.1:0", builtProgram(), "run"],
    bareEnv(home),
  );
  const { code, stderr } = await running.ended;
  t.equal(code, 78);
  t.match(stderr, "node was started with --inspect,");
});

t.test("no package prints the keys it reads, whatever the environment asks of it", async (t) => {
  const home = await newHome(t);
  const key = canaryKey();
  await saveConfig(
    home,
    `listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: { key: ${key} } }\n`,
  );
  const env = { LOG_TOKENS: "1", LOG_STREAM: "1", DEBUG: "*" };
  const running = await startServing(t, home, { env });
  running.child.kill("SIGTERM");
  const { stdout, stderr } = await running.ended;
  t.notOk((stdout + stderr).includes(key));
});

t.test("what is allowed over the control socket is in the log, and in status", async (t) => {
  const [here, there] = [await startSandbox(t), await startSandbox(t)];
  const key = newKey(here);
  const { token, hash } = freshToken();
  const config = (url: string) => `gateway: ${url}\ntools: { codex: { key: ${key.text}, token: ${hash} } }\n`;
  const under = await startUnderTest(t, config(here.baseUrl));
  await under.save(config(there.baseUrl));
  await until("it is held", async () => (await ask(under, token)).refusal === "needs-trust");
  const seen = await askDaemon<object[]>(under.paths.socket, "GET", "/held/codex");
  t.ok(seen.ok);
  await askDaemon(under.paths.socket, "POST", "/trust/codex", seen.ok ? seen.value : []);
  const [action] = (await under.daemon.status()).actions;
  t.match(action, { at: Number, what: /^trusted .*→/ });
  t.ok(
    under.log().some(({ level, msg }) => level === "warn" && /trust/.test(String(msg))),
    "as a warning",
  );
});

t.test("options that do neither are no hindrance", async (t) => {
  const home = await newHome(t);
  const env = {
    NODE_OPTIONS: "--max-old-space-size=512 --no-warnings --dns-result-order=ipv4first",
    NODE_TLS_REJECT_UNAUTHORIZED: "1",
    // Ignored, and where only the sandbox is served no reason to stop.
    NODE_EXTRA_CA_CERTS: "/nowhere.pem",
  };
  const running = await startServing(t, home, { env });
  running.child.kill("SIGTERM");
  t.equal((await running.ended).code, 0);
});

t.test("an outbound proxy that an edit brings waits for a yes, and gets nothing", async (t) => {
  const gateway = await startSandbox(t);
  const key = newKey(gateway);
  const { token, hash } = freshToken();
  const proxy = await startConnectProxy(t);
  const config = (more: string) =>
    `gateways: { main: { base_url: "${gateway.baseUrl}"${more} } }\ntools: { codex: { key: ${key.text}, token: ${hash} } }\n`;
  const under = await startUnderTest(t, config(""));
  t.equal((await ask(under, token)).status, 200);
  await under.save(config(`, proxy: "${proxy.url}"`));
  await until("it is held", async () => (await toolState(under, "codex"))?.state === "needs-trust");
  t.match((await toolState(under, "codex"))?.why, `${gateway.origin} → proxy ${proxy.url}`);
  t.match(await ask(under, token), { status: 400, refusal: "needs-trust" });
  t.strictSame(proxy.heads, []);
  await under.save(config(""));
  await until("without it, it serves", async () => (await ask(under, token)).status === 200);

  // A yes to a proxy is none to a gateway at its address.
  const { origins } = JSON.parse(readFileSync(under.paths.trust, "utf8")).keys[0];
  t.strictSame(origins, [gateway.origin]);
});

t.test("a certificate authority that an edit brings, or that changes, waits for a yes", async (t) => {
  const certificates = makeCertificates(t);
  if (certificates === null) return;
  const gateway = await startSandbox(t);
  const key = newKey(gateway);
  const { token, hash } = freshToken();
  const home = await newHome(t);
  const authority = join(home, "company.pem");
  await writeFile(authority, readFileSync(certificates.authority));
  const config = (more: string) =>
    `gateways: { main: { base_url: "${gateway.baseUrl}"${more} } }\ntools: { codex: { key: ${key.text}, token: ${hash} } }\n`;
  const under = await startUnderTest(t, config(`, ca_file: "${authority}"`), { home });
  t.equal((await ask(under, token)).status, 200, "the first start trusts the file as it stands");
  writeFileSync(authority, certificates.selfSigned.cert);
  await under.daemon.reload();
  t.match(await ask(under, token), { status: 400, refusal: "needs-trust" });
  t.match((await toolState(under, "codex"))?.why, `→ ca_file ${authority} (sha256 `);

  await under.save(config(`, ca_file: "${home}/not-there.pem"`));
  await until("the missing file is reported", async () => {
    const [problem] = (await under.daemon.status()).problems;
    return problem?.path === "gateways.main.ca_file" && /there is no .*not-there\.pem/.test(problem.message);
  });
});

t.test("a second name for a file, and keybearer's own state, are no sources of keys", async (t) => {
  const gateway = await startSandbox(t);
  const { token, hash } = freshToken();
  const home = await newHome(t);
  const elsewhere = t.testdir({ id_ed25519: "somebody-elses-secret" });
  const keys = join(home, "keys");
  await mkdir(keys, { mode: 0o700 });
  await link(join(elsewhere, "id_ed25519"), join(keys, "linked"));
  await mkdir(join(home, "state"), { mode: 0o700 });
  await writeFile(join(home, "state", "notes"), "a-refresh-token-of-a-console", { mode: 0o600 });
  await symlink(join(home, "state", "notes"), join(keys, "pointed"));
  const reasons: [path: string, why: RegExp][] = [
    [join(keys, "linked"), /has 2 hard links/],
    [join(home, "state", "notes"), /is in keybearer's state folder/],
    [join(keys, "pointed"), /is in keybearer's state folder/],
  ];
  const config = (path: string) =>
    `gateway: ${gateway.baseUrl}\ntools: { codex: { key: "file:${path}", token: ${hash} } }\n`;
  const under = await startUnderTest(t, config(reasons[0]?.[0] ?? ""), { home });
  for (const [path, why] of reasons) {
    await under.save(config(path));
    await until(`${path} is refused`, async () => why.test((await toolState(under, "codex"))?.why ?? ""));
    t.match(await ask(under, token), { status: 400, refusal: "key-unavailable" });
  }
  t.strictSame(gateway.requests(), []);
});

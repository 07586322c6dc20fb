import { readFileSync, writeFileSync } from "node:fs";
import { link, mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import t from "tap";
import { askDaemon } from "../../src/control/client.ts";
import { type StartedWith, unsafeStart } from "../../src/daemon/unsafe-start.ts";
import { makeCertificates } from "../doubles/certificates.ts";
import {
  bareEnv,
  builtProgram,
  command,
  newHome,
  runProgram,
  saveConfig,
  startProgram,
  startServing,
} from "../doubles/command.ts";
import { ask, toolState } from "../doubles/config-journey.ts";
import { startConnectProxy } from "../doubles/connect-proxy.ts";
import { canaryKey, freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { newKey, startSandbox } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

/* What a program of the same user can try without reading keybearer's memory. SECURITY.md says what it can do anyway. */

t.test("SIGUSR1 opens no debugger, and no variable makes a package print the keys it reads", async (t) => {
  const home = await newHome(t);
  const key = canaryKey();
  await saveConfig(
    home,
    `listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: { key: ${key} } }\n`,
  );
  const env = {
    ...{ LOG_TOKENS: "1", LOG_STREAM: "1", DEBUG: "*" },
    ...{ NODE_OPTIONS: "--max-old-space-size=512 --no-warnings --dns-result-order=ipv4first" },
  };
  const running = await startServing(t, home, { env });
  running.child.kill("SIGUSR1");
  // Node would report a debugger before it takes the next signal.
  running.child.kill("SIGHUP");
  await running.logs(/configuration loaded/);
  running.child.kill("SIGTERM");
  const { code, stdout, stderr } = await running.ended;
  t.equal(code, 0);
  t.notMatch(stderr, /debugger/i);
  t.notOk((stdout + stderr).includes(key));
});

/** Variables and options that can reveal or redirect a key, and what the daemon says of them. */
const UNSAFE: readonly (readonly [started: Partial<StartedWith>, named: string])[] = [
  [{ env: { NODE_OPTIONS: "--inspect=127.0.0.1:0" } }, "NODE_OPTIONS holds --inspect,"],
  [{ env: { NODE_OPTIONS: '--require "/x.mjs"' } }, "NODE_OPTIONS holds --require,"],
  [{ env: { NODE_OPTIONS: "-r /x.mjs" } }, "NODE_OPTIONS holds -r,"],
  [{ env: { NODE_OPTIONS: "--max-old-space-size=512 --import /x.mjs" } }, "NODE_OPTIONS holds --import,"],
  [{ env: { NODE_OPTIONS: '"\\--require" /x.mjs' } }, "NODE_OPTIONS holds a backslash,"],
  [{ env: { NODE_OPTIONS: "--heapsnapshot-signal=SIGUSR2" } }, "NODE_OPTIONS holds --heapsnapshot-signal,"],
  [{ env: { NODE_OPTIONS: "--report_on_signal" } }, "NODE_OPTIONS holds --report_on_signal,"],
  [{ env: { NODE_OPTIONS: "--diagnostic-dir=/tmp" } }, "NODE_OPTIONS holds --diagnostic-dir,"],
  [{ env: { NODE_OPTIONS: "--trace-tls" } }, "NODE_OPTIONS holds --trace-tls,"],
  [
    { env: { NODE_OPTIONS: "--use-openssl-ca", SSL_CERT_FILE: "/x" } },
    "NODE_OPTIONS holds --use-openssl-ca,",
  ],
  [{ env: { NODE_TLS_REJECT_UNAUTHORIZED: "0" } }, "write ca_file: at the gateway instead"],
  [{ env: { NODE_USE_ENV_PROXY: "1" } }, "write proxy: at the gateway instead"],
  [{ env: { NODE_COMPILE_CACHE: "/tmp/cache" } }, "env -u NODE_COMPILE_CACHE keybearer run"],
  [{ env: { NODE_PATH: "/tmp" } }, "env -u NODE_PATH keybearer run"],
  [{ env: { OPENSSL_CONF: "/dev/null" } }, "env -u OPENSSL_CONF keybearer run"],
  [{ execArgv: ["--inspect=127.0.0.1:0"] }, "node was started with --inspect,"],
  [{ inspected: true }, "a debugger is open"],
];

t.test("variables and options that can reveal or redirect a key stop the start", async (t) => {
  const safe: StartedWith = { env: {}, execArgv: [], inspected: false };
  for (const [started, named] of UNSAFE) {
    t.match(unsafeStart({ ...safe, ...started }), named, JSON.stringify(started));
  }
  const harmless = {
    NODE_OPTIONS: "--max-old-space-size=512 --no-warnings --dns-result-order=ipv4first",
    NODE_TLS_REJECT_UNAUTHORIZED: "1",
    NODE_PATH: "",
  };
  t.equal(unsafeStart({ ...safe, env: harmless }), null);
  for (const option of [
    "--max-heap-size=512",
    "--min-semi-space-size=16",
    "--trace-gc",
    "--optimize-for-size",
  ])
    t.equal(unsafeStart({ ...safe, env: { NODE_OPTIONS: option } }), null, option);
});

longTest(t, "a start with such a variable or option ends with 78", async (t) => {
  const home = await newHome(t);
  await saveConfig(home, "listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: {} }\n");
  const env = { NODE_DEBUG: "http" };
  const init = ["init", "--gateway", "https://x.example/v1", "--tool", "a", "--key-stdin"];
  for (const inVariable of [
    await runProgram(t, home, ["run"], { env }),
    await command(t, home, init, { env }),
  ])
    t.match(inVariable, { code: 78, stderr: "NODE_DEBUG makes node print keys. start without it" });
  t.match((await command(t, home, ["doctor"], { env })).stdout, /NODE_DEBUG makes node print keys/);
  const argv = ["--inspect=127.0.0.1:0", builtProgram(), "run"];
  const inArguments = await startProgram(t, process.execPath, argv, bareEnv(home)).ended;
  t.equal(inArguments.code, 78);
  t.match(inArguments.stderr, "node was started with --inspect,");
});

longTest(t, "NODE_EXTRA_CA_CERTS is a warning that names ca_file, and keybearer serves", async (t) => {
  const home = await newHome(t);
  await saveConfig(home, "listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: {} }\n");
  const env = { NODE_EXTRA_CA_CERTS: "/nowhere.pem" };
  const running = await startServing(t, home, { env });
  const words = /NODE_EXTRA_CA_CERTS has no effect on keybearer.*write ca_file: at the gateway/;
  await running.logs(words);
  t.match(
    (await command(t, home, ["status"])).stdout.replaceAll("\n", " "),
    /NODE_EXTRA_CA_CERTS has no effect/,
  );
  t.match((await command(t, home, ["doctor"], { env })).stdout.replace(/\s+/g, " "), words);
  running.child.kill("SIGTERM");
  t.equal((await running.ended).code, 0);
});

t.test("a trust decision over the control socket is in the log and in status", async (t) => {
  const [here, there] = [await startSandbox(t), await startSandbox(t)];
  const key = newKey(here);
  const { token, hash } = freshToken();
  const config = (url: string) => `gateway: ${url}\ntools: { codex: { key: ${key.text}, token: ${hash} } }\n`;
  const under = await startUnderTest(t, config(here.baseUrl));
  await under.save(config(there.baseUrl));
  await until("it is held", async () => (await ask(under, token)).refusal === "needs-trust");
  const seen = await askDaemon<object[]>(under.paths, "GET", "/held/codex");
  t.ok(seen.ok);
  await askDaemon(under.paths, "POST", "/trust/codex", seen.ok ? seen.value : []);
  const [action] = (await under.daemon.status()).actions;
  t.match(action, { at: Number, what: /^trusted .*→/ });
  t.ok(
    under.log().some(({ level, msg }) => level === "warn" && /trust/.test(String(msg))),
    "as a warning",
  );
});

t.test("an outbound proxy that an edit adds waits for trust, and gets nothing", async (t) => {
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

  // Trust in a proxy is not trust in a gateway at its address.
  const { origins } = JSON.parse(readFileSync(under.paths.trust, "utf8")).keys[0];
  t.strictSame(origins, [gateway.origin]);
});

t.test("a certificate authority that an edit adds, or that changes, waits for trust", async (t) => {
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
  t.equal((await ask(under, token)).status, 200, "the first start trusts the file");
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

t.test("a hard link and a file in keybearer's state folder are no sources of keys", async (t) => {
  const gateway = await startSandbox(t);
  const { token, hash } = freshToken();
  const home = await newHome(t);
  // In the same folder as the other one: a hard link does not lead to another disk.
  const elsewhere = await newHome(t);
  await writeFile(join(elsewhere, "id_ed25519"), "another-secret-0123456789");
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

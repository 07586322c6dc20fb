import { existsSync } from "node:fs";
import t, { type Test } from "tap";
import { advice } from "../../src/core/advice.ts";
import { advised } from "../doubles/command.ts";
import { missingForSecrets } from "../doubles/secret-service.ts";
import {
  attackSystem,
  CANARY,
  call,
  GATEWAY_URL,
  install,
  keybearer,
  NODE,
  prepare,
  startMachine,
} from "../doubles/system-journey.ts";
import { PROGRAM, type SystemManager } from "../doubles/system-manager.ts";
import { until } from "../doubles/until.ts";

const ENCRYPTED = "/etc/credstore.encrypted/codex";
const DROP_IN = "/etc/systemd/system/keybearer.service.d/key.conf";

/** Encrypts a key for the unit and starts it again. */
async function setCredential(t: Test, system: SystemManager, key: string): Promise<void> {
  const encrypt = `umask 077; mkdir -p /etc/credstore.encrypted; systemd-creds encrypt --with-key=host --name=codex - ${ENCRYPTED}`;
  const made = await system.as("root", ["sh", "-c", encrypt], key);
  t.equal(made.code, 0, made.stderr);
  const { code, stderr } = await keybearer(system, "root", "service", "restart", "--system");
  t.equal(code, 0, stderr);
}

t.test("a key can be a credential that systemd decrypts", async (t) => {
  const system = await prepare(t);
  if (system === null) return;
  await install(t, system);
  await system.sh(
    "root",
    `mkdir -p ${DROP_IN.replace(/\/[^/]+$/, "")} && printf '[Service]\\nLoadCredentialEncrypted=codex:${ENCRYPTED}\\n' > ${DROP_IN} && systemctl daemon-reload`,
  );
  const set =
    "sed -i 's#file:~/keys/codex#credential:codex#' /etc/keybearer/config.yaml && rm /var/lib/keybearer/keys/codex";
  t.match(await system.sh("root", set), { code: 0 });
  await setCredential(t, system, CANARY);
  t.match(await keybearer(system, "root", "check", "--system"), { code: 0, stdout: /is fine/ });
  t.equal(await call(system, "alice"), "200", "the gateway got the key");
  const found = await system.sh("root", `grep -rl ${CANARY} /etc /var/lib/keybearer /run/keybearer`);
  t.equal(found.stdout, "", "it is nowhere on disk");
  for (const { name, found: isFound } of await attackSystem(system)) t.equal(isFound, false, name);

  await setCredential(t, system, "sk-another-key-0123456789abcdef");
  t.equal(await call(system, "alice"), "401", "a replaced credential is used after a restart");
  await setCredential(t, system, CANARY);
  t.equal(await call(system, "alice"), "200");
  await system.sh("root", `rm ${DROP_IN} && systemctl daemon-reload`);
  t.match(await keybearer(system, "root", "service", "restart", "--system"), { code: 0 });
  t.equal(await call(system, "alice"), "400", "without it the tool has no key");
  const shown = await keybearer(system, "alice", "tools");
  t.match(shown.stdout, /no credential codex/);

  const rotate = ["tools", "rotate", "codex", "--key", "-"];
  const refused = await keybearer(system, "root", ...rotate);
  const restart = advice.systemService("restart").replace("keybearer", `${NODE} ${PROGRAM}`);
  t.match(await system.as("root", advised(t, refused.stderr, restart)), { code: 0 });
  const command = [NODE, PROGRAM, ...rotate, "--store", "file"];
  const rotated = await system.as("root", command, CANARY);
  t.equal(rotated.code, 0, rotated.stdout + rotated.stderr);
  t.equal(await call(system, "alice"), "200", "keybearer can keep it instead, in a file of the service");
});

const SECRETS = {
  codex: CANARY,
  console: "console-CANARY-access-token-41",
  hook: "whsec_Q0FOQVJZLWhvb2stc2VjcmV0LTAxMjM0NTY3",
  store: "store-CANARY-password",
  shared: "shared-CANARY-0123456789abcdef0123456789abcdef",
};
const FOLDER = "/home/alice/kb";

/** Notes what a console and a webhook are sent. */
const RECEIVER = `
  const fs = require("fs");
  require("http").createServer((request, response) => {
    const { authorization = "", "webhook-signature": signature = "" } = request.headers;
    fs.appendFileSync("/root/received", [request.method, request.url, authorization, signature].join(" ") + "\\n");
    response.setHeader("content-type", "application/json");
    response.end('{"success":true,"data":{}}');
  }).listen(9092, "127.0.0.1");`;

const CONFIG = `gateways:
  main:
    base_url: ${GATEWAY_URL}
    console: { kind: new-api, url: "http://127.0.0.1:9092", login: { user: 1, access_token: keychain:keybearer/console } }
tools:
  codex: { gateway: main, key: keychain:keybearer/codex, limits: { spend: $5/day }, shared: true }
notify:
  desktop: false
  webhooks:
    ops: { url: "http://127.0.0.1:9092/hook", secret: file:~/kb/keys/hook }
shared:
  store: { url: "redis://127.0.0.1:6390", password: file:~/kb/keys/store }
  secret: keychain:keybearer/shared
`;

/** A session of alice with an open keychain. */
async function startKeychain(system: SystemManager): Promise<string[]> {
  const uid = (await system.as("alice", ["id", "-u"])).stdout.trim();
  const folder = `/run/user/${uid}`;
  await system.sh("root", `mkdir -p ${folder} && chown alice: ${folder} && chmod 700 ${folder}`);
  const address = `unix:path=${folder}/bus`;
  const run = (unit: string, line: string) =>
    system.as("root", [
      "systemd-run",
      `--unit=${unit}`,
      "--uid=alice",
      `--setenv=XDG_RUNTIME_DIR=${folder}`,
      `--setenv=DBUS_SESSION_BUS_ADDRESS=${address}`,
      "--setenv=HOME=/home/alice",
      "sh",
      "-c",
      line,
    ]);
  await run("alice-bus", `exec dbus-daemon --session --nofork --nopidfile --address=${address}`);
  await until("the bus listens", async () => (await system.sh("root", `test -S ${folder}/bus`)).code === 0);
  const unlock = "printf pw | gnome-keyring-daemon --unlock --foreground --components=secrets";
  await run("alice-keychain", unlock);
  const env = ["env", `DBUS_SESSION_BUS_ADDRESS=${address}`, `XDG_RUNTIME_DIR=${folder}`];
  for (const name of ["codex", "console", "shared"] as const)
    await until(`the keychain takes ${name}`, async () => {
      const store = `new (require("@napi-rs/keyring").Entry)("keybearer", "${name}").setPassword(require("fs").readFileSync(0, "utf8"))`;
      const stored = await system.as(
        "alice",
        [...env, "sh", "-c", `cd /opt/keybearer && exec ${NODE} -e '${store}'`],
        SECRETS[name],
      );
      return stored.code === 0;
    });
  return env;
}

async function readKeychain(system: SystemManager, env: readonly string[], name: string): Promise<string> {
  const read = `console.log(new (require("@napi-rs/keyring").Entry)("keybearer", "${name}").getPassword())`;
  const { stdout, stderr } = await system.as("alice", [
    ...env,
    "sh",
    "-c",
    `cd /opt/keybearer && exec ${NODE} -e '${read}'`,
  ]);
  return (stdout + stderr).trim();
}

const missing = missingForSecrets() ?? (existsSync("/usr/bin/redis-server") ? null : "missing: redis-server");

t.test(
  "every secret of another folder moves, out of a keychain too, and is used",
  { skip: missing ?? false },
  async (t) => {
    const system = await startMachine(t);
    if (system === null) return;
    await system.as("root", ["sh", "-c", "cat > /root/receiver.cjs"], RECEIVER);
    await system.as("root", ["systemd-run", "--unit=receiver", NODE, "/root/receiver.cjs"]);
    const redis = [
      "redis-server",
      "--port",
      "6390",
      "--save",
      "",
      "--dir",
      "/tmp",
      "--requirepass",
      SECRETS.store,
    ];
    await system.as("root", ["systemd-run", "--unit=store", ...redis]);
    const env = await startKeychain(system);
    await system.sh(
      "alice",
      `umask 077; mkdir -p ${FOLDER}/keys; echo ${SECRETS.hook} > ${FOLDER}/keys/hook; echo ${SECRETS.store} > ${FOLDER}/keys/store; echo mine > ${FOLDER}/notes`,
    );
    await system.as("alice", ["sh", "-c", `umask 077; cat > ${FOLDER}/config.yaml`], CONFIG);
    const own = [...env, `KEYBEARER_HOME=${FOLDER}`, NODE, PROGRAM];
    const started = await system.as("alice", [...own, "start"]);
    t.equal(started.code, 0, started.stderr);
    const token = await system.as("alice", [...own, "tools", "token", "codex"]);
    await system.as("alice", ["sh", "-c", "umask 077; cat > ~/token"], token.stdout);
    t.equal(await call(system, "alice"), "200", "her own keybearer serves");

    await install(t, system, "--from", FOLDER);
    t.equal(await call(system, "alice"), "200", "the system service serves, with limits of the shared store");
    const kept = await system.sh("root", `find ${FOLDER} -type f; cat /etc/keybearer/config.yaml`);
    t.match(kept.stdout, `${FOLDER}/notes\n`);
    t.notMatch(kept.stdout, /keychain:|kb\/keys|kb\/state|kb\/config/, "only what is hers is left");
    for (const [name, file] of Object.entries({
      codex: "codex",
      console: "console-main-access_token",
      hook: "webhook-ops-secret",
      store: "shared-store-password",
      shared: "shared-secret",
    })) {
      const read = await system.sh("root", `cat /var/lib/keybearer/keys/${file}`);
      t.equal(read.stdout.trim(), SECRETS[name as keyof typeof SECRETS], `${name} is a file of the service`);
    }
    for (const name of ["codex", "console", "shared"])
      t.notMatch(await readKeychain(system, env, name), "CANARY", `${name} is not in her keychain any more`);
    await system.sh("root", ": > /root/received");
    const sent = await keybearer(system, "alice", "notify", "test", "ops");
    t.equal(sent.code, 0, sent.stdout + sent.stderr);
    await keybearer(system, "alice", "mirror", "sync");
    const received = await system.sh("root", "cat /root/received");
    t.match(received.stdout, /POST \/hook .* v1,\S+/, "the webhook's secret signs");
    t.match(received.stdout, SECRETS.console, "the console got its token");
    const status = await keybearer(system, "alice", "status");
    t.notMatch(status.stdout, /store.*(?:unreachable|cannot)|needs trust/i);

    const back = await keybearer(system, "root", "service", "uninstall", "--system");
    t.equal(back.code, 0, back.stderr);
    t.match(await system.as("alice", [...own, "start"]), { code: 0 });
    t.equal(await call(system, "alice"), "200", "it is back in the folder that it came from");
  },
);

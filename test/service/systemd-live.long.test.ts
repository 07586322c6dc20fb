import { chmodSync, chownSync, existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import t, { type Test } from "tap";
import type { Ended } from "../doubles/command.ts";
import { canaryKey, freshToken } from "../doubles/daemon-under-test.ts";
import { freePort } from "../doubles/listen.ts";
import { ROOT } from "../doubles/paths.ts";
import { until } from "../doubles/until.ts";
import { PACKAGE, startUserManager } from "../doubles/user-manager.ts";

const UNIT = "keybearer.service";
const FILE = `.config/systemd/user/${UNIT}`;
const EVENTS = Array.from({ length: 40 }, (_, number) => `data: {"n":${number}}\n\n`);
const STREAM = `${EVENTS.join("")}data: [DONE]\n\n`;

/** Keeps the keys it is shown. A stream stands still half-way until it is let go. */
async function startGateway(t: Test) {
  const keys: string[] = [];
  let letGo = () => {};
  const released = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const server = createServer(async (request, response) => {
    keys.push(request.headers.authorization ?? "");
    if (request.url !== "/v1/slow") return void response.end("{}");
    response.setHeader("content-type", "text/event-stream");
    for (const event of EVENTS.slice(0, 20)) response.write(event);
    await released;
    for (const event of EVENTS.slice(20)) response.write(event);
    response.end("data: [DONE]\n\n");
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, keys, letGo };
}

/** Run as the user, because keybearer serves no other user. */
const ASK = `
  const [url, token] = process.argv.slice(1);
  const answer = await fetch(url, { headers: { authorization: "Bearer " + token } });
  console.log(JSON.stringify({ status: answer.status, text: await answer.text() }));
`;

async function prepare(t: Test) {
  const manager = await startUserManager(t);
  if (manager === null) return null;
  const gateway = await startGateway(t);
  const port = await freePort();
  const key = canaryKey();
  const { token, hash } = freshToken();
  const url = `http://127.0.0.1:${port}`;
  const config = (more = "") =>
    `listen: localhost:${port}\ngateway: ${gateway.origin}/v1\ntools: { codex: { key: "file:~/codex.key", token: "${hash}"${more} } }\n`;
  const printed: string[] = [];
  const keep = (ended: Ended) => {
    printed.push(ended.stdout, ended.stderr);
    return ended;
  };
  await manager.write("codex.key", key);
  await manager.write(".config/keybearer/config.yaml", config());
  return {
    ...{ manager, gateway, port, url, key, token, config, printed },
    file: join(manager.homeOutside, FILE),
    service: async (...args: readonly string[]) =>
      keep(await manager.run([process.execPath, `${PACKAGE}/dist/cli/main.js`, "service", ...args])),
    systemctl: async (...args: readonly string[]) => keep(await manager.systemctl(...args)),
    show: (...names: readonly string[]) => manager.show(UNIT, ...names),
    pid: async () => Number((await manager.show(UNIT, "MainPID")).MainPID),
    save: (text: string) => manager.write(".config/keybearer/config.yaml", text),
    answers: (at = url) =>
      fetch(`${at}/healthz`).then(
        ({ status }) => status === 200,
        () => false,
      ),
    ask: async (path = "/v1/models"): Promise<{ status: number; text: string }> => {
      const asking = [process.execPath, "--input-type=module", "-e", ASK, `${url}${path}`, token];
      return JSON.parse((await manager.run(asking)).stdout);
    },
  };
}

type Here = NonNullable<Awaited<ReturnType<typeof prepare>>>;

t.test("the service under a real user manager, for a user without privileges", async (t) => {
  const here = await prepare(t);
  if (here === null) return;
  const { manager, gateway, key, service, systemctl, show, pid, answers, ask } = here;

  await t.test("install: the service is active only when it answers", async (t) => {
    const installing = service("install");
    let over = false;
    void installing.finally(() => {
      over = true;
    });
    const early: string[] = [];
    // Each look starts a program.
    while (!over) {
      const { ActiveState } = await show("ActiveState");
      if (ActiveState === "active" && !(await answers())) early.push("active before it answers");
    }
    const { code, stdout, stderr } = await installing;
    t.equal(code, 0, stdout + stderr);
    t.match(stdout, /installed .*\/keybearer\.service/);
    t.match(stdout, /answers on/);
    t.same(early, []);
    const expected = { ActiveState: "active", SubState: "running", Type: "notify", UnitFileState: "enabled" };
    t.match(await show(...Object.keys(expected), "StatusText"), { ...expected, StatusText: /serving/ });
    t.match(await show("MemoryHigh", "MemoryMax"), {
      MemoryHigh: String(1024 ** 3),
      MemoryMax: String(1536 * 1024 ** 2),
    });
    t.equal((await ask()).status, 200);
    t.same(gateway.keys, [`Bearer ${key}`], "its key came from where the unit lets it read");
    t.notOk((await show("Environment")).Environment?.includes("NODE_OPTIONS"));
  });

  await t.test("restart lets a stream finish to its last byte", async (t) => {
    const before = await pid();
    const asked = gateway.keys.length;
    const asking = ask("/v1/slow");
    await until("the gateway has it", () => gateway.keys.length > asked);
    const main = `${PACKAGE}/dist/cli/main.js`;
    const toFile = '"$@" > restart.txt';
    const restarting = manager.run(["sh", "-c", toFile, "sh", process.execPath, main, "service", "restart"]);
    const output = () => readFileSync(join(manager.homeOutside, "restart.txt"), "utf8");
    await until("it takes no new requests", async () => !(await answers()));
    await until("it says what it waits for", () => /^waiting for 1 request, \d+ s left\n/.test(output()));
    t.equal(await pid(), before, "it is still there, for the stream");
    gateway.letGo();
    t.equal((await asking).text, STREAM);
    const restarted = await restarting;
    t.equal(restarted.code, 0, restarted.stdout + restarted.stderr);
    t.not(await pid(), before);
    t.ok(await answers());
  });

  await t.test("while it is installed", (t) => runInstalled(t, here));

  await t.test("uninstall leaves only the user's own files", async (t) => {
    const process = await outside(here);
    const { code, stdout, stderr } = await service("uninstall");
    t.equal(code, 0, stdout + stderr);
    t.notOk(await answers());
    t.notOk(existsSync(`/proc/${process}`));
    const left = readdirSync(join(manager.homeOutside, ".config/systemd"), { recursive: true });
    t.same(
      left.filter((path) => path.includes("keybearer")),
      [],
    );
    t.match(await show("LoadState", "ActiveState"), { LoadState: "not-found", ActiveState: "inactive" });
    t.notMatch((await systemctl("list-units", "--all", "--failed")).stdout, /keybearer/);
    for (const kept of [".config/keybearer/config.yaml", ".local/state/keybearer/usage", "codex.key"]) {
      t.ok(existsSync(join(manager.homeOutside, kept)), `${kept} is kept`);
    }
    t.match(await service("status"), { code: 1, stdout: /not installed/ });
    t.equal((await service("uninstall")).code, 0, "once more is no mistake");
  });

  await t.test("units that keybearer did not install", (t) => runOtherwise(t, here));

  await t.test("the key is in no output, not in the unit and not in the journal", async (t) => {
    const journal = await manager.journal(UNIT);
    t.match(journal, /keybearer .* serves http/);
    for (const text of [journal, ...here.printed]) {
      if (text.includes(key) || text.includes(here.token)) t.fail(`a secret in: ${text.slice(0, 100)}`);
    }
  });
});

/** What happens to an installed service: restarts, edits and faults. */
async function runInstalled(t: Test, here: Here): Promise<void> {
  const { manager, service, systemctl, show, pid, save, config, answers, ask, file } = here;

  await t.test("systemd-analyze accepts the unit, with an exposure of at most 4.0", async (t) => {
    const verified = await manager.run(["systemd-analyze", "--user", "verify", join(manager.home, FILE)]);
    t.same({ code: verified.code, output: verified.stdout + verified.stderr }, { code: 0, output: "" });
    const judged = await manager.run(["systemd-analyze", "--user", "--no-pager", "security", UNIT]);
    const [, score = "99"] = /Overall exposure level for \S+: ([\d.]+)/.exec(judged.stdout) ?? [];
    t.comment(`systemd-analyze security: ${score}`);
    t.ok(Number(score) <= 4, `exposure ${score}`);
  });

  await t.test("the kernel enforces the restrictions", async (t) => {
    const status = readFileSync(`/proc/${await outside(here)}/status`, "utf8");
    t.match(status, /^NoNewPrivs:\t1$/m);
    t.match(status, /^Seccomp:\t2$/m);
    t.match(status, /^CapBnd:\t0+$/m);
    const limits = readFileSync(`/proc/${await outside(here)}/limits`, "utf8");
    t.match(limits, /^Max core file size +0 +0 /m);
    const mounts = readFileSync(`/proc/${await outside(here)}/mountinfo`, "utf8");
    t.match(mounts, / \/usr ro|^\S+ \S+ \S+ \S+ \/ ro/m, "the system is read-only for it");
  });

  await t.test("status shows it to people and to programs", async (t) => {
    const shown = await service("status");
    t.equal(shown.code, 0, shown.stderr);
    t.match(shown.stdout, /active \(running\), pid \d+/);
    const json = JSON.parse((await service("status", "--json")).stdout);
    t.match(json, { serving: true, active: "running", enabled: true, pid: await pid(), notes: [] });
  });

  await t.test("a second installation leaves the process alone", async (t) => {
    const before = await pid();
    const { code, stdout } = await service("install");
    t.equal(code, 0);
    t.match(stdout, /nothing was written/);
    t.equal(await pid(), before);
  });

  await t.test("after kill -9 the service starts again", async (t) => {
    const before = await pid();
    await systemctl("kill", "--signal=KILL", "--kill-whom=main", UNIT);
    await until("another one answers", async () => (await pid()) !== before && (await answers()));
    // It answers a little before systemd has heard so, and a reload of one that is still starting would be none.
    await until("it counts as started", async () => (await show("ActiveState")).ActiveState === "active");
    t.match(await show("NRestarts"), { NRestarts: "1" });
    t.equal((await ask()).status, 200);
  });

  await t.test("reload reads everything again, and the process stays", async (t) => {
    const before = await pid();
    const loads = async () => (await manager.journal(UNIT)).split("configuration loaded").length;
    const loaded = await loads();
    t.equal((await systemctl("reload", UNIT)).code, 0);
    await until("the journal says so", async () => (await loads()) > loaded);
    await save(config(", enabled: false"));
    t.equal((await systemctl("reload", UNIT)).code, 0);
    await until("the edit is served", async () => (await ask()).status === 400);
    await save(config());
    await until("and the next one", async () => (await ask()).status === 200);
    t.match(await show("ActiveState", "MainPID"), { ActiveState: "active", MainPID: String(before) });
  });

  await t.test("a unit of an older format is updated; one that is not ours is left alone", async (t) => {
    const before = await pid();
    const now = readFileSync(file, "utf8");
    here.printed.push(now);
    await manager.write(FILE, now.replace("keybearer unit 1", "keybearer unit 0").replace("UMask=0077", ""));
    const { code, stdout } = await service("install");
    t.equal(code, 0);
    t.match(stdout, /updated/);
    t.equal(readFileSync(file, "utf8"), now);
    t.not(await pid(), before, "the running one was started by the older unit");
    await manager.write(FILE, "[Service]\nExecStart=/bin/true\n");
    const refused = await service("install");
    t.not(refused.code, 0);
    t.match(refused.stderr, /left alone/);
    t.equal(readFileSync(file, "utf8"), "[Service]\nExecStart=/bin/true\n");
    await manager.write(FILE, now);
    await systemctl("daemon-reload");
    t.ok(await answers(), "all the while it serves");
  });

  await t.test("the watchdog kills a daemon that hangs, and it starts again", async (t) => {
    await manager.write(`${FILE}.d/soon.conf`, "[Service]\nWatchdogSec=5s\n");
    await systemctl("daemon-reload");
    await systemctl("restart", UNIT);
    const timeouts = async () => (await manager.journal(UNIT)).split(/watchdog timeout/i).length;
    // On a busy machine even one that is well may miss five seconds: what counts is what the stop is followed by.
    await until("one is stopped", async () => {
      const stopped = await systemctl("kill", "--signal=STOP", "--kill-whom=main", UNIT);
      return stopped.code === 0 && isStopped(await outside(here).catch(() => 0));
    });
    const before = await pid();
    const earlier = await timeouts();
    await until("another one answers", async () => (await pid()) !== before && (await answers()));
    t.ok((await timeouts()) > earlier, "the watchdog did it");
    t.not((await show("NRestarts")).NRestarts, "0");
    rmSync(`${file}.d`, { recursive: true });
    await systemctl("daemon-reload");
    // The running daemon still has the five seconds.
    t.equal((await systemctl("restart", UNIT)).code, 0);
  });

  await t.test("a broken config.yaml does not stop a running service", async (t) => {
    const before = await pid();
    await save("tools: [");
    const { code, stderr } = await service("restart");
    t.equal(code, 78, stderr);
    t.equal(await pid(), before);
    t.ok(await answers());
  });

  await t.test("started with a broken config.yaml, it fails with 78 and is not restarted", async (t) => {
    t.not((await systemctl("restart", UNIT)).code, 0);
    // One that is to be started again would be activating (auto-restart).
    const state = { ActiveState: "failed", SubState: "failed", Result: "exit-code" };
    const failed = { ...state, ExecMainStatus: "78", NRestarts: "0" };
    t.match(await show(...Object.keys(failed)), failed);
    const { code, stdout } = await service("status");
    t.equal(code, 1);
    t.match(stdout, /main\.js check/);
    t.match(await show(...Object.keys(failed)), failed);
    t.equal((await service("install")).code, 78, "nor is it installed with one");
    await save(config());
    t.equal((await service("install")).code, 0);
    t.equal((await ask()).status, 200);
  });

  await t.test("a missing state folder is reported, and restart creates it", async (t) => {
    await systemctl("stop", UNIT);
    rmSync(join(manager.homeOutside, ".local/state/keybearer"), { recursive: true });
    t.not((await systemctl("start", UNIT)).code, 0);
    t.match(await show("ExecMainStatus"), { ExecMainStatus: "78" });
    const { notes } = JSON.parse((await service("status", "--json")).stdout);
    const what = /did not start: cannot make the folder .*\/\.local\/state\/keybearer/;
    t.match(notes, [{ id: "failed", what, next: "keybearer service restart" }]);
    const { code, stdout, stderr } = await service("restart");
    t.equal(code, 0, stdout + stderr);
    t.equal((await ask()).status, 200);
  });

  await t.test(
    "a process: that was added after the installation is reported, and the next installation fixes it",
    async (t) => {
      await save(config(", process: /usr/bin/true"));
      const blind = JSON.parse((await service("status", "--json")).stdout);
      t.match(blind, { namespaces: true, notes: [{ id: "process", next: "keybearer service install" }] });
      const repaired = await service("install");
      t.equal(repaired.code, 0, repaired.stdout + repaired.stderr);
      t.match(await show("PrivateUsers"), { PrivateUsers: "no" });
      const seeing = JSON.parse((await service("status", "--json")).stdout);
      t.match(seeing, { serving: true, namespaces: false, notes: [] });
      await save(config());
      const weaker = JSON.parse((await service("status", "--json")).stdout);
      t.match(weaker, {
        serving: true,
        notes: [{ id: "namespaces", next: /^keybearer service install\. / }],
      });
      t.equal((await service("install")).code, 0);
      t.match(await show("PrivateUsers"), { PrivateUsers: "yes" });
    },
  );

  await t.test("with the drop-in of service/README.md the service is in no namespace", async (t) => {
    const namespaces = async (pid: number) =>
      (
        await manager.run([
          "sh",
          "-c",
          `readlink /proc/${pid}/ns/user /proc/${pid}/ns/mnt /proc/self/ns/user`,
        ])
      ).stdout
        .trim()
        .split("\n");
    const [own, , outer] = await namespaces(await pid());
    t.not(own, outer, "without it, it is in one of its own");
    const [, lines = ""] =
      /```ini\n([\s\S]*?)```/.exec(readFileSync(join(ROOT, "service/README.md"), "utf8")) ?? [];
    await manager.write(`${FILE}.d/no-namespaces.conf`, lines);
    await systemctl("daemon-reload");
    t.equal((await service("restart")).code, 0);
    const [user, mount] = await namespaces(await pid());
    t.equal(user, outer);
    const manages = (await manager.run(["readlink", "/proc/self/ns/mnt"])).stdout.trim();
    t.equal(mount, manages, "it sees the same file system");
    t.match(JSON.parse((await service("status", "--json")).stdout), { namespaces: false, notes: [] });
    rmSync(`${file}.d`, { recursive: true });
    await systemctl("daemon-reload");
    t.equal((await systemctl("restart", UNIT)).code, 0);
  });

  await t.test("stop ends it through the manager, which does not start it again", async (t) => {
    const stopped = await manager.run([process.execPath, `${PACKAGE}/dist/cli/main.js`, "stop"]);
    t.match(stopped, { code: 0, stdout: /the service is stopped until your next login/ }, stopped.stderr);
    t.match(await show("ActiveState", "UnitFileState"), {
      ActiveState: "inactive",
      UnitFileState: "enabled",
    });
    t.notOk(await answers());
    t.equal((await service("restart")).code, 0);
    t.equal((await ask()).status, 200);
  });

  await t.test("logs shows the journal", async (t) => {
    const { code, stdout, stderr } = await service("logs", "--lines", "200");
    t.equal(code, 0, stderr);
    t.match(stdout, /keybearer [\d.]+ serves http:\/\/localhost/);
  });
}

/** A unit that was copied by hand, and installations that go wrong. */
async function runOtherwise(t: Test, here: Here): Promise<void> {
  const { manager, service, systemctl, show, pid, answers } = here;

  await t.test("a unit that was copied by hand, as docs/service.md says, works the same", async (t) => {
    const template = readFileSync(join(ROOT, "service", "keybearer.service"), "utf8");
    const main = "/usr/local/lib/node_modules/keybearer/dist/cli/main.js";
    const unit = template
      .replace('"/usr/bin/node"', `"${process.execPath}"`)
      .replace(main, `${PACKAGE}/dist/cli/main.js`);
    await manager.write(FILE, unit);
    await systemctl("daemon-reload");
    const { code, stderr } = await systemctl("enable", "--now", UNIT);
    t.equal(code, 0, stderr);
    const status = await service("status", "--json");
    t.equal(status.code, 0, status.stdout + status.stderr);
    t.match(JSON.parse(status.stdout), { serving: true, pid: await pid(), notes: [] });
    const before = await pid();
    const restarted = await service("restart");
    t.equal(restarted.code, 0, restarted.stdout + restarted.stderr);
    t.not(await pid(), before);
    t.ok(await answers());
  });

  await t.test("a config folder that belongs to root works in the service as in the shell", async (t) => {
    const folder = join(manager.homeOutside, ".config/keybearer");
    chownSync(folder, 0, 0);
    chmodSync(folder, 0o755);
    const { code, stdout, stderr } = await service("restart");
    t.equal(code, 0, stdout + stderr);
    t.match(await show("StatusText", "PrivateUsers"), { StatusText: /^serving/, PrivateUsers: "yes" });
    chownSync(folder, manager.uid, manager.uid);
    chmodSync(folder, 0o700);
    t.equal((await service("uninstall")).code, 0);
  });

  await t.test("from a shell with another HOME nothing is written where no manager looks", async (t) => {
    const elsewhere = join(manager.home, "elsewhere");
    const argv = [process.execPath, `${PACKAGE}/dist/cli/main.js`, "service", "install"];
    const { code, stderr } = await manager.run(argv, { HOME: elsewhere });
    t.equal(code, 1);
    t.match(stderr, `HOME is ${elsewhere} here, but the user manager looks for units below ${manager.home},`);
    t.notOk(existsSync(join(manager.homeOutside, "elsewhere")));
  });
}

function isStopped(process: number): boolean {
  return process !== 0 && /^State:\tT/m.test(readFileSync(`/proc/${process}/status`, "utf8"));
}

/** The daemon's pid as it is called out here, found by the port it listens on. */
async function outside(here: Here): Promise<number> {
  const inner = await here.pid();
  for (const name of readdirSync("/proc").filter((entry) => /^\d+$/.test(entry))) {
    try {
      const [, pids = ""] = /^NSpid:\t(.*)$/m.exec(readFileSync(`/proc/${name}/status`, "utf8")) ?? [];
      const uid = new RegExp(`^Uid:\\t${here.manager.uid}\\t`, "m");
      if (pids.split("\t")[1] === String(inner) && uid.test(readFileSync(`/proc/${name}/status`, "utf8")))
        return Number(name);
    } catch {
      // It has ended meanwhile.
    }
  }
  throw new Error(`there is no process ${inner} in there`);
}

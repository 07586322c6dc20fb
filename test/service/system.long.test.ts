import { existsSync, readFileSync } from "node:fs";
import t from "tap";
import { advice } from "../../src/core/advice.ts";
import { advised } from "../doubles/command.ts";
import { ROOT } from "../doubles/paths.ts";
import {
  attack,
  attackSystem,
  CONFIG,
  call,
  install,
  keybearer,
  NODE,
  prepare,
  takeToken,
} from "../doubles/system-journey.ts";
import { PROGRAM, type SystemManager } from "../doubles/system-manager.ts";
import { until } from "../doubles/until.ts";

t.test("an owner calls and steers the system service, and what widens needs root", async (t) => {
  const system = await prepare(t);
  if (system === null) return;
  t.equal(await call(system, "alice"), "200", "her own keybearer serves");
  await install(t, system);
  t.equal(await call(system, "alice"), "200", "the same token works");
  t.equal(await call(system, "bob"), "403");
  t.equal(await call(system, "root"), "403", "root is no owner");
  const left = await system.sh("root", "find /home/alice/.config /home/alice/.local -type f");
  t.equal(left.stdout, "", "nothing of it is left in her home");

  const set = await keybearer(system, "alice", "tools", "set", "codex", "limits.spend=3/day");
  t.match(set, { code: 0, stdout: /\+.*\$3\/day/ });
  const raised = await keybearer(system, "alice", "tools", "set", "codex", "limits.spend=9/day");
  t.match(raised, {
    code: 1,
    stderr:
      /only root may do it → sudo \S+node \/opt\/keybearer\/dist\/cli\/main\.js tools set codex limits\.spend=9\/day/,
  });
  const made = await keybearer(system, "alice", "tools", "token", "codex", "--name", "ci");
  t.match(made.stdout, /^kb_/);
  t.match(await keybearer(system, "alice", "tools", "tokens", "codex"), { code: 0, stdout: /ci/ });
  t.match(await keybearer(system, "alice", "tools", "revoke", "codex", "ci", "--yes"), { code: 0 });
  for (const args of [["trust", "codex"], ["tools", "enable", "codex"], ["config", "edit"], ["confirm"]])
    t.match(await keybearer(system, "alice", ...args), { code: 1, stderr: /only root may/ }, args.join(" "));
  t.match(await keybearer(system, "alice", "tools", "disable", "codex"), { code: 0 });
  t.equal(await call(system, "alice"), "400", "it is disabled");
  const refused = await keybearer(system, "alice", "tools", "enable", "codex");
  const enable = advised(t, refused.stderr, advice.asRoot(`${NODE} ${PROGRAM} tools enable codex`));
  t.match(await system.as("root", enable), { code: 0 });
  t.equal(await call(system, "alice"), "200");
  t.match(
    await keybearer(system, "root", "check", "--system"),
    { code: 0, stdout: /is fine/ },
    "root's file is right after root's commands",
  );
  const bobs = await keybearer(system, "bob", "status", "--system");
  t.match(bobs, { code: 1, stderr: /not running/ });
  const ask = advised(
    t,
    bobs.stderr,
    advice.systemService("status").replace("keybearer", `${NODE} ${PROGRAM}`),
  );
  t.match(await system.as("root", ask), { code: 0, stdout: /is active/ });
  t.match(await keybearer(system, "bob", "tools", "token", "codex", "--system"), { code: 1 });

  const file = "/etc/keybearer/config.yaml";
  await system.as("root", ["mv", file, "/root/config.yaml"]);
  const kept = await keybearer(system, "root", "service", "uninstall", "--system");
  t.match(kept, { code: 1, stderr: /put config\.yaml back/ });
  t.match(await system.as("root", ["test", "-d", "/var/lib/keybearer/keys"]), { code: 0 }, "the keys stay");
  await system.as("root", ["mv", "/root/config.yaml", file]);

  const back = await keybearer(system, "root", "service", "uninstall", "--system");
  t.equal(back.code, 0, back.stderr);
  t.match(await keybearer(system, "alice", "start"), { code: 0 });
  t.equal(await call(system, "alice"), "200", "her own keybearer serves again");
  const rest = await system.sh("root", "ls -d /etc/keybearer /var/lib/keybearer /etc/systemd/*/keybearer*");
  t.equal(rest.stdout, "", "nothing of the service is left");
});

/** A keybearer below the home of alice, with its packages and a node of its own. */
async function copyHome(system: SystemManager): Promise<string[]> {
  const lock = JSON.parse(readFileSync(`${ROOT}/package-lock.json`, "utf8"));
  const packages = Object.entries<{ dev?: boolean }>(lock.packages)
    .filter(([path, { dev }]) => path !== "" && dev !== true && existsSync(`${ROOT}/${path}`))
    .map(([path]) => path);
  const copied = ["package.json", "service", "dist", ...packages].join(" ");
  const made = await system.sh(
    "alice",
    `mkdir ~/program && cd /opt/keybearer && cp -r --parents ${copied} ~/program && cp ${NODE} ~/program/node`,
  );
  if (made.code !== 0) throw new Error(made.stderr);
  return ["/home/alice/program/node", "/home/alice/program/dist/cli/main.js"];
}

t.test(
  "a program below the owner's home is read with the owner's rights, and its copy is root's",
  async (t) => {
    const system = await prepare(t);
    if (system === null) return;
    const [node = "", main = ""] = await copyHome(system);
    const only = "only-root-may-read-this";
    await system.sh("root", `umask 077; echo ${only} > /root/secret; echo ${only} > /etc/secret`);
    const command = [node, main, "service", "install", "--system", "--owner", "alice"];
    for (const secret of ["/root/secret", "/etc/secret"])
      for (const name of ["dist/cli/notes.js", "service/keybearer-system.service", "node_modules/notes"]) {
        const link = `~/program/${name}`;
        await system.sh("alice", `[ ! -e ${link} ] || mv ${link} ~/away; ln -s ${secret} ${link}`);
        const refused = await system.as("root", command);
        const what = `${name} leads to ${secret}`;
        t.match(refused, { code: 1, stderr: /alice could not read the program/ }, what);
        t.notMatch(refused.stdout + refused.stderr, only, what);
        const found = await system.sh("root", `grep -rl ${only} /usr/local /etc/systemd /etc/sysusers.d`);
        t.equal(found.stdout, "", what);
        await system.sh("alice", `rm ${link}; [ ! -e ~/away ] || mv ~/away ${link}`);
      }
    t.equal(await call(system, "alice"), "200", "her own keybearer is as it was");

    const done = await system.as("root", command);
    t.match(done, { code: 0, stderr: /from now on root runs \/usr\/local\/bin\/keybearer/ });
    t.equal(await call(system, "alice"), "200", "the copy serves");
    const unit = await system.sh("root", "systemctl show keybearer --property=ExecStart");
    t.match(unit.stdout, /path=\/usr\/local\/lib\/keybearer\//);
    const loose = await system.sh(
      "root",
      "find /usr/local/lib/keybearer /usr/local/bin/keybearer ! -user root -o -perm /022 -o ! -type d ! -type f",
    );
    t.match(loose, { code: 0, stdout: /^$/ }, "only root can change the copy, and nothing in it is a link");
    const raised = await system.as("alice", [node, main, "tools", "set", "codex", "limits.spend=9/day"]);
    t.match(raised.stderr, /sudo \/usr\/local\/bin\/keybearer tools set codex limits\.spend=9\/day/);
    t.notMatch(raised.stderr, "/home/", "root is not told to run her program");

    const [, old = ""] = /path=(\/usr\/local\/lib\/keybearer\/[^/]+)/.exec(unit.stdout) ?? [];
    const update = ["/usr/local/bin/keybearer", "service", "update", "--system"];
    await system.sh("alice", "ln -s /root/secret ~/program/dist/cli/notes.js");
    t.match(await system.as("root", update), { code: 1, stderr: /alice could not read the program/ });
    await system.sh(
      "alice",
      `rm ~/program/dist/cli/notes.js; sed -i 's/"version": "[^"]*"/"version": "9.9.9"/' ~/program/package.json`,
    );
    const updated = await system.as("root", update);
    t.match(updated, { code: 0, stderr: /is read from \/home\/alice\/program\/dist\/cli\/main\.js/ });
    const next = await system.sh(
      "root",
      "systemctl show keybearer --property=ExecStart; ls -d /usr/local/lib/keybearer/*/",
    );
    t.match(next.stdout, "path=/usr/local/lib/keybearer/9.9.9/", "the service runs what is installed now");
    t.notMatch(next.stdout, old, "the copy before is gone");
    t.equal(await call(system, "alice"), "200");
    t.match(await system.as("root", ["/usr/local/bin/keybearer", "--version"]), {
      code: 0,
      stdout: /9\.9\.9/,
    });
  },
);

t.test(
  "programs that run as the owner find the key of an ordinary keybearer, and not that of the system service",
  async (t) => {
    const system = await prepare(t);
    if (system === null) return;
    const status = JSON.parse((await keybearer(system, "alice", "status", "--json")).stdout);
    const ordinary = await attack(system, {
      pid: String(status.pid),
      socket: "/home/alice/.local/state/keybearer/run/control.sock",
      folder: "/home/alice/.config/keybearer",
    });
    const found = ordinary.filter((way) => way.found).map(({ name }) => name);
    t.comment(`in the ordinary mode these ways find the key: ${found.join("; ")}`);
    t.ok(
      found.includes("the key files") && found.includes("/proc/PID/fd") === false,
      "the key files are open to every program of the owner",
    );

    // What the attacker did to the owner's files is undone: the keybearer that moves is whole.
    await keybearer(system, "alice", "stop");
    await system.as("alice", ["sh", "-c", "cat > ~/.config/keybearer/config.yaml"], CONFIG);
    await system.sh("alice", "rm -f /tmp/stolen* /tmp/attack* ~/linked ~/core");
    t.match(await keybearer(system, "alice", "start"), { code: 0 });
    await takeToken(system, "alice", "codex");
    await install(t, system);
    const ways = await attackSystem(system);
    t.ok(ways.length >= 25, `${ways.length} ways`);
    for (const { name, found: isFound } of ways) t.equal(isFound, false, name);
    await until("the service still serves", async () => (await call(system, "alice")) === "200");
  },
);

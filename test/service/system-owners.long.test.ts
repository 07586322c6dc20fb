import t from "tap";
import { call, install, keybearer, prepare, startMachine, takeToken } from "../doubles/system-journey.ts";
import { until } from "../doubles/until.ts";

t.test("owners share the system service, and a tool may be for one of them", async (t) => {
  const system = await prepare(t);
  if (system === null) return;
  await install(t, system);
  const config = "/etc/keybearer/config.yaml";
  await system.sh(
    "root",
    `sed -i 's/^owners:.*/owners: [alice, bob]/; s/^  codex: {/  scripts: { key: file:~\\/keys\\/codex, limits: { spend: $5\\/day } }\\n  codex: { owner: alice,/' ${config}`,
  );
  t.match(await keybearer(system, "root", "check", "--system"), { code: 0 });
  await install(t, system);

  t.equal(await call(system, "alice", "alice"), "200");
  t.equal(await call(system, "bob", "alice"), "403", "codex is for alice alone, whoever has its token");
  t.match(await keybearer(system, "bob", "tools", "token", "codex"), {
    code: 1,
    stderr: /tool codex is for the user alice alone/,
  });
  await takeToken(system, "bob", "scripts");
  t.equal(await call(system, "bob", "bob"), "200");
  t.equal(await call(system, "alice", "bob"), "200", "a tool without owner: is for both");
  await system.sh("root", "useradd -m eve");
  t.equal(await call(system, "eve", "bob"), "403");

  const together = await Promise.all([
    keybearer(system, "alice", "tools", "set", "codex", "limits.spend=3/day"),
    keybearer(system, "bob", "tools", "set", "scripts", "limits.spend=2/day"),
    keybearer(system, "alice", "tools", "token", "codex", "--name", "ci"),
    keybearer(system, "bob", "tools", "token", "scripts", "--name", "nightly"),
  ]);
  for (const { code, stderr } of together) t.equal(code, 0, stderr);
  const overrides = await system.sh("root", "cat /var/lib/keybearer/overrides.yaml");
  for (const what of [
    /codex: .*\$3\/day/,
    /scripts: .*\$2\/day/,
    /codex: .*name: ci/,
    /scripts: .*name: nightly/,
  ])
    t.match(overrides.stdout, what, "of changes at the same time none is lost");
});

t.test("a backup is restored on another machine", async (t) => {
  const first = await prepare(t);
  const second = first === null ? null : await startMachine(t);
  if (first === null || second === null) return;
  await install(t, first);
  t.equal(await call(first, "alice"), "200");
  const backup = `systemctl stop keybearer && tar --numeric-owner -czf /root/keybearer.tgz /etc/keybearer /var/lib/keybearer 2>/dev/null && systemctl start keybearer && base64 /root/keybearer.tgz`;
  const archive = await first.sh("root", backup);
  t.equal(archive.code, 0, archive.stderr);

  // There the number of the service's user is another one.
  await second.sh("root", "useradd --system first-come");
  const unpack = "umask 077; base64 -d > /root/keybearer.tgz && tar -C / -xzpf /root/keybearer.tgz";
  t.match(await second.as("root", ["sh", "-c", unpack], archive.stdout), { code: 0 });
  await install(t, second);
  const token = (await first.sh("alice", "cat ~/token")).stdout;
  await second.as("alice", ["sh", "-c", "umask 077; cat > ~/token"], token);
  t.equal(await call(second, "alice"), "200", "keys and tokens work");
  t.match(await keybearer(second, "alice", "usage"), { code: 0, stdout: /codex/ });
  const others =
    "find /var/lib/keybearer ! -user keybearer; find /etc/keybearer ! -user root -o ! -group keybearer";
  t.match(await second.sh("root", others), { code: 0, stdout: /^$/ });
});

t.test("an owner's desktop shows the alerts of the system service", async (t) => {
  const system = await prepare(t);
  if (system === null) return;
  await install(t, system);
  // In place of the program that shows notifications; the files of this machine are as they were afterwards.
  const notify = "#!/bin/sh\nprintf '%s\\n' \"$@\" >> /home/alice/alerts\n";
  await system.as("root", ["sh", "-c", "cat > /usr/bin/notify-send; chmod 755 /usr/bin/notify-send"], notify);
  const stateOf = async (user: string) => {
    const uid = (await system.as(user, ["id", "-u"])).stdout.trim();
    const show = `XDG_RUNTIME_DIR=/run/user/${uid} systemctl --user show keybearer-alerts --property=ActiveState,ConditionResult`;
    return (await system.sh(user, show)).stdout.trim();
  };
  for (const user of ["bob", "alice"]) {
    const uid = (await system.as(user, ["id", "-u"])).stdout.trim();
    await system.sh("root", `loginctl enable-linger ${user}; systemctl start user@${uid}.service`);
    // Only its address counts: nothing but notify-send would use it.
    await system.sh(user, `test -e /run/user/${uid}/bus || : > /run/user/${uid}/bus`);
  }
  await until("alerts of alice are followed", async () =>
    (await stateOf("alice")).includes("ActiveState=active"),
  );
  t.match(await stateOf("bob"), "ConditionResult=no", "bob is no owner");
  const connected = "ss -xH | grep -q /run/keybearer/$(id -u alice).sock";
  await until("the unit follows", async () => (await system.sh("root", connected)).code === 0);
  await system.sh("root", "echo 'nonsense: true' >> /etc/keybearer/config.yaml");
  await until("the alert is shown", async () =>
    /config\.yaml/.test((await system.sh("alice", "cat ~/alerts")).stdout),
  );
  await system.sh("root", "sed -i '/^nonsense/d' /etc/keybearer/config.yaml");
  t.match(await keybearer(system, "root", "service", "uninstall", "--system"), { code: 0 });
  const left = await system.sh("root", "find /etc/systemd/user -name 'keybearer*'");
  t.equal(left.stdout, "", "the unit and its link are gone");
});

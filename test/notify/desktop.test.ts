import { chmodSync, existsSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { type Desktop, sendToDesktop } from "../../src/notify/desktop.ts";
import type { Message } from "../../src/notify/message.ts";
import { eventOf, startNotifier } from "../doubles/alerts.ts";
import { showNotifications, startSessionBus } from "../doubles/notification-daemon.ts";
import { until } from "../doubles/until.ts";

/** Short, because it contains a unix socket. */
async function newFolder(t: Test): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "kb-"));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

function send(desktop: Desktop, message: Message) {
  return sendToDesktop(desktop, message, 10_000, new AbortController().signal);
}

/** A folder with this program of the system only. null, and skipped, if there is none. */
async function folderWith(t: Test, program: string): Promise<string | null> {
  const found = ["/usr/bin", "/bin", "/usr/local/bin"]
    .map((one) => join(one, program))
    .find((one) => existsSync(one));
  if (found === undefined) {
    t.skip(`there is no ${program} here`, async () => {});
    return null;
  }
  const folder = await newFolder(t);
  symlinkSync(found, join(folder, program));
  return folder;
}

const HOSTILE = eventOf({
  severity: "warning",
  subject: "tool 'a\"b\\c'",
  message: "it's <b>bold</b> & $(reboot) `x` \\ -1",
  next: "keybearer tools set 'x' --y",
});

for (const program of ["notify-send", "gdbus", "busctl"]) {
  t.test(`${program} shows every character as it is, on the bus of the environment`, async (t) => {
    const folder = await folderWith(t, program);
    if (folder === null) return;
    const socket = join(await newFolder(t), "bus");
    const bus = await startSessionBus(t, socket);
    if (bus === null) return;
    const shown = await showNotifications(t, socket);
    const env = { DBUS_SESSION_BUS_ADDRESS: bus.address };
    const desktop: Desktop = { platform: "linux", env, uid: 0, folders: [folder] };
    t.same(await send(desktop, HOSTILE), { result: "delivered" });
    t.same(shown, [
      {
        app: "keybearer",
        title: "keybearer: tool 'a\"b\\c'",
        body: "it's &lt;b&gt;bold&lt;/b&gt; &amp; $(reboot) `x` \\ -1\n→ keybearer tools set 'x' --y",
        urgency: 1,
      },
    ]);
    t.same(await send(desktop, eventOf()), { result: "delivered" });
    t.equal(shown[1]?.urgency, 2);
  });
}

t.test("a service without the variable finds the bus of its user", async (t) => {
  const folder = (await folderWith(t, "gdbus")) ?? (await folderWith(t, "busctl"));
  const runtime = await newFolder(t);
  const socket = join(runtime, "bus");
  if (folder === null || (await startSessionBus(t, socket)) === null) return;
  const desktop: Desktop = {
    platform: "linux",
    env: { XDG_RUNTIME_DIR: runtime },
    uid: 0,
    folders: [folder],
  };
  t.match(await send(desktop, eventOf()), {
    result: "absent",
    problem: "no program shows notifications here",
  });
  const shown = await showNotifications(t, socket);
  const { notifier, log } = startNotifier(t, "{ desktop: true }", { desktop });
  notifier.notify(eventOf({ message: "hello" }));
  await until("it is shown", () => shown.length === 1 && notifier.status().channels[0]?.waiting === 0);
  t.match(notifier.status().channels, [{ name: "desktop", state: "ok", why: null }]);
  t.same(log, []);
});

t.test("no desktop is no error, and is logged once", async (t) => {
  const empty = await newFolder(t);
  const noBus: Desktop = {
    platform: "linux",
    env: { XDG_RUNTIME_DIR: empty },
    uid: 0,
    folders: ["/usr/bin"],
  };
  t.match(await send(noBus, eventOf()), { result: "absent", problem: "there is no session bus" });
  const gone: Desktop = { ...noBus, env: { DBUS_SESSION_BUS_ADDRESS: `unix:path=${join(empty, "gone")}` } };
  t.match(await send(gone, eventOf()), { result: "absent" });
  t.match(await send({ ...gone, folders: [empty] }, eventOf()), {
    problem: /no notify-send, gdbus or busctl/,
  });
  const { notifier, log } = startNotifier(t, "{}", { desktop: noBus });
  for (const _ of [1, 2]) notifier.notify(eventOf());
  await until("both are over", () => notifier.status().channels[0]?.waiting === 0);
  const [channel] = notifier.status().channels;
  t.match(channel, { state: "absent", why: "there is no session bus", next: null, lost: 0 });
  t.equal(log.length, 1);
  t.match(await notifier.test("desktop"), [{ result: "absent" }]);
});

t.test("a program that hangs or fails is tried again", async (t) => {
  const folder = await newFolder(t);
  const program = join(folder, "notify-send");
  const desktop: Desktop = {
    platform: "linux",
    env: { DBUS_SESSION_BUS_ADDRESS: "unix:path=/nowhere" },
    uid: 0,
    folders: [folder],
  };
  const install = (script: string) => {
    writeFileSync(program, `#!/bin/sh\n${script}\n`);
    chmodSync(program, 0o755);
  };
  install("exit 3");
  t.match(await send(desktop, eventOf()), { result: "retry", problem: `${program} ended with exit code 3` });
  install("exec sleep 1000");
  const { signal } = new AbortController();
  const late = await sendToDesktop(desktop, eventOf(), 300, signal);
  t.match(late, { result: "retry", problem: `${program} did not end within 0.3 s` });
  install(`env > ${folder}/env; exit 0`);
  t.match(await send({ ...desktop, env: { ...desktop.env, KEY: "sk-0123456789" } }, eventOf()), {
    result: "delivered",
  });
  t.notMatch(readFileSync(join(folder, "env"), "utf8"), "sk-0123456789");
});

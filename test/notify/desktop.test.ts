import { chmodSync, existsSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { type Desktop, sendToDesktop } from "../../src/notify/desktop.ts";
import type { Message } from "../../src/notify/message.ts";
import { eventOf, startNotifier } from "../doubles/alerts.ts";
import { movableClock } from "../doubles/movable-clock.ts";
import { showNotifications, startSessionBus } from "../doubles/notification-daemon.ts";
import { until } from "../doubles/until.ts";

const MINUTE = 60_000;

/** Short, because it contains a unix socket. */
async function newFolder(t: Test): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "kb-"));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

function send(desktop: Desktop, message: Message) {
  return sendToDesktop(desktop, message, 10_000, new AbortController().signal);
}

/** The packages of Debian and Ubuntu. */
const PACKAGES = {
  "notify-send": "libnotify-bin",
  gdbus: "libglib2.0-bin",
  busctl: "systemd",
} as const;
const BUS_PROGRAMS = ["notify-send", "gdbus", "busctl"] as const;

/** A folder with this program of the system only. null, and skipped, if there is none. */
async function folderWith(t: Test, program: keyof typeof PACKAGES): Promise<string | null> {
  const found = ["/usr/bin", "/bin", "/usr/local/bin"]
    .map((one) => join(one, program))
    .find((one) => existsSync(one));
  if (found === undefined) {
    t.skip(`${program} is not installed: apt-get install ${PACKAGES[program]}`, async () => {});
    return null;
  }
  const folder = await newFolder(t);
  symlinkSync(found, join(folder, program));
  return folder;
}

/** A notify-send. */
function installProgram(folder: string, script: string): void {
  const program = join(folder, "notify-send");
  writeFileSync(program, `#!/bin/sh\n${script}\n`);
  chmodSync(program, 0o755);
}

const HOSTILE = eventOf({
  severity: "warning",
  subject: "tool 'a\"b\\c'",
  message: "it's <b>bold</b> & $(reboot) `x` \\ -1",
  next: "keybearer tools set 'x' --y",
});

for (const program of BUS_PROGRAMS) {
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

t.test(
  "osascript takes every character as it is",
  { skip: process.platform !== "darwin" && "osascript is part of macOS" },
  async (t) => {
    const desktop: Desktop = { platform: "darwin", env: {}, uid: 0, folders: [] };
    t.same(await send(desktop, HOSTILE), { result: "delivered" });
  },
);

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
  const outlived = { ...desktop.env, DBUS_SESSION_BUS_ADDRESS: `unix:path=${join(runtime, "gone")}` };
  t.same(await send({ ...desktop, env: outlived }, eventOf()), { result: "delivered" });
  t.equal(shown.length, 2, "also when the variable names a bus that is gone");
});

t.test("no desktop is no error, is logged once, and what waits is shown to who logs in", async (t) => {
  const empty = await newFolder(t);
  const noBus: Desktop = {
    platform: "linux",
    env: { XDG_RUNTIME_DIR: empty },
    uid: 0,
    folders: [empty],
  };
  t.match(await send(noBus, eventOf()), { result: "absent", problem: "there is no session bus" });
  const gone: Desktop = { ...noBus, env: { DBUS_SESSION_BUS_ADDRESS: `unix:path=${join(empty, "gone")}` } };
  t.match(await send({ ...gone, folders: ["/usr/bin"] }, eventOf()), { result: "absent" });
  t.match(await send(gone, eventOf()), { problem: /no notify-send, gdbus or busctl/ });
  const clock = movableClock();
  const { notifier, ticker, log } = startNotifier(t, "{}", { desktop: noBus, clock });
  for (const _ of [1, 2]) notifier.notify(eventOf());
  await until("it was tried", () => notifier.status().channels[0]?.state === "absent");
  t.match(notifier.status().channels[0], { why: "there is no session bus", next: null, waiting: 2, lost: 0 });
  t.match(await notifier.test("desktop"), [{ result: "absent" }]);
  t.equal(log.length, 1);
  installProgram(empty, "exit 0");
  writeFileSync(join(empty, "bus"), "");
  clock.pass(14 * MINUTE);
  ticker.tick();
  t.equal(notifier.status().channels[0]?.waiting, 2);
  clock.pass(MINUTE);
  ticker.tick();
  await until("both are shown", () => notifier.status().channels[0]?.waiting === 0);
  t.match(notifier.status().channels[0], { state: "ok", why: null });
});

t.test("without a desktop alerts are dropped after a day or a thousand, and nothing is said", async (t) => {
  const clock = movableClock();
  const { notifier, ticker, log, file } = startNotifier(t, "{}", { clock });
  notifier.notify(eventOf());
  await until("it was tried", () => notifier.status().channels[0]?.state === "absent");
  for (let number = 0; number < 1001; number += 1) notifier.notify(eventOf());
  t.match(notifier.status().channels[0], { waiting: 1000, lost: 0 });
  clock.pass(25 * 60 * MINUTE);
  ticker.tick();
  await until("all are dropped", () => notifier.status().channels[0]?.waiting === 0);
  t.match(notifier.status().channels[0], { state: "absent", lost: 0 });
  t.equal(log.length, 1);
  t.equal(readFileSync(file, "utf8"), "");
  t.notOk(ticker.isNeeded);
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
  const install = (script: string) => installProgram(folder, script);
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

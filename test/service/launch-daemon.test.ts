import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { installOnMac } from "../../src/cli/service/system/launch-daemon.ts";
import { advice } from "../../src/core/advice.ts";
import { DAEMON_FILE, launchDaemonText, planLaunchDaemon } from "../../src/service/launch-daemon.ts";
import { readPlist } from "../../src/service/plist.ts";
import { advised, flat, newHome, withStreams } from "../doubles/command.ts";
import { ROOT } from "../doubles/paths.ts";

/* No test here runs a launchd, and nobody has run this property list on a Mac. */

const TEMPLATE = readFileSync(join(ROOT, "service/com.keybearer.plist"), "utf8");
const ODD = `/opt/a b/$HOME $& $1 "q" 'p' back\\slash <&> ü`;
const PROGRAM = { node: `${ODD}/node`, main: "/opt/keybearer/dist/cli/main.js" };

const NO_PLISTUTIL =
  spawnSync("plistutil", ["--version"]).error !== undefined && "there is no plistutil here (libplist-utils)";

type Fields = Readonly<Record<string, unknown>>;

/** The property list as plistutil writes it: one element on each line. */
function readXml(text: string): unknown {
  const lines = text.split("\n").map((line) => line.trim());
  let at = lines.findIndex((line) => line.startsWith("<plist")) + 1;
  const read = (): unknown => {
    const line = lines[at++] ?? "";
    const [, kind, content = ""] = /^<(\w+)\/?>(?:(.*)<\/\w+>)?$/.exec(line) ?? [];
    if (kind === "true" || kind === "false") return kind === "true";
    if (kind === "integer") return Number(content);
    if (kind === "string" || kind === "key")
      return content.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
    if (kind !== "dict" && kind !== "array") throw new Error(`not read: ${line}`);
    const values: unknown[] = [];
    while (lines[at] !== `</${kind}>`) values.push(read());
    at += 1;
    if (kind === "array") return values;
    return Object.fromEntries(
      values.flatMap((key, index) => (index % 2 === 0 ? [[key, values[index + 1]]] : [])),
    );
  };
  return read();
}

t.test("plistutil reads each field of the LaunchDaemon", { skip: NO_PLISTUTIL }, async (t) => {
  const home = await newHome(t);
  const file = join(home, "daemon.plist");
  writeFileSync(file, launchDaemonText(TEMPLATE, { ...PROGRAM, stopSeconds: 40 }));
  // By way of the binary form: the text that comes back is made from what was understood, not copied.
  const binary = join(home, "daemon.bin");
  execFileSync("plistutil", ["-i", file, "-o", binary, "-f", "bin"]);
  const back = execFileSync("plistutil", ["-i", binary, "-f", "xml"], { encoding: "utf8" });
  const { EnvironmentVariables: environment, ...fields } = readXml(back) as Record<string, Fields>;
  const log = "/var/lib/keybearer/state/keybearer.log";
  t.same(fields, {
    Label: "com.keybearer.system",
    UserName: "_keybearer",
    GroupName: "_keybearer",
    ProgramArguments: [PROGRAM.node, PROGRAM.main, "run", "--system"],
    RunAtLoad: true,
    KeepAlive: { SuccessfulExit: false },
    ThrottleInterval: 30,
    ExitTimeOut: 40,
    ProcessType: "Interactive",
    Umask: 0o077,
    SoftResourceLimits: { Core: 0 },
    HardResourceLimits: { Core: 0 },
    StandardOutPath: log,
    StandardErrorPath: log,
  });
  const { PATH, HOME, ...cleared } = environment ?? {};
  t.same({ PATH, HOME }, { PATH: "/usr/bin:/bin:/usr/sbin:/sbin", HOME: "/var/lib/keybearer" });
  for (const name of ["NODE_OPTIONS", "NODE_EXTRA_CA_CERTS", "DYLD_INSERT_LIBRARIES"])
    t.equal(cleared[name], "", name);
  t.ok(Object.values(cleared).every((value) => value === ""));
});

t.test("the LaunchDaemon says that it never ran, and is never taken for the agent", async (t) => {
  const text = launchDaemonText(TEMPLATE, { ...PROGRAM, stopSeconds: 40 });
  t.match(text, /<!-- .*Never run on a Mac.* -->/);
  t.equal(text.split("<!--").length, 2, "no comment of the agent is left");
  t.equal(readPlist(text), null);
});

t.test("its user, its folders and the file come before it is loaded", async (t) => {
  const steps = planLaunchDaemon(TEMPLATE, { ...PROGRAM, stopSeconds: 40 });
  const lines = steps.map((step) => (step.kind === "run" ? step.argv.join(" ") : step.file));
  t.ok(lines.every((line) => line === DAEMON_FILE || line.startsWith("sudo ")));
  t.same(
    lines.filter((line) => /install -d|IsHidden|UserShell|Daemons/.test(line)),
    [
      "sudo dscl . -create /Users/_keybearer UserShell /usr/bin/false",
      "sudo dscl . -create /Users/_keybearer IsHidden 1",
      "sudo install -d -o root -g _keybearer -m 750 /etc/keybearer",
      "sudo install -d -o root -g wheel -m 755 /var/lib",
      "sudo install -d -o _keybearer -g _keybearer -m 700 /var/lib/keybearer",
      "sudo install -d -o _keybearer -g _keybearer -m 700 /var/lib/keybearer/state",
      DAEMON_FILE,
      `sudo chown root:wheel ${DAEMON_FILE}`,
      `sudo chmod 644 ${DAEMON_FILE}`,
      `sudo plutil -lint ${DAEMON_FILE}`,
      `sudo launchctl bootstrap system ${DAEMON_FILE}`,
    ],
  );
  const [users, groups, first] = lines;
  t.match([users, groups], [/-search \/Users UniqueID 399$/, /-search \/Groups PrimaryGroupID 399$/]);
  t.match(first, / -create \/Groups\/_keybearer$/, "a number that is taken is found before it is used");
});

t.test("on a Mac, a system service is shown and never installed", async (t) => {
  const home = await newHome(t);
  const main = join(home, "main.js");
  writeFileSync(main, "");
  chmodSync(main, 0o666);
  const typed = (args: readonly string[]) =>
    withStreams(home, async () =>
      installOnMac({ dryRun: args.includes("--dry-run") }, { node: process.execPath, main }),
    );
  const refused = await typed(["service", "install", "--system"]);
  t.match(refused, { code: 2, stdout: "" });
  t.match(flat(refused.stderr), "on macOS there is no system service");
  const shown = await typed(advised(t, refused.stderr, advice.showLaunchDaemon()));
  t.match(shown, { code: 0 });
  t.match(shown.stdout, `would write ${DAEMON_FILE}:`);
  t.match(shown.stdout, /<!-- .*Never run on a Mac.* -->/);
  t.match(shown.stdout, `<string>${main}</string>`);
  t.match(shown.stdout, "would run sudo dscl . -create /Users/_keybearer Password '*'");
  const notes = flat(shown.stderr);
  for (const note of [
    "this has never run on a Mac",
    "the daemon would not start",
    "it would refuse every call",
    "nothing is moved",
  ])
    t.match(notes, note);
  t.match(notes, "whoever can change the program could read the keys");
});

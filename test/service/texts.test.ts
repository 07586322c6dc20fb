import { execFileSync, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { findPaths } from "../../src/core/paths.ts";
import { plistText, readPlist } from "../../src/service/launchd/plist.ts";
import { FORMAT, type ServiceSpec, servicePath, specFault, specOf } from "../../src/service/spec.ts";
import { clearedBy, namespaceTrial, readUnit, unitText } from "../../src/service/systemd/unit.ts";
import { template } from "../../src/service/template.ts";
import { newHome } from "../doubles/command.ts";

const UNIT = template("keybearer.service");
const PLIST = template("com.keybearer.plist");

/** Every character that systemd, XML or a replacement in JavaScript gives a meaning to. */
const ODD = `/home/a b/50%h %% $HOME \${x} $& $1 "q" 'p' back\\slash <&> ;x #y ü 日本`;

const SPEC: ServiceSpec = {
  node: "/usr/bin/node",
  main: "/usr/lib/node_modules/keybearer/dist/cli/main.js",
  config: "/home/ann/.config/keybearer/config.yaml",
  home: null,
  environment: {},
  writable: ["/home/ann/.local/state/keybearer", "/run/user/1000/keybearer"],
  namespaces: true,
  path: "/usr/bin:/bin",
  logFile: "/home/ann/.local/state/keybearer/keybearer.log",
};

const ODD_SPEC: ServiceSpec = {
  ...SPEC,
  // systemd starts no program with quotes or backslashes in its path.
  node: `${ODD.replace(/["'\\]/g, "")}/node`,
  main: `${ODD}/main.js`,
  config: `${ODD}/config.yaml`,
  home: ODD,
  environment: { XDG_STATE_HOME: `${ODD}=x`, XDG_RUNTIME_DIR: "/run/user/1000" },
  writable: [`${ODD}/state`],
  path: `${ODD}:/bin`,
  logFile: `${ODD}/log`,
};

const directives = (text: string) => text.split("\n").filter((line) => /^[A-Z]/.test(line));

t.test("a unit says what it starts, and is read back", async (t) => {
  const text = unitText(UNIT, SPEC);
  t.equal(text.split("\n")[0], `# keybearer unit ${FORMAT}`);
  t.match(
    text,
    'ExecStart=:"/usr/bin/node" "/usr/lib/node_modules/keybearer/dist/cli/main.js" run --config "/home/ann/.config/keybearer/config.yaml"\n',
  );
  t.match(text, '\nEnvironment="PATH=/usr/bin:/bin"\n');
  t.match(
    text,
    '\nReadWritePaths="-/home/ann/.local/state/keybearer" "-/run/user/1000/keybearer" "-/tmp" "-/var/tmp"\n',
  );
  const { node, main, config, home, environment, namespaces } = SPEC;
  t.same(readUnit(text), { node, main, config, home, environment, namespaces, format: FORMAT });
  t.equal(unitText(UNIT, SPEC), text, "the same every time");
  t.equal(unitText(text, SPEC), text, "and an installed one is a template as good");
});

t.test("odd paths are escaped as systemd reads them, and come back as they were", async (t) => {
  const text = unitText(UNIT, ODD_SPEC);
  const { node, main, config, home, environment, namespaces } = ODD_SPEC;
  const paths = { home: "/home/ann", runtime: "/run/user/1000" };
  for (const read of [readUnit(text), readUnit(text, paths)]) {
    t.same(read, { node, main, config, home, environment, namespaces, format: FORMAT });
  }
  t.equal(directives(text).length, directives(UNIT).length + 3, "only its three variables are lines more");
  t.match(
    text,
    `"KEYBEARER_HOME=/home/a b/50%%h %%%% $HOME \${x} $& $1 \\"q\\" 'p' back\\\\slash <&> ;x #y ü 日本"`,
  );
});

t.test("a unit that was copied by hand is read as systemd reads it", async (t) => {
  const paths = { home: "/home/50%h", runtime: "/run/user/1000" };
  const found = readUnit(UNIT, paths);
  t.equal(found?.config, "/home/50%h/.config/keybearer/config.yaml", "what is put in is not read again");
  t.equal(found?.home, null);
  const more =
    'Environment=KEYBEARER_HOME=%h/kb "XDG_STATE_HOME=%h/a b%%h"\nEnvironment=XDG_RUNTIME_DIR=%t/x\n';
  t.match(readUnit(UNIT.replace("UMask=", `${more}UMask=`), paths), {
    home: "/home/50%h/kb",
    environment: { XDG_STATE_HOME: "/home/50%h/a b%h", XDG_RUNTIME_DIR: "/run/user/1000/x" },
  });
  t.match(readUnit(UNIT.replace("%h/.config", "%Q%t/.config"), paths)?.config, "%Q/run/user/1000/.config");
  t.match(readUnit(UNIT)?.config, "%h/.config", "without the places they stay");
});

t.test("what would break out of its line is refused", async (t) => {
  for (const bad of ["/a\nExecStartPre=/bin/false", "/a\rb", "/a\tb", "/a\0b", "/a\u007fb"]) {
    for (const field of ["node", "main", "config", "home", "path"] as const) {
      t.throws(() => unitText(UNIT, { ...SPEC, [field]: bad }), /line break or control character/);
      t.throws(() => plistText(PLIST, { ...SPEC, [field]: bad }), /line break or control character/);
    }
    t.match(specFault({ ...SPEC, config: bad }, "launchd"), /control character/);
    t.throws(() => unitText(UNIT, { ...SPEC, writable: [bad] }), /control character/);
    t.throws(() => unitText(UNIT, { ...SPEC, environment: { XDG_STATE_HOME: bad } }), /control character/);
    t.throws(() => plistText(PLIST, { ...SPEC, environment: { XDG_STATE_HOME: bad } }), /control character/);
    t.throws(() => plistText(PLIST, { ...SPEC, logFile: bad }), /control character/);
  }
  for (const node of [`/o"b/node`, "/o'b/node", "/o\\b/node"]) {
    t.throws(() => unitText(UNIT, { ...SPEC, node }), /no program with a quote or backslash.*install node/);
    t.equal(readPlist(plistText(PLIST, { ...SPEC, node }))?.node, node, "launchd takes it");
  }
  t.equal(specFault(ODD_SPEC, "systemd"), null);
});

t.test("without namespaces, nothing is left that makes one", async (t) => {
  const text = unitText(UNIT, { ...SPEC, namespaces: false });
  t.notMatch(directives(text).join("\n"), /^(?:Private|Protect|ReadWritePaths|CapabilityBoundingSet)/m);
  t.match(text, /\nNoNewPrivileges=yes\n/, "what needs none stays");
  t.match(text, /\nSystemCallFilter=/);
  t.match(readUnit(text), { config: SPEC.config, namespaces: false });
  const trial = namespaceTrial(UNIT);
  t.same(trial.slice(0, 2), ["systemd-run", "--user"]);
  t.equal(trial.at(-1), "/bin/true");
  const tried = trial.filter((word) => word.startsWith("--property=")).map((word) => word.slice(11));
  const gone = directives(unitText(UNIT, SPEC)).filter((line) => !directives(text).includes(line));
  t.same(
    tried,
    gone.filter((line) => !line.startsWith("ReadWritePaths=")),
    "the trial tries exactly what is left out otherwise",
  );
});

t.test("the unit promises what the daemon relies on", async (t) => {
  const lines = directives(UNIT);
  for (const line of [
    "Type=notify",
    "NotifyAccess=all",
    "Restart=on-failure",
    "RestartPreventExitStatus=2 75 78",
    "LimitCORE=0",
    "UMask=0077",
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "WatchdogSignal=SIGKILL",
    "RuntimeDirectoryPreserve=yes",
  ])
    t.ok(lines.includes(line), line);
  t.notMatch(lines.join("\n"), /MemoryDenyWriteExecute/, "V8 could not compile");
  const cleared = clearedBy(UNIT);
  for (const name of ["NODE_OPTIONS", "NODE_COMPILE_CACHE", "NODE_PATH", "LD_PRELOAD", "LD_LIBRARY_PATH"])
    t.ok(cleared.includes(name), name);
  for (const name of ["NODE_EXTRA_CA_CERTS", "NODE_TLS_REJECT_UNAUTHORIZED", "SSL_CERT_FILE", "OPENSSL_CONF"])
    t.ok(cleared.includes(name), `${name}: other certificates are trusted by ca_file alone`);
  t.equal(new Set(cleared).size, cleared.length);
  t.ok(Number(/^TimeoutStopSec=(\d+)s$/m.exec(UNIT)?.[1]) > 10, "longer than the drain");
  t.ok(Number(/^WatchdogSec=(\d+)s$/m.exec(UNIT)?.[1]) >= 20, "wakes the daemon no more than once in 10 s");
});

t.test("a unit that is not ours is not taken for ours", async (t) => {
  const ours = unitText(UNIT, SPEC);
  for (const text of [
    "",
    "[Service]\nExecStart=/usr/bin/keybearer run\n",
    ours.replace("# keybearer unit 1\n", ""),
    ours.replace(" run --config", " run"),
    ours.replace(/^ExecStart=.*$/m, ""),
    ours.replace('config.yaml"', 'config.yaml" --more'),
  ])
    t.equal(readUnit(text), null);
  t.equal(readUnit(ours.replace("unit 1", "unit 12"))?.format, 12, "of another format it is still ours");
  t.match(readUnit(ours.replaceAll("\n", "\r\n"))?.config, SPEC.config);
});

t.test("a template that lost a line is a bug that is seen", async (t) => {
  t.throws(() => unitText(UNIT.replace(/^ExecStart=/m, "#"), SPEC), /0 lines that begin with ExecStart=/);
  t.throws(
    () => unitText(UNIT.replace("# end namespaces", ""), { ...SPEC, namespaces: false }),
    /namespaces/,
  );
  t.throws(() => plistText(PLIST.replace("StandardOutPath", "Other"), SPEC), /StandardOutPath/);
});

t.test("an agent says what it starts, and is read back", async (t) => {
  for (const spec of [SPEC, ODD_SPEC]) {
    const text = plistText(PLIST, spec);
    const { node, main, config, home, environment } = spec;
    const expected = { node, main, config, home, environment, namespaces: false, format: FORMAT };
    t.same(readPlist(text), expected);
    t.equal(plistText(PLIST, spec), text);
  }
  t.equal(readPlist(PLIST.replace("keybearer agent 1", "agent")), null);
  t.equal(readPlist(plistText(PLIST, SPEC).replace("<string>run</string>", "")), null);
  t.equal(readPlist(""), null);
});

const NO_PLISTUTIL =
  spawnSync("plistutil", ["--version"]).error !== undefined && "there is no plistutil here (libplist-utils)";

t.test("a property list program reads the agent, odd paths and all", { skip: NO_PLISTUTIL }, async (t) => {
  const home = await newHome(t);
  for (const [name, text] of Object.entries({
    template: PLIST,
    plain: plistText(PLIST, SPEC),
    odd: plistText(PLIST, { ...ODD_SPEC, environment: { XDG_STATE_HOME: ODD } }),
  })) {
    const [xml, binary] = [join(home, `${name}.plist`), join(home, `${name}.bin`)];
    writeFileSync(xml, text);
    // By way of the binary form: the text that comes back is made from what was understood, not copied.
    execFileSync("plistutil", ["-i", xml, "-o", binary, "-f", "bin"]);
    const back = execFileSync("plistutil", ["-i", binary, "-f", "xml"], { encoding: "utf8" });
    t.match(back, "<key>ThrottleInterval</key>\n\t<integer>30</integer>");
    t.match(back, "<key>Umask</key>\n\t<integer>63</integer>");
    t.match(back, /<key>SuccessfulExit<\/key>\s*<false\/>/);
    t.match(back, /<key>NODE_OPTIONS<\/key>\s*<string(?:><\/string>|\/>)/);
    if (name === "template") continue;
    const { node, config, logFile } = name === "plain" ? SPEC : ODD_SPEC;
    const xmlOf = (path: string) =>
      `<string>${path.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")}</string>`;
    for (const path of [node, config, logFile]) t.ok(back.includes(xmlOf(path)), `${name}: ${path}`);
  }
});

t.test("the specification finds what the command line finds, and takes no secret along", async (t) => {
  const env = {
    HOME: "/home/ann",
    XDG_STATE_HOME: "/data/state",
    XDG_CONFIG_HOME: "relative",
    XDG_RUNTIME_DIR: "/run/user/1000",
    PATH: "/home/ann/bin:.:/usr/bin:/tmp/fnm_multishells/1_2/bin",
    OPENAI_API_KEY: "sk-canary",
  };
  const paths = findPaths({ env, home: "/home/ann" });
  const spec = specOf({ node: "/n", main: "/m", paths, env, namespaces: true });
  t.same(spec.environment, { XDG_STATE_HOME: "/data/state", XDG_RUNTIME_DIR: "/run/user/1000" });
  t.same(spec.writable, ["/data/state/keybearer", "/run/user/1000/keybearer", "/home/ann/.config/keybearer"]);
  t.equal(spec.config, "/home/ann/.config/keybearer/config.yaml");
  t.equal(spec.home, null);
  t.match(spec.path, /^\/usr\/local\/bin:\/usr\/bin:.*:\/home\/ann\/\.local\/bin:\/home\/ann\/bin$/);
  const elsewhere = specOf({ node: "/n", main: "/m", paths, env: { ...env, PATH: "/x" }, namespaces: true });
  t.same(elsewhere, spec, "from another terminal it is the same service");
  t.notMatch(unitText(UNIT, spec) + plistText(PLIST, spec), /canary/);

  const own = { ...env, KEYBEARER_HOME: "/srv/kb" };
  const owned = specOf({
    ...{ node: "/n", main: "/m", env: own, namespaces: true },
    paths: findPaths({ env: own, home: "/home/ann" }),
  });
  t.equal(owned.home, "/srv/kb");
  t.same(owned.environment, {}, "KEYBEARER_HOME decides alone");
  t.same(owned.writable, ["/srv/kb/state", "/srv/kb/run", "/srv/kb"]);
  t.equal(readUnit(unitText(UNIT, owned))?.home, "/srv/kb");
  t.equal(readPlist(plistText(PLIST, owned))?.home, "/srv/kb");
  t.match(servicePath(undefined), "/usr/local/bin:/usr/bin:/bin");

  const named = (config: string) =>
    specOf({
      ...{ node: "/n", main: "/m", env, namespaces: true },
      paths: findPaths({ env, home: "/home/ann", config }),
    }).writable;
  t.same(named("/home/ann/kb.yaml"), ["/data/state/keybearer", "/run/user/1000/keybearer"], "not the home");
  t.same(named("/home/ann/.config/keybearer/other.yaml"), spec.writable, "one that is keybearer's own is");
});

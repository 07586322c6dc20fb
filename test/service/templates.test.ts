import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { DEFAULT_DRAIN } from "../../src/config/schema.ts";
import { findPaths } from "../../src/core/paths.ts";
import { readPlist, renderPlist } from "../../src/service/plist.ts";
import {
  createSpec,
  FORMAT,
  findSpecProblem,
  type InstalledService,
  type ServiceSpec,
  stopSecondsFor,
} from "../../src/service/spec.ts";
import { readUnit, renderUnit, unsetVariables } from "../../src/service/unit.ts";
import { newHome } from "../doubles/command.ts";
import { ROOT } from "../doubles/paths.ts";

const UNIT = readFileSync(join(ROOT, "service/keybearer.service"), "utf8");
const PLIST = readFileSync(join(ROOT, "service/com.keybearer.plist"), "utf8");
const SPECIFIERS = { home: "/home/50%h", runtime: "/run/user/1000" };

/** Every character that systemd, XML or a replacement in JavaScript gives a meaning to. */
const ODD = `/home/a b/50%h %% $HOME \${x} $& $1 "q" 'p' back\\slash <&> ;x #y ü 日本`;

const SPEC: ServiceSpec = {
  node: "/usr/bin/node",
  main: "/usr/lib/node_modules/keybearer/dist/cli/main.js",
  config: "/home/ann/.config/keybearer/config.yaml",
  environment: { PATH: "/usr/bin:/bin" },
  writable: ["/home/ann/.local/state/keybearer", "/run/user/1000/keybearer"],
  namespaces: true,
  logFile: "/home/ann/.local/state/keybearer/keybearer.log",
  stopSeconds: 310,
};

const ODD_SPEC: ServiceSpec = {
  ...SPEC,
  // systemd starts no program with quotes or backslashes in its path.
  node: `${ODD.replace(/["'\\]/g, "")}/node`,
  main: `${ODD}/main.js`,
  config: `${ODD}/config.yaml`,
  environment: {
    PATH: `${ODD}:/bin`,
    KEYBEARER_HOME: ODD,
    XDG_STATE_HOME: `${ODD}=x`,
    XDG_RUNTIME_DIR: "/run/user/1000",
  },
  writable: [`${ODD}/state`],
  logFile: `${ODD}/log`,
};

/** What is read back from a service file with this in it. */
function installed({ writable: _, ...spec }: ServiceSpec, logFile: string | null) {
  const { PATH: __, ...environment } = spec.environment;
  return { ...spec, environment, logFile, format: FORMAT };
}

const directives = (text: string) => text.split("\n").filter((line) => /^[A-Z]/.test(line));

t.test("a unit contains what it starts, and is read back", async (t) => {
  const text = renderUnit(UNIT, SPEC);
  t.equal(text.split("\n")[0], `# keybearer unit ${FORMAT}`);
  t.match(
    text,
    'ExecStart=:"/usr/bin/node" "/usr/lib/node_modules/keybearer/dist/cli/main.js" run --config "/home/ann/.config/keybearer/config.yaml"\n',
  );
  t.match(text, '\nEnvironment="PATH=/usr/bin:/bin"\n');
  t.match(text, "\nTimeoutStopSec=310s\n");
  t.match(
    text,
    '\nReadWritePaths="-/home/ann/.local/state/keybearer" "-/run/user/1000/keybearer" "-/tmp" "-/var/tmp"\n',
  );
  t.same(readUnit(text, SPECIFIERS), installed(SPEC, null));
  t.equal(renderUnit(text, SPEC), text, "and an installed one is a template as good");
});

t.test("odd paths are escaped as systemd reads them, and are read back unchanged", async (t) => {
  const text = renderUnit(UNIT, ODD_SPEC);
  t.same(readUnit(text, SPECIFIERS), installed(ODD_SPEC, null));
  t.equal(directives(text).length, directives(UNIT).length + 3, "only its three variables are lines more");
  t.match(
    text,
    `"KEYBEARER_HOME=/home/a b/50%%h %%%% $HOME \${x} $& $1 \\"q\\" 'p' back\\\\slash <&> ;x #y ü 日本"`,
  );
});

t.test("a unit that was copied by hand is read as systemd reads it", async (t) => {
  const found = readUnit(UNIT, SPECIFIERS);
  t.equal(found?.config, "/home/50%h/.config/keybearer/config.yaml", "a replacement is not replaced again");
  t.same(found?.environment, {});
  const more =
    'Environment=KEYBEARER_HOME=%h/kb "XDG_STATE_HOME=%h/a b%%h"\nEnvironment=XDG_RUNTIME_DIR=%t/x\n';
  t.match(readUnit(UNIT.replace("UMask=", `${more}UMask=`), SPECIFIERS), {
    environment: {
      KEYBEARER_HOME: "/home/50%h/kb",
      XDG_STATE_HOME: "/home/50%h/a b%h",
      XDG_RUNTIME_DIR: "/run/user/1000/x",
    },
  });
  const unknown = readUnit(UNIT.replace("%h/.config", "%Q%t/.config"), SPECIFIERS);
  t.match(unknown?.config, "%Q/run/user/1000/.config");
});

t.test("a value that would leave its line is refused", async (t) => {
  for (const bad of ["/a\nExecStartPre=/bin/false", "/a\rb", "/a\tb", "/a\0b", "/a\u007fb"])
    for (const spec of [
      { ...SPEC, node: bad },
      { ...SPEC, main: bad },
      { ...SPEC, config: bad },
      { ...SPEC, logFile: bad },
      { ...SPEC, writable: [bad] },
      { ...SPEC, environment: { PATH: bad } },
      { ...SPEC, environment: { KEYBEARER_HOME: bad } },
    ])
      for (const manager of ["systemd", "launchd"] as const)
        t.match(findSpecProblem(spec, manager)?.problem, /line break or control character/);
  for (const node of [`/o"b/node`, "/o'b/node", "/o\\b/node"]) {
    const bad = findSpecProblem({ ...SPEC, node }, "systemd");
    t.match(bad, { problem: /no program with a quote or backslash/, next: /install node/ });
    t.equal(findSpecProblem({ ...SPEC, node }, "launchd"), null);
    t.equal(readPlist(renderPlist(PLIST, { ...SPEC, node }))?.node, node, "launchd takes it");
  }
  t.equal(findSpecProblem(ODD_SPEC, "systemd"), null);
});

t.test("without namespaces, the unit has no setting that needs one", async (t) => {
  const text = renderUnit(UNIT, { ...SPEC, namespaces: false });
  t.notMatch(directives(text).join("\n"), /^(?:Private|Protect|ReadWritePaths|CapabilityBoundingSet)/m);
  t.match(text, /\nNoNewPrivileges=yes\n/, "what needs none stays");
  t.match(text, /\nSystemCallFilter=/);
  t.match(readUnit(text, SPECIFIERS), { config: SPEC.config, namespaces: false });
  const gone = directives(renderUnit(UNIT, SPEC)).filter((line) => !directives(text).includes(line));
  const dropIn = directives(readFileSync(join(ROOT, "service/README.md"), "utf8"));
  const names = (lines: readonly string[]) => lines.map((line) => line.split("=", 1)[0]).toSorted();
  const turnedOff = names(dropIn.filter((line) => /^\w+=/.test(line)));
  t.same(turnedOff, names(gone), "the drop-in of service/README.md turns off exactly what is left out");
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
  const cleared = unsetVariables(UNIT);
  for (const name of ["NODE_OPTIONS", "NODE_COMPILE_CACHE", "NODE_PATH", "LD_PRELOAD", "LD_LIBRARY_PATH"])
    t.ok(cleared.includes(name), name);
  for (const name of ["NODE_EXTRA_CA_CERTS", "NODE_TLS_REJECT_UNAUTHORIZED", "SSL_CERT_FILE", "OPENSSL_CONF"])
    t.ok(cleared.includes(name), `${name}: other certificates are trusted by ca_file alone`);
  t.equal(new Set(cleared).size, cleared.length);
  t.ok(Number(/^WatchdogSec=(\d+)s$/m.exec(UNIT)?.[1]) >= 20, "wakes the daemon no more than once in 10 s");
});

t.test("a unit that keybearer did not write is recognized", async (t) => {
  const ours = renderUnit(UNIT, SPEC);
  for (const text of [
    "",
    "[Service]\nExecStart=/usr/bin/keybearer run\n",
    ours.replace("# keybearer unit 1\n", ""),
    ours.replace(" run --config", " run"),
    ours.replace(/^ExecStart=.*$/m, ""),
    ours.replace('config.yaml"', 'config.yaml" --more'),
  ])
    t.equal(readUnit(text, SPECIFIERS), null);
  const newer = readUnit(ours.replace("unit 1", "unit 12"), SPECIFIERS);
  t.equal(newer?.format, 12, "a unit of another format is still ours");
  t.match(readUnit(ours.replaceAll("\n", "\r\n"), SPECIFIERS)?.config, SPEC.config);
});

t.test("the manager waits 10 s longer than the drain, also in a unit that is copied by hand", async (t) => {
  t.equal(stopSecondsFor(10_000), 20);
  t.equal(stopSecondsFor(600_000), 610);
  t.equal(readUnit(UNIT, SPECIFIERS)?.stopSeconds, stopSecondsFor(DEFAULT_DRAIN));
  t.equal(readPlist(PLIST)?.stopSeconds, stopSecondsFor(DEFAULT_DRAIN));
  const other = UNIT.replace(/^TimeoutStopSec=.*$/m, "TimeoutStopSec=5min 10s");
  t.equal(readUnit(other, SPECIFIERS)?.stopSeconds, null, "another notation is not judged");
});

t.test("each template has what an installation fills in exactly once", async (t) => {
  const count = (text: string, what: RegExp) => [...text.matchAll(what)].length;
  for (const name of ["ExecStart", "Environment", "ReadWritePaths", "TimeoutStopSec"])
    t.equal(count(UNIT, new RegExp(`^${name}=`, "gm")), 1, name);
  for (const line of ["# begin namespaces", "# end namespaces"])
    t.equal(count(UNIT, new RegExp(`^${line}$`, "gm")), 1, line);
  for (const key of ["ProgramArguments", "PATH", "ExitTimeOut", "StandardOutPath", "StandardErrorPath"])
    t.equal(count(PLIST, new RegExp(`<key>${key}</key>\\s*<(?:string|array|integer)>`, "g")), 1, key);
});

t.test("a property list contains what it starts, and is read back", async (t) => {
  for (const spec of [SPEC, ODD_SPEC]) {
    const expected = installed({ ...spec, namespaces: false }, spec.logFile);
    t.same(readPlist(renderPlist(PLIST, spec)), expected);
  }
  t.equal(readPlist(PLIST.replace("keybearer agent 1", "agent")), null);
  t.equal(readPlist(renderPlist(PLIST, SPEC).replace("<string>run</string>", "")), null);
  t.equal(readPlist(""), null);
});

const NO_PLISTUTIL =
  spawnSync("plistutil", ["--version"]).error !== undefined && "there is no plistutil here (libplist-utils)";

t.test("plistutil reads the property list, odd paths included", { skip: NO_PLISTUTIL }, async (t) => {
  const home = await newHome(t);
  for (const [name, text] of Object.entries({
    template: PLIST,
    plain: renderPlist(PLIST, SPEC),
    odd: renderPlist(PLIST, { ...ODD_SPEC, environment: { PATH: ODD, XDG_STATE_HOME: ODD } }),
  })) {
    const xml = join(home, `${name}.plist`);
    const binary = join(home, `${name}.bin`);
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

t.test("the service finds the files that the command line finds, and gets no secret", async (t) => {
  const env = {
    HOME: "/home/ann",
    XDG_STATE_HOME: "/data/state",
    XDG_CONFIG_HOME: "relative",
    XDG_RUNTIME_DIR: "/run/user/1000",
    PATH: "/home/ann/bin:.:/usr/bin:/tmp/fnm_multishells/1_2/bin",
    OPENAI_API_KEY: "sk-canary",
  };
  const paths = findPaths({ env, home: "/home/ann" });
  const spec = createSpec({ node: "/n", main: "/m", paths, env, namespaces: true, drainMs: 10_000 });
  const { PATH, ...variables } = spec.environment;
  t.same(variables, { XDG_STATE_HOME: "/data/state", XDG_RUNTIME_DIR: "/run/user/1000" });
  t.same(spec.writable, ["/data/state/keybearer", "/run/user/1000/keybearer", "/home/ann/.config/keybearer"]);
  t.equal(spec.config, "/home/ann/.config/keybearer/config.yaml");
  t.match(PATH, /^\/usr\/local\/bin:\/usr\/bin:.*:\/home\/ann\/\.local\/bin:\/home\/ann\/bin$/);
  const elsewhere = createSpec({
    node: "/n",
    main: "/m",
    paths,
    env: { ...env, PATH: "/x" },
    namespaces: true,
    drainMs: 10_000,
  });
  t.same(elsewhere, spec, "from another terminal it is the same service");
  t.notMatch(renderUnit(UNIT, spec) + renderPlist(PLIST, spec), /canary/);

  const own = { ...env, KEYBEARER_HOME: "/srv/kb" };
  const ownPaths = findPaths({ env: own, home: "/home/ann" });
  const owned = createSpec({
    node: "/n",
    main: "/m",
    env: own,
    namespaces: true,
    drainMs: 10_000,
    paths: ownPaths,
  });
  t.same(owned.environment, { PATH, KEYBEARER_HOME: "/srv/kb" }, "KEYBEARER_HOME overrides the others");
  t.same(owned.writable, ["/srv/kb/state", "/srv/kb/run", "/srv/kb"]);
  const homeOf = (service: InstalledService | null) => service?.environment.KEYBEARER_HOME;
  t.equal(homeOf(readUnit(renderUnit(UNIT, owned), SPECIFIERS)), "/srv/kb");
  t.equal(homeOf(readPlist(renderPlist(PLIST, owned))), "/srv/kb");

  const named = (config: string) => {
    const namedPaths = findPaths({ env, home: "/home/ann", config });
    return createSpec({ node: "/n", main: "/m", env, namespaces: true, drainMs: 10_000, paths: namedPaths })
      .writable;
  };
  t.same(named("/home/ann/kb.yaml"), ["/data/state/keybearer", "/run/user/1000/keybearer"], "not the home");
  t.same(named("/home/ann/.config/keybearer/other.yaml"), spec.writable, "one that is keybearer's own is");
});

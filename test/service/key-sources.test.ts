import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import t, { type Test } from "tap";
import { createContext } from "../../src/cli/service/context.ts";
import { specFor } from "../../src/cli/service/install.ts";
import { checkSources, serviceEnvironment, startedNotes } from "../../src/cli/service/key-sources.ts";
import { loadConfig } from "../../src/config/load.ts";
import { systemClock } from "../../src/core/clock.ts";
import { findPaths } from "../../src/core/paths.ts";
import { Trust } from "../../src/keys/trust.ts";
import { readEnvironment } from "../../src/service/systemd.ts";
import { newHome, saveConfig } from "../doubles/command.ts";
import { LaunchctlRecorder } from "../doubles/launchctl-recorder.ts";

const CANARY = "sk-canary-sources-0123456789abcdef";

/** As on a Mac, where launchctl is asked for each variable. */
async function tried(
  t: Test,
  home: string,
  tools: string,
  more: { shell?: NodeJS.ProcessEnv; set?: string[] } = {},
) {
  await saveConfig(home, `gateway: http://127.0.0.1:9/v1\ntools:\n${tools}`);
  const launchctl = new LaunchctlRecorder(501);
  for (const name of more.set ?? []) launchctl.variables.set(name, CANARY);
  const env = { HOME: home, KEYBEARER_HOME: home, PATH: "/usr/bin:/bin", ...more.shell };
  const context = await createContext({ env, home, platform: "darwin", run: launchctl.run });
  const { manager } = context;
  const { config, problems } = await loadConfig(context.paths.config, { home, strict: true });
  if (config === null || manager === null) throw new Error(JSON.stringify(problems));
  const { spec } = await specFor(context, config, manager, { kind: "none" });
  const found = await checkSources(context, manager, config, spec, false);
  t.notMatch(JSON.stringify(found), CANARY, "no key is shown");
  return found;
}

t.test(
  "each source is read as the service will read it, and what the service will not have is reported",
  async (t) => {
    const home = await newHome(t);
    await writeFile(join(home, "key"), `${CANARY}1\n`, { mode: 0o600 });
    const tools = `  shell: { key: env:SHELL_KEY }
  given: { key: env:GIVEN_KEY }
  nowhere: { key: env:NOWHERE_KEY }
  file: { key: "file:${home}/key" }
  nofile: { key: "file:${home}/none" }
  literal: { key: ${CANARY}2 }
  path: { key: { command: [/bin/sh, -c, 'test -z "$SHELL_ONLY" && test -n "$PATH" && echo ${CANARY}3'] } }
  session: { key: { command: [/bin/sh, -c, 'test -n "$SHELL_ONLY" || { echo locked >&2; exit 1; }'] } }
  idle: { key: env:OFF_KEY, enabled: false }
`;
    const shell = { SHELL_KEY: CANARY, SHELL_ONLY: "1", GIVEN_KEY: CANARY };
    const { notes, none } = await tried(t, home, tools, { shell, set: ["GIVEN_KEY"] });
    t.equal(none, false);
    t.match(notes, [
      {
        whose: "tool shell",
        missing: true,
        what: /is set in this shell, which a service does not see/,
        next: "printenv SHELL_KEY | keybearer tools rotate shell --key-stdin",
      },
      { whose: "tool given", missing: false, what: /set in launchd now, and may be gone/ },
      {
        whose: "tool nowhere",
        missing: true,
        what: /is not set for a service/,
        next: "keybearer tools rotate nowhere",
      },
      { whose: "tool nofile", missing: true, what: /there is no file/ },
      {
        whose: "tool session",
        missing: true,
        what: /no terminal, no window, its PATH\): .*exit code 1: locked/,
      },
    ]);
    t.equal(notes.length, 5, "nothing is wrong with the others");
    t.notOk(existsSync(join(home, "state", "trust.json")), "the first start pins, not the check");
  },
);

t.test("a variable with the shared store's password that a service does not see is reported", async (t) => {
  const config = `  codex: { key: ${CANARY}1 }
shared: { store: { url: redis://localhost, password: env:STORE_PASSWORD } }
`;
  const { notes, none } = await tried(t, await newHome(t), config);
  t.match(notes, [
    {
      whose: "the shared store",
      what: /is not set for a service/,
      next: /set shared\.store\.password to file:/,
      missing: true,
    },
  ]);
  t.equal(none, false);
  t.same((await tried(t, await newHome(t), config, { set: ["STORE_PASSWORD"] })).notes, []);
});

t.test("a command that waits for trust is not run", async (t) => {
  const home = await newHome(t);
  const paths = findPaths({ env: { KEYBEARER_HOME: home }, home });
  const trust = new Trust({ file: paths.trust, clock: systemClock, ranBefore: () => false });
  await trust.load();
  await trust.settle();
  const mark = join(home, "was-run");
  const { notes, none } = await tried(t, home, `  codex: { key: { command: [/usr/bin/touch, ${mark}] } }\n`);
  t.match(notes, [
    {
      whose: "tool codex",
      what: /waits for your confirmation/,
      next: "keybearer trust codex",
      missing: true,
    },
  ]);
  t.equal(none, true);
  t.notOk(existsSync(mark));
});

const noBus = { skip: process.platform === "linux" ? false : "here the keychain needs no bus" };

t.test("a keychain that a service cannot reach is reported", noBus, async (t) => {
  const { notes, none } = await tried(t, await newHome(t), "  codex: {}\n");
  const next = "keybearer tools rotate codex";
  t.match(notes, [{ whose: "tool codex", what: /no session bus.*finds it locked/, next }]);
  t.equal(none, true);
});

t.test("a service has its manager's variables, the unit's PATH, and none that the unit unsets", async (t) => {
  const spec = {
    node: "/n",
    main: "/m",
    config: "/c",
    environment: { PATH: "/unit/bin", KEYBEARER_HOME: "/k" },
    writable: [],
    namespaces: true,
    logFile: "/l",
    stopSeconds: 20,
  };
  const given = readEnvironment(
    "HOME=/home/me\nPATH=/manager/bin\nNODE_OPTIONS=--inspect\nNODE_EXTRA_CA_CERTS=/ca.pem\nODD=$'a b\\'c\\n\\x41'\nEMPTY=\n",
  );
  const shell = { HOME: "/elsewhere", SECRET: "no", USER: "me", SSH_AUTH_SOCK: "/agent" };
  const seen = (kind: "systemd" | "launchd") =>
    serviceEnvironment(spec, kind, given, ["NODE_OPTIONS"], shell);
  const same = { PATH: "/unit/bin", KEYBEARER_HOME: "/k", HOME: "/home/me" };
  const both = { ...same, NODE_EXTRA_CA_CERTS: "/ca.pem", ODD: "a b'c\nA", EMPTY: "" };
  t.same(seen("systemd"), both, "systemd gives what it lists");
  t.same(seen("launchd"), { ...both, USER: "me", SSH_AUTH_SOCK: "/agent" });
});

t.test("what a started service could not read is reported with what helps", async (t) => {
  const read = "touch: cannot touch '/home/me/.cache/vault/t': Read-only file system";
  const tool = (name: string, why: string, state = "key-unavailable") => ({
    name,
    state,
    why,
    next: "usual",
  });
  const tools = [
    tool("a", read),
    tool("b", "locked"),
    tool("c", "", "ready"),
    tool("d", "new", "needs-trust"),
  ];
  t.match(startedNotes(tools, "systemd"), [
    {
      whose: "tool a",
      what: read,
      next: /edit keybearer, .* ReadWritePaths=\/home\/me\/\.cache\/vault, then/,
    },
    { whose: "tool b", what: "locked", next: "usual" },
    { whose: "tool d", what: "new", next: "usual" },
  ]);
  t.equal(startedNotes(tools, "launchd")[0]?.next, "usual", "launchd restricts nothing");
});

import t, { type Test } from "tap";
import { createContext } from "../../src/cli/service/context.ts";
import { specFor } from "../../src/cli/service/install.ts";
import { restrictionNotes } from "../../src/cli/service/status.ts";
import { checkVariables, serviceEnvironment } from "../../src/cli/service/variables.ts";
import { loadConfig } from "../../src/config/load.ts";
import { readEnvironment } from "../../src/service/systemd.ts";
import { newHome, saveConfig } from "../doubles/command.ts";
import { LaunchctlRecorder } from "../doubles/launchctl-recorder.ts";

const CANARY = "sk-canary-sources-0123456789abcdef";

/** As on a Mac, where launchctl is asked for each variable. */
async function checked(t: Test, tools: string, more: { shell?: NodeJS.ProcessEnv; set?: string[] } = {}) {
  const home = await newHome(t);
  await saveConfig(home, `gateway: http://127.0.0.1:9/v1\ntools:\n${tools}`);
  const launchctl = new LaunchctlRecorder(501);
  for (const name of more.set ?? []) launchctl.variables.set(name, CANARY);
  const env = { HOME: home, KEYBEARER_HOME: home, PATH: "/usr/bin:/bin", ...more.shell };
  const context = await createContext({ env, home, platform: "darwin", run: launchctl.run });
  const { manager } = context;
  const { config, problems } = await loadConfig(context.paths.config, { home, strict: true });
  if (config === null || manager === null) throw new Error(JSON.stringify(problems));
  const { spec } = specFor(context, config, manager.kind);
  const found = await checkVariables(context, manager, config, spec);
  t.notMatch(JSON.stringify(found), CANARY, "no key is shown");
  return found;
}

t.test("variables with keys that the service will not have are reported", async (t) => {
  const tools = `  shell: { key: env:SHELL_KEY }
  given: { key: env:GIVEN_KEY }
  nowhere: { key: env:NOWHERE_KEY }
  literal: { key: ${CANARY}2 }
  idle: { key: env:OFF_KEY, enabled: false }
`;
  const shell = { SHELL_KEY: CANARY, GIVEN_KEY: CANARY };
  t.same(await checked(t, tools, { shell, set: ["GIVEN_KEY"] }), {
    notes: [
      {
        whose: "tool shell",
        problem: "env:SHELL_KEY is set in this shell, which a service does not see",
        next: "printenv SHELL_KEY | keybearer tools rotate shell --key-stdin",
      },
      {
        whose: "tool given",
        problem: "env:GIVEN_KEY is set in launchd now, and may be gone after the next login",
        next: "keybearer tools rotate given",
      },
      {
        whose: "tool nowhere",
        problem: "env:NOWHERE_KEY is not set for a service",
        next: "keybearer tools rotate nowhere",
      },
    ],
    none: false,
  });
  const none = "  a: { key: env:A_KEY }\n  b: { key: env:B_KEY }\n";
  t.equal((await checked(t, none)).none, true);
  t.equal((await checked(t, none, { set: ["B_KEY"] })).none, false);
});

t.test("a variable with the shared store's password that a service does not see is reported", async (t) => {
  const config = `  codex: { key: ${CANARY}1 }
shared: { store: { url: redis://localhost, password: env:STORE_PASSWORD } }
`;
  const { notes, none } = await checked(t, config);
  t.match(notes, [
    {
      whose: "the shared store",
      problem: /is not set for a service/,
      next: /set shared\.store\.password to file:/,
    },
  ]);
  t.equal(none, false);
  t.same((await checked(t, config, { set: ["STORE_PASSWORD"] })).notes, []);
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

t.test(
  "a command that fails because of the unit's restrictions is reported with what lifts them",
  async (t) => {
    const read = "touch: cannot touch '/home/me/.cache/vault/t': Read-only file system";
    const tool = (name: string, why: string | null, state: "key-unavailable" | "needs-trust" | "active") => ({
      name,
      state,
      why,
    });
    const notes = restrictionNotes([
      tool("a", read, "key-unavailable"),
      tool("b", "locked", "key-unavailable"),
      tool("c", null, "active"),
      tool("d", "ssh: no authentication agent", "key-unavailable"),
      tool("e", read, "needs-trust"),
    ]);
    t.match(notes, [
      {
        what: `tool a: ${read}`,
        next: /edit keybearer, .* ReadWritePaths=\/home\/me\/\.cache\/vault, then/,
      },
      { what: /tool d/, next: /import-environment SSH_AUTH_SOCK/ },
    ]);
    t.equal(notes.length, 2);
  },
);

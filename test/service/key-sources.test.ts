import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import t, { type Test } from "tap";
import { createScene } from "../../src/cli/service/scene.ts";
import { specHere } from "../../src/cli/service/spec-here.ts";
import { trySources } from "../../src/cli/service/try-sources.ts";
import { systemClock } from "../../src/clock.ts";
import { loadConfig } from "../../src/config/load.ts";
import { createTrust } from "../../src/keys/trust.ts";
import { findPlaces } from "../../src/places.ts";
import { serviceEnvironment } from "../../src/service/key-sources.ts";
import { readEnvironment } from "../../src/service/systemd-answers.ts";
import { newHome, saveConfig } from "../doubles/command.ts";
import { createLaunchctl } from "../doubles/launchctl-recorder.ts";

const CANARY = "sk-canary-sources-0123456789abcdef";

/** As on a Mac, where a program must be asked for each variable. */
async function tried(
  t: Test,
  home: string,
  tools: string,
  more: { shell?: NodeJS.ProcessEnv; set?: string[] } = {},
) {
  await saveConfig(home, `gateway: http://127.0.0.1:9/v1\ntools:\n${tools}`);
  const launchctl = createLaunchctl(501);
  for (const name of more.set ?? []) launchctl.variables.set(name, CANARY);
  const env = { HOME: home, KEYBEARER_HOME: home, PATH: "/usr/bin:/bin", ...more.shell };
  const scene = await createScene({ env, home, platform: "darwin", run: launchctl.run });
  const { config, problems } = await loadConfig(scene.places.config, { home, strict: true });
  if (config === null || scene.manager === null) throw new Error(JSON.stringify(problems));
  const { spec } = await specHere(scene, config, scene.manager);
  const found = await trySources(scene, scene.manager, { config, spec, running: false });
  t.notMatch(JSON.stringify(found), CANARY, "no key is shown");
  return found;
}

t.test("each source is tried as the service will read it, and what it will not have is told", async (t) => {
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
      ...{ whose: "tool shell", missing: true, what: /is set in this shell, which a service does not see/ },
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
  t.equal(notes.length, 5, "of the others there is nothing to say");
  t.notOk(existsSync(join(home, "state", "trust.json")), "the first start pins, not the try");
});

t.test("a command that waits for trust is not run", async (t) => {
  const home = await newHome(t);
  const places = findPlaces({ env: { KEYBEARER_HOME: home }, home });
  const trust = createTrust({ file: places.trust, clock: systemClock });
  await trust.load();
  await trust.settle();
  const mark = join(home, "was-run");
  const { notes, none } = await tried(t, home, `  codex: { key: { command: [/usr/bin/touch, ${mark}] } }\n`);
  t.match(notes, [
    { whose: "tool codex", what: /waits for your yes/, next: "keybearer trust codex", missing: true },
  ]);
  t.equal(none, true);
  t.notOk(existsSync(mark));
});

const noBus = { skip: process.platform === "linux" ? false : "here the keychain needs no bus" };

t.test("a keychain that cannot be reached from a service is told", noBus, async (t) => {
  const { notes, none } = await tried(t, await newHome(t), "  codex: {}\n");
  const next = "keybearer tools rotate codex";
  t.match(notes, [{ whose: "tool codex", what: /no session bus.*finds it locked/, next }]);
  t.equal(none, true);
});

t.test(
  "a service has its manager's variables, the unit's PATH, and none that turn node around",
  async (t) => {
    const spec = {
      ...{
        node: "/n",
        main: "/m",
        config: "/c",
        home: "/k",
        environment: {},
        writable: [],
        namespaces: true,
      },
      ...{ path: "/unit/bin", logFile: "/l" },
    };
    const given = readEnvironment(
      "HOME=/home/me\nPATH=/manager/bin\nNODE_OPTIONS=--inspect\nNODE_EXTRA_CA_CERTS=/ca.pem\nODD=$'a b\\'c\\n\\x41'\nEMPTY=\n",
    );
    t.same(serviceEnvironment(spec, given, { HOME: "/elsewhere", SECRET: "no", USER: "me" }), {
      ...{ HOME: "/home/me", USER: "me", PATH: "/unit/bin", KEYBEARER_HOME: "/k" },
      ...{ NODE_EXTRA_CA_CERTS: "/ca.pem", ODD: "a b'c\nA", EMPTY: "" },
    });
  },
);

import t, { type Test } from "tap";
import { CANARY, call, NODE, prepare } from "../doubles/system-journey.ts";
import type { SystemManager } from "../doubles/system-manager.ts";
import { until } from "../doubles/until.ts";

/*
 * Every step of the move to the system service and of the way back can be the last one. KEYBEARER_KILLS=1-20 ends them before
 * each of the first twenty, which takes minutes. Otherwise three of each are taken, the same ones every time.
 */
const [FIRST = 0, LAST = 0] = (process.env.KEYBEARER_KILLS ?? "").split("-").map(Number);
const FEW = 3;

/** A copy of the program that ends before a step. */
const FOLDER = "/srv/keybearer";
const MAIN = `${FOLDER}/dist/cli/main.js`;
const KILLER = "/opt/keybearer/build/test/doubles/kill-at-step.js";

/** What the finished command must have left, and where. */
const AFTER = {
  install: {
    rest: "find /home/alice/.config /home/alice/.local -type f; ls -d /var/lib/keybearer.new; ls /etc/keybearer | grep -v '^config.yaml$'",
    folders: "/var/lib/keybearer",
    key: "/var/lib/keybearer/keys/codex",
  },
  uninstall: {
    rest: "ls -d /etc/keybearer /var/lib/keybearer* /etc/systemd/*/keybearer* /etc/sysusers.d/keybearer.conf; id -u keybearer",
    folders: "/home/alice/.config/keybearer /home/alice/.local/state/keybearer",
    key: "/home/alice/.config/keybearer/keys/codex",
  },
};

async function copyProgram(system: SystemManager): Promise<void> {
  const made = await system.sh(
    "root",
    `mkdir -p ${FOLDER} && cd /opt/keybearer && cp -r dist service package.json ${FOLDER} &&
    ln -s /opt/keybearer/node_modules ${FOLDER}/node_modules &&
    sed -i '1a import "${KILLER}";' ${MAIN} && mkdir -m 777 /srv/kill`,
  );
  if (made.code !== 0) throw new Error(made.stderr);
}

type Verb = "install" | "uninstall";
type Whom = "one" | "group";

function commandOf(verb: Verb): string[] {
  return [NODE, MAIN, "service", verb, "--system", "--owner", "alice"];
}

/** Runs the command, which ends before a step. The steps that it reached. */
async function run(system: SystemManager, verb: Verb, at: number, whom: Whom): Promise<string[]> {
  await system.sh(
    "root",
    `rm -f /srv/kill/*; umask 0; : > /srv/kill/steps; echo ${at} ${whom} > /srv/kill/at`,
  );
  // In a group of its own, because the whole group is ended.
  await system.as("root", ["setsid", "--wait", ...commandOf(verb)]);
  const { stdout } = await system.sh("root", "cat /srv/kill/steps; rm /srv/kill/at");
  return stdout.trim().split("\n");
}

async function isThere(system: SystemManager, path: string): Promise<boolean> {
  return (await system.sh("root", `test -e ${path}`)).code === 0;
}

/** Her own keybearer and the system service: which of them starts, and whether it serves if it does. */
async function tryBoth(system: SystemManager) {
  const isOwn = await isThere(system, "/home/alice/.config/keybearer/config.yaml");
  await system.sh("root", "systemctl stop keybearer.service keybearer-root.socket 'keybearer-*.socket'");
  let own = "none";
  if (isOwn) {
    await system.as("alice", [NODE, MAIN, "start", "--user"]);
    own = await call(system, "alice");
    await system.as("alice", [NODE, MAIN, "stop", "--user"]);
  }
  await system.sh("root", "systemctl reset-failed; systemctl start keybearer.service");
  const { stdout } = await system.sh("root", "systemctl is-active keybearer.service");
  const isSystem = stdout.trim() === "active";
  const ofSystem = isSystem ? await call(system, "alice") : "none";
  return { own: { starts: isOwn, answer: own }, system: { starts: isSystem, answer: ofSystem } };
}

async function checkKilled(t: Test, system: SystemManager, what: string): Promise<void> {
  const { own, system: service } = await tryBoth(system);
  t.ok(own.starts || service.starts, `${what}: one of the two starts`);
  for (const [name, { starts, answer }] of Object.entries({ own, service }))
    if (starts) t.equal(answer, "200", `${what}: ${name} serves, so it is no half`);
}

interface Finished {
  readonly verb: Verb;
  readonly what: string;
  /** In the usage log before all of it. */
  readonly record: string;
}

/** Types the command again, and looks at what is left. */
async function checkFinished(
  t: Test,
  system: SystemManager,
  { verb, what, record }: Finished,
): Promise<void> {
  const { code, stdout, stderr } = await system.as("root", commandOf(verb));
  t.equal(code, 0, `${what}: the next run finishes ${stdout}${stderr}`);
  const { rest, folders, key } = AFTER[verb];
  t.equal((await system.sh("root", rest)).stdout, "", `${what}: of the other nothing is left`);
  const keys = await system.sh("root", `grep -rl ${CANARY} ${folders}`);
  t.equal(keys.stdout.trim(), key, `${what}: the key is there once`);
  const records = await system.sh("root", `grep -rl ${record} ${folders}`);
  t.not(records.stdout, "", `${what}: the usage log has its first record`);
  if (verb === "uninstall") await system.as("alice", [NODE, MAIN, "start", "--user"]);
  t.equal(await call(system, "alice"), "200", `${what}: it serves`);
}

t.test(
  "whenever install or uninstall is killed, one keybearer works, and the next run finishes",
  async (t) => {
    const system = await prepare(t);
    if (system === null) return;
    await copyProgram(system);
    t.equal(await call(system, "alice"), "200");
    let record = "";
    await until("the first request is recorded", async () => {
      const { stdout } = await system.sh("alice", "cat ~/.local/state/keybearer/usage/*.jsonl");
      record = /"id":"([^"]+)"/.exec(stdout)?.[1] ?? "";
      return record !== "";
    });
    const steps = { install: 0, uninstall: 0 };
    for (const verb of ["install", "uninstall"] as const) {
      steps[verb] = (await run(system, verb, 0, "one")).length;
      t.ok(steps[verb] > 20, `${verb} has ${steps[verb]} steps`);
      await checkFinished(t, system, { verb, what: verb, record });
    }
    for (const { at, whom } of kills(steps))
      for (const verb of ["install", "uninstall"] as const) {
        const what = `${whom} ended before ${at[verb]}, ${(await run(system, verb, at[verb], whom)).at(-1)}`;
        await checkKilled(t, system, what);
        await checkFinished(t, system, { verb, what, record });
        if (LAST > 0) t.comment(what);
      }
  },
);

interface Kill {
  readonly at: Readonly<Record<Verb, number>>;
  readonly whom: Whom;
}

/** In turn the command alone, whose children go on, and everything, as when the power fails. */
function* kills(steps: Readonly<Record<Verb, number>>): Generator<Kill> {
  for (let at = FIRST; at > 0 && at <= LAST; at += 1)
    for (const whom of ["one", "group"] as const) yield { at: { install: at, uninstall: at }, whom };
  for (let part = 1; LAST === 0 && part <= FEW; part += 1) {
    const at = (verb: Verb) => Math.floor((steps[verb] * part) / FEW);
    yield {
      at: { install: at("install"), uninstall: at("uninstall") },
      whom: part % 2 === 0 ? "one" : "group",
    };
  }
}

import { readFileSync } from "node:fs";
import { join, relative } from "node:path";
import t from "tap";
import { journalFiles } from "../../src/usage/journal/files.ts";
import type { Fault } from "../doubles/consoles/console-double.ts";
import { EVERY_CONSOLE, startConsole } from "../doubles/consoles/start-console.ts";
import { startSub2api } from "../doubles/consoles/sub2api.ts";
import { oneOf } from "../doubles/effort.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { consoleKey, HOUR, MINUTE, type MirrorJourney, startBeside } from "../doubles/mirror-journey.ts";
import { filesBelow, scan, textsOf } from "../doubles/secret-scan.ts";

const FAULTS: readonly Fault[] = ["html", "401", "429", "shape", "data", "redirect", "cut"];

/** All answers, logs and files, except the files that hold secrets. */
async function readable(journey: MirrorJourney, except: readonly string[]): Promise<Record<string, string>> {
  const files = filesBelow(journey.home).filter((file) => !except.includes(relative(journey.home, file)));
  const asked = await Promise.all(
    ["/status", "/mirror", "/keys", "/mirrordiff"].map(async (path) => [
      path,
      JSON.stringify(await journey.control("GET", path)),
    ]),
  );
  const rows = (await journey.diff()).flatMap(({ row }) => row?.identity ?? []);
  const shown = await Promise.all(
    rows.slice(0, 5).map((what) => journey.control("POST", "/compared", { what })),
  );
  return {
    ...Object.fromEntries(asked),
    "/compared": JSON.stringify(shown),
    log: journey.logText(),
    ...textsOf(files),
  };
}

for (const name of oneOf(EVERY_CONSOLE, "new-api v1.0.0-rc.25")) {
  t.test(`${name}: no key and no secret of the console is in an answer, a log or a file`, async (t) => {
    const clock = heldClock();
    const double = await startConsole(t, name, { now: clock.now });
    const journey = await startBeside(t, double, clock, { tools: { codex: "", scripts: "" } });
    const stranger = consoleKey();
    double.addKey({ name: `key ${stranger}`, key: stranger });
    await journey.idle();
    clock.pass(MINUTE);
    await journey.ask();
    await journey.ask({}, { tool: "scripts" });
    journey.elsewhere({ model: journey.codex.key });
    journey.elsewhere({ model: stranger });
    double.bill({ key: stranger, model: "m", stream: false, input: 1, output: 1, dollars: 1 });
    clock.pass(MINUTE);
    await journey.sync();
    t.ok((await journey.keys()).keys.length >= (name === "one-api" ? 0 : 3));
    for (const fault of FAULTS) {
      double.fault = fault;
      clock.pass(HOUR);
      await journey.sync();
    }
    double.fault = null;
    clock.pass(25 * HOUR);
    t.equal((await journey.sync()).state, "ok");
    const { password, accessToken } = double.login;
    const secrets = {
      codex: journey.codex.key,
      scripts: journey.caller("scripts").key,
      stranger,
      password,
      accessToken,
    };
    const state = join(journey.home, "state");
    // Listed first: a new day's file may be added at any second.
    const files = journalFiles(join(state, "usage"));
    const paths = await readable(journey, ["config.yaml"]);
    t.ok(files.length > 0);
    for (const { path } of files) t.ok(paths[path], `${path} is scanned`);
    for (const name of ["index.db", "mirror.db"]) t.ok(paths[join(state, name)], `${name} is scanned`);
    t.strictSame(scan(paths, secrets), []);
    t.strictSame(
      double.asked.filter(({ path }) => Object.values(secrets).some((one) => path.includes(one))),
      [],
    );
    t.strictSame(double.thief.seen, []);
  });
}

t.test("the tokens of a login are in one file only", async (t) => {
  const clock = heldClock();
  const double = await startSub2api(t, { now: clock.now, secondFactor: true });
  const { email, password, code } = double.login;
  const journey = await startBeside(t, double, clock, {
    console: ["kind: sub2api", `url: ${double.url}`, `login: { email: ${email} }`],
  });
  await journey.idle();
  await journey.control("POST", "/login/main", { email, password });
  await journey.control("POST", "/login/main", { code });
  t.equal((await journey.idle()).state, "ok");
  const tokens = () =>
    [...readFileSync(journey.paths.consoles, "utf8").matchAll(/rt_[\w-]{16,}|"[\w-]{32,}"/g)].map(([one]) =>
      one.replaceAll('"', ""),
    );
  const first = tokens();
  t.ok(first.length >= 1, "there is a token to look for");
  clock.pass(2 * HOUR);
  await journey.sync();
  const secrets = {
    password,
    ...Object.fromEntries([...first, ...tokens()].map((one, n) => [`token ${n}`, one])),
  };
  const paths = await readable(journey, ["config.yaml", relative(journey.home, journey.paths.consoles)]);
  t.strictSame(scan(paths, secrets), []);
  t.notOk(readFileSync(journey.paths.consoles, "utf8").includes(password));
});

import { chmod, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import t from "tap";
import { command, newHome } from "../doubles/command.ts";
import { startUnderTest } from "../doubles/daemon-under-test.ts";
import { say, trade } from "../doubles/dashboard-visit.ts";
import { until } from "../doubles/until.ts";

t.test("keybearer open without a daemon says what to type", async (t) => {
  const ended = await command(t, await newHome(t), ["open"]);
  t.equal(ended.code, 1);
  t.match(ended.stderr, /keybearer is not running → keybearer run/);
});

t.test("keybearer open gives the browser an address that works once, or prints it", async (t) => {
  const { home, logText } = await startUnderTest(
    t,
    "dashboard: { listen: localhost:0 }\ngateway: http://127.0.0.1:9/v1\ntools: { codex: {} }\n",
  );
  const printed = await command(t, home, ["open", "--print"]);
  const address = new URL(printed.stdout.trim());
  t.match(address.hash, /^#code=kd_[\w-]{43}$/);
  const code = address.hash.slice("#code=".length);
  t.equal((await say(address.origin, "/")).status, 200);
  t.equal((await trade(address.origin, code)).status, 200);
  t.equal((await trade(address.origin, code)).status, 401);

  const json = JSON.parse((await command(t, home, ["open", "--json"])).stdout);
  t.match(json, { url: /^http:\/\/localhost:\d+\/#code=kd_/, expires_in: 60 });
  t.equal((await command(t, home, ["open", "--json", "--print"])).code, 2);

  const bare = await command(t, home, ["open"], { env: { DISPLAY: undefined, WAYLAND_DISPLAY: undefined } });
  t.match(
    bare.stdout,
    /no browser could be started here.*\n.*works once:\n\nhttp:\/\/localhost:\d+\/#code=kd_/,
  );

  const bin = join(home, "bin");
  await mkdir(bin);
  await writeFile(join(bin, "xdg-open"), `#!/bin/sh\nprintf '%s' "$1" > "${home}/opened"\n`);
  await chmod(join(bin, "xdg-open"), 0o755);
  const env = { DISPLAY: ":0", PATH: `${bin}:${process.env.PATH}` };
  const shown = await command(t, home, ["open"], { env });
  t.match(
    shown.stdout,
    /^the dashboard opens in your browser: http:\/\/localhost:\d+\/\n$/,
    "without the code",
  );
  await until("the browser has it", () => readFile(join(home, "opened"), "utf8").then((text) => text !== ""));
  t.match(await readFile(join(home, "opened"), "utf8"), /^http:\/\/localhost:\d+\/#code=kd_[\w-]{43}$/);
  t.notMatch(logText(), /kd_/, "no code is in the log");
});

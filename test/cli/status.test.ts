import t, { type Test } from "tap";
import { formatStatus } from "../../src/cli/status.ts";
import type { Status } from "../../src/control/status.ts";
import type { SharedStatus } from "../../src/shared/status.ts";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { freshToken, serveIn, startUnderTest } from "../doubles/daemon-under-test.ts";
import { get, startSandbox } from "../doubles/sandbox.ts";
import { CONNECTED, LAST_CONTACT, machine } from "../doubles/shared-status.ts";
import { until } from "../doubles/until.ts";

async function start(t: Test) {
  const sandbox = await startSandbox(t);
  const { id, key } = sandbox.createKey({ name: "status", group: "default" });
  const { token, hash } = freshToken();
  const home = await newHome(t);
  const config = `listen: localhost:0
gateways: { main: { base_url: "${sandbox.baseUrl}", groups: { coding: { multiplier: 1.5 } } } }
tools:
  codex: { key: ${key.reveal()}, token: "${hash}", group: coding }
  asleep: { key: env:ASLEEP_KEY, enabled: false }
  late: { key: env:LATE_KEY, expires: 2020-01-01 }
  keyless: { key: env:NOT_SET_HERE, token: "${freshToken().hash}" }
  fresh: { key: sk-fresh-0123456789abcdef }
`;
  await saveConfig(home, config);
  return { sandbox, keyId: id, key: key.reveal(), token, home, config };
}

const STATES = { codex: "active", asleep: "disabled", late: "expired", fresh: "no-token" };

function statesOf(tools: readonly { name: string; state: string }[]) {
  return Object.fromEntries(tools.map(({ name, state }) => [name, state]));
}

t.test("status without a daemon exits 1 and says what to type", async (t) => {
  const home = await newHome(t);
  for (const args of [["status"], ["status", "--json"]]) {
    const { code, stdout, stderr } = await command(t, home, args);
    t.same(
      { code, stdout, stderr },
      { code: 1, stdout: "", stderr: "keybearer is not running → keybearer run\n" },
    );
  }
});

t.test("tools lists the states without a daemon, in words and as JSON", async (t) => {
  const { home, key } = await start(t);
  const words = await command(t, home, ["tools"]);
  t.equal(words.code, 0);
  t.match(words.stdout, /^tool +state +gateway +key +tokens +last use\n/);
  t.match(words.stdout, /^codex +not-running +main\/coding /m);
  t.match(words.stdout, /fresh: no token yet → keybearer tools token fresh/);
  const json = await command(t, home, ["tools", "list", "--json"]);
  t.match(statesOf(JSON.parse(json.stdout)), { ...STATES, codex: "not-running" });
  t.notOk(`${words.stdout}${json.stdout}`.includes(key));
  await saveConfig(home, "tools: [");
  t.equal((await command(t, home, ["tools"])).code, 78, "a bad file is reported");
});

t.test("status shows version, pid, addresses, config, tools and gateways", async (t) => {
  const { home, key, token } = await start(t);
  const { pid } = process;
  const { port, url } = await serveIn(t, home);
  const before = Date.now();
  t.equal((await get(`${url}/v1/models`, token)).status, 200);
  const json = await command(t, home, ["status", "--json"]);
  const status = JSON.parse(json.stdout);
  t.match(status, {
    version: /^\d+\.\d+\.\d+/,
    pid,
    uptime_s: Number,
    sandbox: false,
    config: { path: `${home}/config.yaml`, revision: 1, loaded_at: Number },
    gateways: [{ name: "main", tools: 5, groups: ["coding"] }],
  });
  t.ok(status.listen.includes(`127.0.0.1:${port}`));
  t.match(statesOf(status.tools), { ...STATES, keyless: "key-unavailable" });
  const codex = status.tools.find(({ name }: { name: string }) => name === "codex");
  t.ok(codex.last_use >= before && codex.last_use <= Date.now());
  t.equal(codex.key, `…${key.slice(-4)}`);

  const words = await command(t, home, ["status"]);
  t.equal(words.code, 0);
  t.match(words.stdout, new RegExp(`pid ${pid}, up \\d+ s, on .*127\\.0\\.0\\.1:${port}`));
  t.match(words.stdout, /keyless: .*NOT_SET_HERE/);
  t.match(words.stdout, /^usage log: .*, \d+ KB$/m);
  for (const { stdout } of [json, words]) t.notOk(stdout.includes(key) || stdout.includes(token));
});

t.test("status shows a broken file while the last good one serves", async (t) => {
  const { home, token } = await start(t);
  const { url, logText } = await startUnderTest(t, null, { home });
  await saveConfig(home, "gateway: nonsense\n");
  await until("it is noticed", () => /keybearer keeps using the last valid version/.test(logText()));
  const words = await command(t, home, ["status"]);
  t.match(words.stdout, /config\.yaml has problems; keybearer keeps using the last valid version:/);
  t.match(words.stdout, `${home}/config.yaml:1:10: gateway: `);
  t.equal((await get(`${url}/v1/models`, token)).status, 200);
});

t.test("when the gateway refuses a key, status says since when, why, and what to do", async (t) => {
  const { home, token, key, keyId, sandbox } = await start(t);
  const { url } = await serveIn(t, home);
  sandbox.deleteKey(keyId);
  const before = Date.now();
  t.equal((await get(`${url}/v1/models`, token)).status, 401);
  t.equal((await get(`${url}/v1/models`, token)).status, 401);
  const status = JSON.parse((await command(t, home, ["status", "--json"])).stdout);
  const codex = status.tools.find(({ name }: { name: string }) => name === "codex");
  t.match(codex, { state: "key-refused", refused: { cause: "incomplete-key", status: 401, times: 2 } });
  t.ok(codex.refused.since >= before && codex.refused.since <= Date.now());
  const { stdout } = await command(t, home, ["status"]);
  t.match(stdout, /^codex +key-refused /m);
  t.ok(
    stdout.split("\n").every((line) => line.length <= 80 || line.includes(home)),
    "nothing but a path is wider than the screen",
  );
  t.match(
    stdout.replaceAll("\n    ", " "),
    /codex: key not valid \(401\); key ….{4}, for \d+ s now\n {2}it says: .+\n {2}→ .*create a new one; then: keybearer tools rotate codex/,
  );
  t.notOk(stdout.includes(key));
});

t.test("nothing that a gateway answers can control the terminal", async (t) => {
  const { home, token, keyId, sandbox } = await start(t);
  const { url } = await serveIn(t, home);
  const evil = "\u001b]0;owned\u0007\u001b[2J\u009b31m\rinvalid api key \u202eevil";
  sandbox.order(keyId, { kind: "refuse", status: 401, body: { error: { message: evil } } });
  await get(`${url}/v1/models`, token);
  const shown: string[] = [];
  await until("status shows it", async () => {
    const { stdout } = await command(t, home, ["status"]);
    shown.push(stdout);
    return stdout.includes("key-refused");
  });
  shown.push((await command(t, home, ["tools"])).stdout);
  t.match(shown.join(""), /invalid api key/, "its words are shown");
  const steering = /(?!\n)[\p{Cc}\p{Bidi_Control}]/u;
  t.notMatch(shown.join(""), steering, "without its escape sequences");
});

t.test("status has a line about the store that machines share", async (t) => {
  const { home } = await start(t);
  const { daemon } = await serveIn(t, home);
  const status = await daemon.status();
  t.equal(status.shared, null);
  t.notMatch(formatStatus(status, Date.now(), 200), /shared/);
  const { shared: _, ...fromOlderDaemon } = status;
  t.notMatch(formatStatus(fromOlderDaemon as Status, Date.now(), 200), /shared/);

  const now = LAST_CONTACT + 5000;
  const laptop = machine("laptop", { self: true });
  const shown = (change: Partial<SharedStatus>) =>
    formatStatus({ ...status, shared: { ...CONNECTED, ...change } }, now, 200);
  t.match(shown({}), /^shared: rediss:\/\/valkey\.example\.net:6379, connected, 2 machines$/m);
  t.match(shown({ machines: [laptop] }), /connected, 1 machine$/m);
  t.match(
    shown({ machines: [laptop, machine("desktop", { signature: "missing" })] }),
    /connected, 2 machines, without a valid signature: desktop → keybearer doctor$/m,
  );
  t.match(
    shown({ state: "unreachable", problem: "connection refused", next: "keybearer doctor" }),
    /^shared: .*:6379, unreachable: connection refused → keybearer doctor$/m,
  );

  const hold = { tool: "codex", limit: "requests", per: "day", amount: 12 } as const;
  const desktop = machine("desktop", { silent: true, last_contact: now - 7_200_000, holds: [hold] });
  const stopped = machine("laptop", { stopped: true });
  const all = shown({ settled: false, recovering: ["server"], machines: [laptop, desktop, stopped] });
  const lines = all.slice(all.indexOf("shared:")).split("\n");
  t.strictSame(lines.slice(1, 4), [
    "  laptop: this machine, holds nothing",
    "  desktop: last contact 2 h ago, holds codex requests/day 12",
    "  laptop: stopped 5 s ago, holds nothing",
  ]);
  t.match(
    all,
    /^ {2}2 machines have the name laptop.*\n {4}→ if it was set up again: keybearer tools lift codex/m,
  );
  t.match(
    all,
    /^ {2}the store .* reported: server\n {4}→ start .* keybearer tools lift codex --machine server$/m,
  );
  t.match(
    all,
    /^ {2}machine desktop has been silent .* → start .* keybearer tools lift codex --machine desktop$/m,
  );
});

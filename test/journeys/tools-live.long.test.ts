import { randomBytes } from "node:crypto";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import t, { type Test } from "tap";
import type { ToolStatus } from "../../src/control/tool-status.ts";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { type DaemonUnderTest, freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { atScreen } from "../doubles/screen.ts";
import { until } from "../doubles/until.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

// No day and no month may end during a test.
process.env.TZ = zoneAtNoon();

const key = `sk-canary-${randomBytes(12).toString("hex")}`;

/** A gateway that answers /v1/models at once, and everything else when the test releases it. */
async function startGateway(t: Test) {
  const held: ServerResponse[] = [];
  const server = createServer((req, res) => {
    req.resume();
    if (req.url === "/v1/models") return void res.end('{"object":"list","data":[]}');
    held.push(res);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return {
    baseUrl: `http://127.0.0.1:${port}/v1`,
    held,
    release: () => held.splice(0).forEach((res) => void res.end('{"choices":[]}')),
  };
}

async function start(t: Test, settings = "") {
  const gateway = await startGateway(t);
  const { token, hash } = freshToken();
  const text = `gateway: ${gateway.baseUrl}\ntools:\n  codex:\n    key: ${key}\n    token: ${hash}\n${settings}  other: { key: env:OTHER }\n`;
  const under = await startUnderTest(t, text);
  t.teardown(() => gateway.release());
  const call = (path: string, body: string | null) =>
    fetch(`${under.url}${path}`, {
      method: body === null ? "GET" : "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body,
    });
  const list = async () => {
    const answer = await call("/v1/models", null);
    await answer.text();
    return answer.headers.get("x-keybearer-refusal") ?? answer.status;
  };
  /** A call that has reached the gateway and waits there. Its status, or "cut". */
  const hang = async () => {
    const before = gateway.held.length;
    const ended = call("/v1/chat/completions", '{"model":"m","max_tokens":10}').then(
      async (answer) => {
        await answer.text();
        return answer.status;
      },
      () => "cut",
    );
    await until("it has reached the gateway", () => gateway.held.length > before);
    return { ended };
  };
  const tools = (...args: string[]) => command(t, under.home, ["tools", ...args]);
  return { gateway, under, list, hang, tools, text };
}

async function codexOf(under: DaemonUnderTest): Promise<ToolStatus | undefined> {
  return (await under.daemon.status()).tools.find(({ name }) => name === "codex");
}

t.test("without a tool keybearer serves, says what to do next, and takes the first tool", async (t) => {
  const gateway = await startGateway(t);
  const under = await startUnderTest(t, `gateway: ${gateway.baseUrl}\n`);
  const asked = await fetch(`${under.url}/v1/models`, {
    headers: { authorization: `Bearer ${freshToken().token}` },
  });
  t.equal(asked.headers.get("x-keybearer-refusal"), "token-unknown");
  await asked.text();
  const status = await command(t, under.home, ["status"]);
  t.equal(status.code, 0, status.stderr);
  t.match(status.stdout, /there is no tool yet.*\n.*keybearer tools add codex/);
  const added = await command(t, under.home, ["tools", "add", "codex", "--key-stdin"], { input: `${key}\n` });
  t.equal(added.code, 0, added.stderr);
  const [token = ""] = /kb_[\w-]+/.exec(added.stdout) ?? [];
  await until("the first tool is served", async () => {
    const answer = await fetch(`${under.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
    await answer.text();
    return answer.status === 200;
  });
  t.notMatch((await command(t, under.home, ["status"])).stdout, /there is no tool/);
  const removed = await command(t, under.home, ["tools", "remove", "codex", "--yes"]);
  t.equal(removed.code, 0, `${removed.stdout}${removed.stderr}`);
  t.equal((await command(t, under.home, ["check"])).code, 0, "the last tool can be removed");
});

t.test(
  "a disabled tool's next request is refused and the one in flight finishes, until it is enabled",
  async (t) => {
    const { gateway, under, list, hang, tools } = await start(t);
    const inFlight = await hang();
    t.equal((await codexOf(under))?.running, 1);
    const off = await tools("disable", "codex");
    t.strictSame({ code: off.code, stderr: off.stderr }, { code: 0, stderr: "" });
    t.equal(
      off.stdout,
      "codex is disabled\n1 request in flight: what was sent may finish, what waits for its gateway is refused → keybearer tools disable codex --now\n",
    );
    t.equal(await list(), "tool-disabled", "once it has said so, it holds");
    gateway.release();
    t.equal(await inFlight.ended, 200);
    const on = await tools("enable", "codex");
    t.strictSame({ code: on.code, stdout: on.stdout }, { code: 0, stdout: "codex is enabled\n" });
    t.equal(await list(), 200);
    t.notOk(under.logText().includes(key));
  },
);

t.test("disable --now cuts the requests in flight and prints how many", async (t) => {
  const { gateway, under, list, hang, tools } = await start(t);
  const calls = [await hang(), await hang()];
  const off = await tools("disable", "codex", "--now");
  t.strictSame(
    { code: off.code, stdout: off.stdout },
    { code: 0, stdout: "codex is disabled\n2 requests in flight were cut\n" },
  );
  for (const { ended } of calls) t.equal(await ended, "cut");
  t.equal(await list(), "tool-disabled");
  await until("nothing runs", async () => (await codexOf(under))?.running === 0);
  const again = await tools("disable", "codex", "--now");
  t.equal(again.stdout, "codex is disabled already\nno request was in flight\n");
  t.match(under.logText(), /requests in flight were cut/, "a cut is logged");
  gateway.release();
});

t.test("disable --now of a renamed tool cuts what was in flight before the rename", async (t) => {
  const { hang, tools } = await start(t);
  const call = await hang();
  t.equal((await tools("rename", "codex", "work")).code, 0);
  const off = await tools("disable", "work", "--now");
  t.equal(off.stdout, "work is disabled\n1 request in flight was cut\n");
  t.equal(await call.ended, "cut");
});

t.test("remove --now cuts what is in flight, and the token is unknown", async (t) => {
  const { under, list, hang, tools } = await start(t);
  const call = await hang();
  const gone = await tools("remove", "codex", "--yes", "--now");
  t.equal(gone.code, 0);
  t.match(gone.stdout, /codex is removed from .*\n.*is gone.*\n1 request in flight was cut\n$/);
  t.equal(await call.ended, "cut");
  t.equal(await list(), "token-unknown");
  t.equal(await codexOf(under), undefined);
  t.notOk(gone.stdout.includes(key) || under.logText().includes(key));
});

longTest(t, "a save that cannot take effect is reported, and nothing is cut", async (t) => {
  const { gateway, under, list, hang, tools, text } = await start(t);
  const call = await hang();
  await under.save(`${text}nonsense: 1\n`);
  const off = await tools("disable", "codex", "--now");
  t.equal(off.code, 1);
  t.match(
    off.stderr,
    /but .*config\.yaml has problems, so the running keybearer keeps using the last valid version\. nothing was cut → keybearer check/,
  );
  t.equal(await list(), 200, "it goes on serving");
  gateway.release();
  t.equal(await call.ended, 200);

  const elsewhere = await newHome(t);
  const file = await saveConfig(elsewhere, text);
  const other = await tools("disable", "codex", "--config", file);
  t.equal(other.code, 1);
  t.match(other.stderr, `but the running keybearer uses another file, ${under.paths.config}`);
});

t.test("enable says why the tool still cannot be used", async (t) => {
  const { tools } = await start(t, "    enabled: false\n    expires: 2020-01-01\n");
  const on = await tools("enable", "codex");
  t.equal(on.code, 0);
  t.match(
    on.stdout,
    /^codex is enabled\nbut expired at the end of 2020-01-01 → change tools\.codex\.expires in config\.yaml\n$/,
  );
});

t.test("the list shows what is used of each limit, what is held, and what runs", async (t) => {
  const { gateway, list, hang, tools } = await start(
    t,
    "    limits: { requests: [60/day, 100/month], concurrent: 4 }\n",
  );
  t.equal(await list(), 200);
  const call = await hang();
  const { stdout } = await tools();
  t.match(stdout, /^codex +active +main +….{4} .*1 .*\d+ s ago$/m);
  t.match(stdout, /^ {4}requests\/day +\[#\.{7}\] +2\/60 +resets /m);
  t.match(stdout, /^ {4}requests\/month +\[#\.{7}\] +2\/100 +resets /m);
  t.match(stdout, /^ {4}concurrent +\[##\.{6}\] +1\/4$/m);
  t.notOk(stdout.includes(key));
  const [codex] = JSON.parse((await tools("list", "--json")).stdout);
  t.match(codex, {
    name: "codex",
    running: 1,
    waiting: 0,
    limits: [
      { limit: "requests", per: "day", used: 2, most: 60 },
      {},
      { limit: "concurrent", used: 1, most: 4 },
    ],
  });
  gateway.release();
  t.equal(await call.ended, 200);
});

/** As a person at a terminal does it. */
async function giveMore(t: Test, home: string, requests: string) {
  const person = atScreen(t, home, ["tools", "lift", "codex", "--requests", requests]);
  await person.says(/\[y\/N\]/);
  person.type("y\r");
  return person.ended;
}

t.test("a limit is lifted once at a terminal, and the log has it", async (t) => {
  const { under, list, tools } = await start(t, "    limits: { requests: 2/month }\n");
  t.strictSame([await list(), await list(), await list()], [200, 200, "rate-limited"]);
  t.match(
    (await tools()).stdout,
    /^codex: requests\/month is used up: 2 of 2, resets .*\s+→ keybearer tools lift codex --requests$/m,
  );
  const lifted = await giveMore(t, under.home, "1");
  t.equal(lifted.code, 0);
  t.match(lifted.stdout, /codex has 1 request more\n {4}requests\/month +\S+ +2\/2\+1 +resets /);
  t.strictSame([await list(), await list()], [200, "rate-limited"]);
  t.ok(
    under.log().some(({ msg, peer }) => /extra allowance/.test(String(msg)) && /^pid \d+/.test(String(peer))),
  );
  const none = await atScreen(t, under.home, ["tools", "lift", "codex", "--spend", "5"]).ended;
  t.equal(none.code, 1);
  t.match(none.stdout, /codex has no limit on spend/);
});

t.test("a waiting request is listed, and is refused when the tool is disabled", async (t) => {
  const { gateway, under, hang, list, tools } = await start(t, "    limits: { concurrent: 1, wait: 60s }\n");
  const call = await hang();
  const waits = list();
  await until("one waits", async () => (await codexOf(under))?.waiting === 1);
  const { stdout } = await tools();
  t.match(stdout, /^codex +active .* 1, 1 waits +/m);
  t.match(stdout, /^ {4}concurrent +\[#{8}\] +1\/1$/m);
  const off = await tools("disable", "codex", "--now");
  t.equal(await waits, "tool-disabled");
  t.match(off.stdout, /\n1 request in flight was cut\n$/, "who was refused was not cut");
  t.equal(await call.ended, "cut");
  gateway.release();
});

t.test("after a restart the list has what was used, what was lifted and the last use", async (t) => {
  const home = await newHome(t);
  const gateway = await startGateway(t);
  const { token, hash } = freshToken();
  const text = `gateway: ${gateway.baseUrl}\ntools: { codex: { key: ${key}, token: "${hash}", limits: { requests: 5/month } } }\n`;
  const first = await startUnderTest(t, text, { home });
  const asked = Date.now();
  const answer = await fetch(`${first.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
  await answer.text();
  t.equal(answer.status, 200);
  t.equal((await giveMore(t, home, "3")).code, 0);
  const before = await codexOf(first);
  await first.daemon.stop(0);
  const second = await startUnderTest(t, text, { home });
  const after = await codexOf(second);
  t.strictSame(after?.limits, before?.limits);
  t.match(after?.limits, [{ used: 1, most: 8, extra: 3 }]);
  t.ok(
    Number(after?.last_use) >= asked && Number(after?.last_use) <= Date.now(),
    "the last use is remembered",
  );
});

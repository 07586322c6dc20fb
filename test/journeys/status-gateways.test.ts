import t, { type Test } from "tap";
import type { GatewayStatus } from "../../src/control/status.ts";
import { command } from "../doubles/command.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { visit } from "../doubles/dashboard-visit.ts";
import { examineHome } from "../doubles/doctor.ts";
import { longTest } from "../doubles/effort.ts";
import { hello, post, startSandbox } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

/** Whether a gateway can be reached, since when and why not, wherever status is shown. */

async function start(t: Test, firstByte = "10m") {
  const sandbox = await startSandbox(t);
  const { id, key } = sandbox.createKey({ name: "codex", group: "default" });
  const { token, hash } = freshToken();
  const configOf = (address: string) => `dashboard: { listen: localhost:0 }
gateways: { main: { base_url: "${address}", timeouts: { retry_connect: 0s, first_byte: ${firstByte} } } }
tools: { codex: { key: ${key.reveal()}, token: "${hash}" } }
`;
  const under = await startUnderTest(t, configOf(sandbox.baseUrl));
  const gateway = async (): Promise<GatewayStatus> => {
    const [only] = (await under.daemon.status()).gateways;
    if (only === undefined) throw new Error("there is no gateway");
    return only;
  };
  return {
    ...under,
    sandbox,
    keyId: id,
    key: key.reveal(),
    configOf,
    gateway,
    chat: (more: object = {}, init: RequestInit = {}) =>
      fetch(`${under.url}/v1/chat/completions`, {
        ...init,
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify({ ...hello(), ...more }),
      }),
    status: async () => {
      const { status } = await post(`${under.url}/v1/chat/completions`, token, hello());
      return status;
    },
    is: (state: GatewayStatus["state"]) =>
      until(`the gateway is ${state}`, async () => (await gateway()).state === state),
  };
}

const UNKNOWN = { state: "unknown", since: null, failures: 0, why: null, next: null } as const;

longTest(
  t,
  "a gateway that goes down is shown as failing, with since, count and problem, until it is back",
  async (t) => {
    const { sandbox, key, home, paths, gateway, status, is } = await start(t);
    const port = Number(new URL(sandbox.baseUrl).port);
    t.match(await gateway(), UNKNOWN);
    const before = Date.now();
    t.equal(await status(), 200);
    await is("reachable");
    const reached = await gateway();
    t.match(reached, { failures: 0, why: null, next: null });
    t.ok((reached.since ?? 0) >= before && (reached.since ?? 0) <= Date.now());

    const page = await (await visit(paths.socket)).follow();
    t.teardown(() => page.end());
    await sandbox.stop();
    // It may still go out on the connection that was kept.
    t.ok([400, 502].includes(await status()));
    await is("failing");
    const { since } = await gateway();
    t.ok((since ?? 0) >= (reached.since ?? 0) && (since ?? 0) <= Date.now());
    for (let sent = 0; sent < 4; sent += 1) t.equal(await status(), 400);
    const failing = {
      state: "failing",
      since,
      failures: 5,
      why: "nothing listens there (ECONNREFUSED)",
      next: "keybearer doctor",
    };
    t.match(await gateway(), failing);

    const json = await command(t, home, ["status", "--json"]);
    t.match(JSON.parse(json.stdout).gateways, [failing]);
    const words = await command(t, home, ["status"]);
    t.equal(words.code, 0, "the daemon itself is well");
    t.match(words.stdout, /^gateway +state +tools +address$/m);
    t.match(words.stdout, /^main +failing +1 +http:\/\//m);
    const line =
      /^gateway main: failing since [-\d ]*\d\d:\d\d \(5 requests\): nothing listens there\s+\(ECONNREFUSED\)\n {2}→ keybearer doctor$/m;
    t.match(words.stdout, line);
    const long = words.stdout.split("\n").filter((row) => /^(?:gateway|main)/.test(row) && row.length > 80);
    t.strictSame(long, [], "80 columns are enough");
    t.notOk(`${json.stdout}${words.stdout}`.includes(key));

    const onPage = () => page.last("now")?.status.gateways[0];
    await until("the open page shows it", () => onPage()?.failures === 5);
    t.match(onPage(), failing);
    const found = await examineHome(paths);
    t.match(
      found.filter(({ about }) => about === "gateway main"),
      [
        { id: "gateway", level: "problem", what: /cannot be reached/ },
        { id: "gateway", level: "warning", what: /failing since .* \(5 requests\): nothing listens there/ },
      ],
    );
    t.match((await gateway()).failures, 5, "doctor's own question is no request of a tool");

    await sandbox.start(port);
    t.equal(await status(), 200);
    await is("reachable");
    t.match(await gateway(), { failures: 0, why: null, next: null });
    t.ok(((await gateway()).since ?? 0) >= (since ?? 0));
    await until("the open page shows that too", () => onPage()?.state === "reachable");
    t.match((await command(t, home, ["status"])).stdout, /^main +reachable +1 +http:\/\//m);
  },
);

t.test("a gateway that does not answer in time is failing", async (t) => {
  const { sandbox, keyId, status, gateway } = await start(t, "200ms");
  sandbox.order(keyId, { kind: "silence" });
  t.equal(await status(), 504);
  t.match(await gateway(), { state: "failing", failures: 1, why: "no answer within 0.2 s" });
});

t.test("a cut response and an error page of a proxy are failures", async (t) => {
  const { sandbox, keyId, chat, status, gateway, is } = await start(t);
  const recovers = async () => {
    t.equal(await status(), 200);
    await is("reachable");
  };
  sandbox.order(keyId, { kind: "cut" }, 1);
  t.equal(await status(), 502);
  t.match(await gateway(), { state: "failing", why: /^it closed the connection without an answer/ });
  await recovers();

  sandbox.order(keyId, { kind: "cut", body: 'data: {"choices":[]}\n\n' }, 1);
  const cut = await chat({ stream: true });
  t.equal(cut.status, 200);
  await t.rejects(cut.text());
  await is("failing");
  t.match(await gateway(), { failures: 1, why: /^its answer was cut off/ });
  await recovers();

  sandbox.order(keyId, { kind: "garbage" }, 1);
  t.equal(await status(), 502);
  t.match(await gateway(), { state: "failing", why: /^its answer is not HTTP/ });
  await recovers();

  const headers = { "content-type": "text/html" };
  sandbox.order(keyId, { kind: "refuse", status: 502, body: "<h1>502 Bad Gateway</h1>", headers }, 1);
  t.equal(await status(), 502);
  await is("failing");
  t.match(await gateway(), { failures: 1, why: "a proxy in front of it answers 502" });
  await recovers();
});

t.test("a gateway that answers with any status is reachable", async (t) => {
  const { sandbox, keyId, status, is, gateway } = await start(t);
  const answers = [
    [401, { code: "INVALID_API_KEY", message: "Invalid API key" }],
    [429, { error: { message: "slow down" } }],
    [500, "oops"],
    [503, { error: { message: "No available channel for model m", code: "model_not_found" } }],
  ] as const;
  for (const [code, body] of answers) {
    sandbox.order(keyId, { kind: "cut" }, 1);
    t.equal(await status(), 502);
    await is("failing");
    sandbox.order(keyId, { kind: "refuse", status: code, body }, 1);
    t.equal(await status(), code);
    await is("reachable");
    t.match(await gateway(), { failures: 0, why: null });
  }
});

t.test("a client that leaves does not change the gateway's state", async (t) => {
  const { sandbox, keyId, chat, ended, gateway } = await start(t);
  sandbox.order(keyId, { kind: "silence" }, 1);
  const leaving = new AbortController();
  const left = chat({}, { signal: leaving.signal });
  await until("the gateway has it", () => sandbox.requests().length === 1);
  leaving.abort();
  await t.rejects(left);
  await until("it is settled", () => ended().some(({ end }) => end === "client-left"));
  t.match(await gateway(), UNKNOWN);
});

t.test("a gateway with another base_url has no known state", async (t) => {
  const { sandbox, configOf, save, status, is, gateway } = await start(t);
  await sandbox.stop();
  t.equal(await status(), 400);
  await is("failing");
  await save(`${configOf("http://127.0.0.1:1/v1").trimEnd()}\n# another one\n`);
  await is("unknown");
  t.match(await gateway(), { ...UNKNOWN, base_url: "http://127.0.0.1:1/v1" });
  await save(configOf("http://127.0.0.1:2/v1"));
  await until("the next one is read", async () => (await gateway()).base_url.includes(":2/"));
  t.match(await gateway(), UNKNOWN);
});

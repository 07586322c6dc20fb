import t from "tap";
import type { KeyState } from "../../src/config/snapshot.ts";
import { systemClock } from "../../src/core/clock.ts";
import { Secret } from "../../src/core/secret.ts";
import { gatewayFindings } from "../../src/doctor/findings.ts";
import { KeyCheck } from "../../src/doctor/key-check.ts";
import { probeTools, type ToolProbeDeps } from "../../src/doctor/tool-probes.ts";
import { KeyCallBudgets } from "../../src/mirror/consoles/key-calls.ts";
import { Agents } from "../../src/proxy/agents.ts";
import { configOf } from "../doubles/parsed-config.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";

const agents = new Agents(systemClock);
t.teardown(() => agents.close());

const LIST = '{"data":[{"id":"m"}]}';

function depsFor(config: ReturnType<typeof configOf>, more: Partial<ToolProbeDeps> = {}): ToolProbeDeps {
  const keyOf = ({ name }: { name: string }): KeyState => ({
    state: "ready",
    key: new Secret(`sk-key-of-${name}`),
  });
  const { agentFor } = agents;
  const keyCalls = new KeyCallBudgets(() => systemClock.now(), null);
  const keyCheck = new KeyCheck({ clock: systemClock, keyCalls, agentFor, listedDetail: async () => null });
  return { config, keyOf, agentFor, clock: systemClock, worked: new Set(), keyCheck, ...more };
}

function configWith(gateways: Readonly<Record<string, string>>, tools: Readonly<Record<string, string>>) {
  const named = Object.entries(gateways).map(([name, origin]) => `${name}: { base_url: "${origin}/v1" }`);
  const using = Object.entries(tools).map(([name, gateway]) => `${name}: { gateway: ${gateway} }`);
  return configOf(`gateways: { ${named.join(", ")} }\ntools: { ${using.join(", ")} }\n`);
}

t.test("a gateway that hangs does not delay the others, and is waited for once", async (t) => {
  const silent = await startRawGateway(t, () => {});
  const good = await startRawGateway(t, (call) => call.ok(LIST));
  const tools = { a: "hangs", b: "hangs", c: "hangs", d: "hangs", e: "hangs", f: "good", g: "good" };
  const config = configWith({ hangs: silent.origin, good: good.origin }, tools);
  const probes = await probeTools(Object.values(config.tools), depsFor(config, { timeout: 2000 }));
  const of = (name: string) => probes.filter(({ gateway }) => gateway === name).map(({ probed }) => probed);
  t.match(of("hangs"), Array(5).fill({ ok: false, cause: "timeout" }));
  t.match(of("good"), Array(2).fill({ ok: true, models: ["m"] }));
  t.ok(silent.calls.length <= 1, "a busy machine may not even have sent it in time");
});

t.test("at most four tools are probed at once, and all get their turn", async (t) => {
  const waiting: GatewayCall[] = [];
  let max = 0;
  const gateway = await startRawGateway(t, (call) => {
    // The first asks alone, to learn of the gateway.
    if (gateway.calls.length === 1) return call.ok(LIST);
    waiting.push(call);
    max = Math.max(max, waiting.length);
    if (waiting.length === 4 || gateway.calls.length === 10)
      for (const held of waiting.splice(0)) held.ok(LIST);
  });
  const names = Array.from({ length: 10 }, (_, at) => `tool-${at}`);
  const config = configWith(
    { main: gateway.origin },
    Object.fromEntries(names.map((name) => [name, "main"])),
  );
  const probes = await probeTools(Object.values(config.tools), depsFor(config));
  t.match(probes, Array(10).fill({ probed: { ok: true } }));
  t.equal(max, 4);
});

t.test("when the total time is over, the rest is not probed", async (t) => {
  const silent = await startRawGateway(t, () => {});
  const names = ["a", "b", "c", "d", "e", "f"];
  const origins = Object.fromEntries(names.map((name) => [name, silent.origin]));
  const config = configWith(origins, Object.fromEntries(names.map((name) => [`t-${name}`, name])));
  const probes = await probeTools(Object.values(config.tools), depsFor(config, { totalTimeout: 200 }));
  t.equal(probes.filter(({ probed }) => probed === null).length, 2);
  t.equal(probes.filter(({ probed }) => probed?.ok === false && probed.cause === "timeout").length, 4);
});

t.test("a tool without a key is reported with the problem, and is not probed", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok(LIST));
  const config = configWith({ main: gateway.origin }, { a: "main", b: "main", c: "main" });
  const keyOf = ({ name }: { name: string }): KeyState => {
    if (name === "a") return { state: "unavailable", problem: "the variable A is not set", next: null };
    if (name === "b") return { state: "needs-trust", what: "the key of b", from: "x", to: "y" };
    return { state: "ready", key: new Secret("sk-key-of-c") };
  };
  t.match(await probeTools(Object.values(config.tools), depsFor(config, { keyOf })), [
    { tool: "a", key: null, missing: { state: "unavailable", problem: /not set/ }, probed: null },
    { tool: "b", missing: { state: "needs-trust", problem: "the key of b: x → y" }, probed: null },
    { tool: "c", missing: null, probed: { ok: true } },
  ]);
});

t.test("a wrong clock is reported with how much and which way", async (t) => {
  const config = configWith({ main: "http://127.0.0.1:9" }, { a: "main" });
  const { main } = config.gateways;
  if (main === undefined) return t.fail("there is no gateway main");
  const found = (skew: number) => {
    const probed = { ok: true, status: 200, models: ["m"], tested: ["key"], skew } as const;
    return gatewayFindings(main, [{ tool: "a", gateway: "main", key: "…a1b2", missing: null, probed }])[1];
  };
  t.equal(found(3000), undefined);
  t.match(found(45_000), { level: "warning", what: "clock is 45 s behind the gateway's" });
  t.match(found(-600_000), { level: "problem", what: "clock is 10 min ahead of the gateway's" });
});

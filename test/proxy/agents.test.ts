import t from "tap";
import { systemClock } from "../../src/core/clock.ts";
import { Agents } from "../../src/proxy/agents.ts";
import { configOf } from "../doubles/parsed-config.ts";

function gatewayOf(more: string) {
  const { main } = configOf(
    `gateways: { main: { base_url: "https://gateway.example.com/v1"${more} } }\ntools: { codex: {} }\n`,
  ).gateways;
  if (main === undefined) throw new Error("there is no gateway");
  return main;
}

t.test("a save that changes nothing about how a gateway is reached keeps its connections", async (t) => {
  const agents = new Agents(systemClock);
  t.teardown(() => agents.close());
  const before = gatewayOf("");
  const agent = agents.agentFor(before, "https://gateway.example.com", "codex");
  for (const more of ["", ", key_header: bearer", ", timeouts: { idle: 1m }"]) {
    const saved = gatewayOf(more);
    agents.keepOnly([saved]);
    t.equal(agents.agentFor(saved, "https://gateway.example.com", "codex"), agent, more);
  }
  for (const more of [', proxy: "http://127.0.0.1:8080"', ", timeouts: { connect: 3s }"]) {
    const saved = gatewayOf(more);
    agents.keepOnly([saved]);
    t.not(agents.agentFor(saved, "https://gateway.example.com", "codex"), agent, more);
  }
});

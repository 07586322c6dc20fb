import { parseConfig } from "../../src/config/parse.ts";
import type { Config, Gateway, Tool } from "../../src/config/schema.ts";
import { Snapshot } from "../../src/config/snapshot.ts";

/** A configuration from its text, for tests of what comes after parsing. */
export function configOf(text: string): Config {
  const { config, problems } = parseConfig(text, "/home/me");
  if (config === null) throw new Error(problems.map((problem) => problem.message).join("; "));
  return config;
}

/** A snapshot whose keys were not read. */
export function snapshotOf(text: string): Snapshot {
  return new Snapshot(1, configOf(text), new Map(), []);
}

export function gatewayOf(lines: string): Gateway {
  const { main } = configOf(`gateways: { main: { ${lines} } }\ntools: { codex: {} }\n`).gateways;
  if (main === undefined) throw new Error("there is no gateway main");
  return main;
}

export function toolOf(lines: string): Tool {
  const groups = "groups: { open: {}, shut: { enabled: false } }";
  const { codex } = configOf(
    `gateways: { main: { base_url: "https://gateway.example.com/v1", ${groups} } }\ntools: { codex: { ${lines} } }\n`,
  ).tools;
  if (codex === undefined) throw new Error("there is no tool codex");
  return codex;
}

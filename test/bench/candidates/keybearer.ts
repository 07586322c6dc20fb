import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { hashToken, makeToken } from "../../../src/identity/token.ts";
import { freePort } from "../processes/listening.ts";
import { projectFolder, type Scene } from "../processes/scene.ts";
import { DOWNLOAD_PATH, KEY, MODEL, PLAIN_PATH } from "../upstream/bodies.ts";
import type { Upstreams } from "../upstream/upstreams.ts";
import type { Kind, Prepared } from "./candidate.ts";

/** With everything on: tokens, every kind of limit, the usage log, metering with a known price, a log line a request. */
export function keybearer(): Kind {
  return {
    name: "keybearer",
    title: "keybearer with tokens, limits, usage log, metering and log lines on",
    version: () => String(JSON.parse(readFileSync(join(projectFolder(), "package.json"), "utf8")).version),
    missing: "",
    prepare: (scene, upstreams) => prepareHome(scene, upstreams),
  };
}

export interface Home extends Prepared {
  readonly folder: string;
  readonly config: string;
}

/** @param more tools besides the two that are asked, as lines of config.yaml. */
export async function prepareHome(scene: Scene, upstreams: Upstreams, more = ""): Promise<Home> {
  const port = await freePort();
  // Short, because a unix socket lies below it.
  const folder = join(scene.folder, `kb-${port}`);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const tokens = { plain: makeToken(), stream: makeToken() };
  const config = join(folder, "config.yaml");
  writeFileSync(config, configText(port, upstreams, tokens) + more, { mode: 0o600 });
  const way = (token: string, path: string) => ({
    url: `http://127.0.0.1:${port}${path}`,
    headers: { authorization: `Bearer ${token}` },
  });
  return {
    folder,
    config,
    port,
    command: {
      file: process.execPath,
      args: [keybearerProgram(), "run"],
      env: { KEYBEARER_HOME: folder, HOME: folder },
      errorsTo: join(folder, "log"),
    },
    ways: {
      plain: way(tokens.plain, PLAIN_PATH),
      stream: way(tokens.stream, PLAIN_PATH),
      download: way(tokens.plain, DOWNLOAD_PATH),
    },
  };
}

export function keybearerProgram(): string {
  return join(projectFolder(), "dist", "cli", "main.js");
}

/** Every kind of limit is there and counted, and none is ever reached. */
function configText(port: number, upstreams: Upstreams, tokens: { plain: string; stream: string }): string {
  const tool = (name: "plain" | "stream") => `
  ${name}:
    gateway: ${name}
    group: bench
    key: ${KEY}${name}
    token: sha256:${hashToken(tokens[name])}
    limits:
      requests: [900000/second, 900000k/month]
      tokens: 900000k/minute
      spend: [$900000/day, $900000/month]
      concurrent: 900
    quota: $90000000`;
  const gateway = (name: "plain" | "stream") => `
  ${name}:
    base_url: ${upstreams[name]}/v1
    groups: { bench: { multiplier: 1.5, models: ["bench-*"] } }`;
  return `listen: localhost:${port}
gateways:${gateway("plain")}${gateway("stream")}
prices:
  ${MODEL}: { input: 1.0, output: 4.0 }
tools:${tool("plain")}${tool("stream")}
`;
}

import { readFileSync, writeFileSync } from "node:fs";
import { hashToken, makeToken } from "../../../src/identity/token.ts";
import { prepareHome } from "../candidates/keybearer.ts";
import { ask } from "../load/ask.ts";
import { untilListening } from "../processes/listening.ts";
import type { Scene } from "../processes/scene.ts";
import type { Upstreams } from "../upstream/upstreams.ts";

export interface Reloads {
  readonly tools: number;
  /** From the save of config.yaml until the change holds, one entry a round. */
  readonly heldAfterMs: readonly number[];
  /** The longest that a request had to wait meanwhile. */
  readonly longestAnswerMs: readonly number[];
}

const LONGEST_MS = 20_000;

/** A config.yaml of so many tools is saved again and again with one of them switched off or on. */
export async function measureReload(
  scene: Scene,
  upstreams: Upstreams,
  tools: number,
  rounds: number,
): Promise<Reloads> {
  scene.say(`reloading a config.yaml of ${tools} tools`);
  const token = makeToken();
  const home = await prepareHome(scene, upstreams, manyTools(tools, token));
  if (home.command === null) throw new Error("keybearer has a command");
  const child = scene.children.start(home.command);
  await untilListening(child, home.port);
  const heldAfterMs: number[] = [];
  const longestAnswerMs: number[] = [];
  const url = `http://127.0.0.1:${home.port}/v1/models`;
  for (let round = 0; round < rounds; round += 1) {
    const off = round % 2 === 0;
    const text = readFileSync(home.config, "utf8");
    const changed = off
      ? text.replace("enabled: true # switch", "enabled: false # switch")
      : text.replace("enabled: false # switch", "enabled: true # switch");
    const began = performance.now();
    writeFileSync(home.config, changed);
    let longest = 0;
    for (;;) {
      const asked = performance.now();
      const { refusal } = await ask({ url, headers: { authorization: `Bearer ${token}` } }, null);
      longest = Math.max(longest, performance.now() - asked);
      if ((refusal === "tool-disabled") === off) break;
      if (performance.now() - began > LONGEST_MS) throw new Error("the change of config.yaml never held");
    }
    heldAfterMs.push(performance.now() - began);
    longestAnswerMs.push(longest);
  }
  await scene.children.end(child);
  return { tools, heldAfterMs, longestAnswerMs };
}

function manyTools(count: number, token: string): string {
  const tool = (at: number) => `
  tool-${at}:
    gateway: plain
    group: bench
    key: sk-bench-${String(at).padStart(40, "0")}
    token: sha256:${hashToken(at === 0 ? token : makeToken())}
    limits: { requests: 60000/minute, spend: [$5/day, $60/month], concurrent: 4 }
    enabled: true${at === 0 ? " # switch" : ""}`;
  return `${Array.from({ length: count }, (_, at) => tool(at))
    .join("")
    .slice(1)}\n`;
}

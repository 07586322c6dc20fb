import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Way } from "../candidates/candidate.ts";
import { builtScript, type Scene } from "../processes/scene.ts";
import type { StreamsRead, StreamsWish } from "./read-streams.ts";

/** Runs one of the bench's own scripts and reads the line of JSON it ends with. */
export async function runScript<T>(
  { children }: Scene,
  script: string,
  args: readonly string[],
  flags: readonly string[] = [],
): Promise<T> {
  const child = children.start({ file: process.execPath, args: [...flags, builtScript(script), ...args] });
  const code = await child.ended;
  const line = child.output().trim().split("\n").at(-1) ?? "";
  if (code !== 0 || line === "") throw new Error(`${script} failed: ${child.lastWords()}`);
  return JSON.parse(line) as T;
}

export function readStreams(scene: Scene, wish: StreamsWish): Promise<StreamsRead> {
  const file = join(scene.folder, "streams.json");
  writeFileSync(file, JSON.stringify(wish), { mode: 0o600 });
  return runScript(scene, "load/read-streams.js", [file]);
}

export function download(
  scene: Scene,
  { url, headers }: Way,
): Promise<{ ok: boolean; bytes: number; seconds: number }> {
  return runScript(scene, "load/download.js", [url, JSON.stringify(headers)]);
}

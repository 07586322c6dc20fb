import { createWriteStream, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { finished } from "node:stream/promises";
import type { Command } from "../processes/children.ts";
import { freePort, untilListening } from "../processes/listening.ts";
import { builtScript, type Scene } from "../processes/scene.ts";
import { DOWNLOAD_BYTES, DOWNLOAD_PATH, PLAIN_PATH, plainAnswer } from "./bodies.ts";
import { nginxConfig } from "./nginx-config.ts";

/** What every candidate sends its requests to. */
export interface Upstreams {
  /** Answers plain requests, and the large one, as fast as it can: `http://127.0.0.1:port`. */
  readonly plain: string;
  /** Answers paced streams, and tells what arrived. */
  readonly stream: string;
  /** What the plain one is, in words. */
  readonly kind: string;
}

export async function startUpstreams(scene: Scene, nginx: string | null): Promise<Upstreams> {
  const [plain, stream] = [await freePort(), await freePort()];
  const node = (port: number, mode: string[]): Command => ({
    file: process.execPath,
    args: [builtScript("upstream/server.js"), String(port), ...mode],
  });
  const origin = (port: number) => `http://127.0.0.1:${port}`;
  await started(scene, node(stream, []), stream);
  if (nginx === null) await started(scene, node(plain, ["fixed"]), plain);
  else await started(scene, await nginxUpstream(scene, nginx, plain), plain);
  return {
    plain: origin(plain),
    stream: origin(stream),
    kind: nginx === null ? "a node process of its own" : "nginx",
  };
}

async function started(scene: Scene, command: Command, port: number): Promise<void> {
  await untilListening(scene.children.start(command), port);
}

async function nginxUpstream(scene: Scene, file: string, port: number): Promise<Command> {
  const folder = join(scene.folder, "upstream");
  const content = join(folder, "content", DOWNLOAD_PATH);
  mkdirSync(dirname(content), { recursive: true });
  await writeLarge(content);
  writeFileSync(join(folder, "content", "answer.json"), plainAnswer());
  // `mirror` makes nginx read the whole body before it answers, as a gateway does; `return` alone would answer first.
  const config = nginxConfig(
    folder,
    `  sendfile on;
  server {
    listen 127.0.0.1:${port} backlog=1024;
    root ${join(folder, "content")};
    location = ${PLAIN_PATH} {
      mirror /read;
      error_page 404 405 =200 @answer;
    }
    location = /read { internal; return 204; }
    location @answer { default_type application/json; return 200 '${plainAnswer()}'; }
  }`,
  );
  return { file, args: ["-c", config, "-p", folder] };
}

async function writeLarge(file: string): Promise<void> {
  const block = Buffer.alloc(1024 * 1024, "keybearer bench ");
  const out = createWriteStream(file);
  for (let left = DOWNLOAD_BYTES; left > 0; left -= block.length) out.write(block);
  out.end();
  await finished(out);
}

import { join } from "node:path";
import { freePort } from "../processes/listening.ts";
import { benchFolder } from "../processes/scene.ts";
import { DOWNLOAD_PATH, KEY, PLAIN_PATH } from "../upstream/bodies.ts";
import type { Kind, Way } from "./candidate.ts";
import { packageVersion } from "./library.ts";

const PACKAGE = "@portkey-ai/gateway";

/**
 * As it comes, and told by its own headers where to send a request. Only @hono/node-server is held at 1.13: with the newest
 * one that its range allows, 1.15.2 answers every stream with a failure.
 */
export function portkey(): Kind {
  return {
    name: "portkey",
    title: `${PACKAGE} as it comes, without its console`,
    version: () => packageVersion(PACKAGE),
    missing: `${PACKAGE} is not installed`,
    async prepare(_scene, { plain, stream }) {
      const port = await freePort();
      const start = join(benchFolder(), "node_modules", PACKAGE, "build", "start-server.js");
      const way = (upstream: string, path: string): Way => ({
        url: `http://127.0.0.1:${port}${path}`,
        headers: {
          authorization: `Bearer ${KEY}`,
          "x-portkey-provider": "openai",
          "x-portkey-custom-host": `${upstream}/v1`,
        },
      });
      return {
        command: { file: process.execPath, args: [start, "--headless", `--port=${port}`] },
        port,
        ways: {
          plain: way(plain, PLAIN_PATH),
          stream: way(stream, PLAIN_PATH),
          download: way(plain, DOWNLOAD_PATH),
        },
      };
    },
  };
}

import { freePort } from "../processes/listening.ts";
import type { Kind } from "./candidate.ts";
import { prefixedWays } from "./direct.ts";

/** A node process that listens and does nothing: what Node itself takes of memory and time. */
export function bareNode(): Kind {
  return {
    name: "node",
    title: "a bare node:http process",
    version: () => process.versions.node,
    missing: "",
    async prepare() {
      const port = await freePort();
      const script = `require("node:http").createServer((q, s) => s.end("ok")).listen(${port}, "127.0.0.1")`;
      return {
        command: { file: process.execPath, args: ["-e", script] },
        port,
        ways: prefixedWays(port, {}),
      };
    },
  };
}

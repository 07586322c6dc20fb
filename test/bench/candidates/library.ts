import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "../processes/listening.ts";
import { benchFolder, builtScript, projectFolder } from "../processes/scene.ts";
import type { Kind } from "./candidate.ts";
import { prefixedWays } from "./direct.ts";

/** The engine keybearer sits on, with nothing around it; and its sister. */
export function library(name: "http-proxy-3" | "httpxy"): Kind {
  return {
    name,
    title: `bare ${name} with a keep-alive agent`,
    version: () => packageVersion(name),
    missing: `${name} is not installed`,
    async prepare(_scene, { plain, stream }) {
      const port = await freePort();
      const args = [builtScript("candidates/library-proxy.js"), name, String(port), plain, stream];
      return { command: { file: process.execPath, args }, port, ways: prefixedWays(port, {}) };
    },
  };
}

/** Of a package that lies beside the bench or beside keybearer; null: it is not there. */
export function packageVersion(name: string): string | null {
  for (const folder of [benchFolder(), projectFolder()]) {
    const file = join(folder, "node_modules", name, "package.json");
    if (existsSync(file)) return String(JSON.parse(readFileSync(file, "utf8")).version);
  }
  return null;
}

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { packageVersion } from "../candidates/library.ts";
import { builtScript } from "../processes/scene.ts";
import type { Loaded, LoadGenerator } from "./load.ts";

/** Where there is no wrk. It is Node too, in a process of its own, and slower than what it measures is fast. */
export function autocannon(): LoadGenerator {
  return {
    name: `autocannon ${packageVersion("autocannon") ?? ""}`.trim(),
    async run({ children, folder }, load) {
      const file = join(folder, "load.json");
      writeFileSync(file, JSON.stringify(load), { mode: 0o600 });
      const script = builtScript("load/autocannon-run.js");
      const child = children.start({ file: process.execPath, args: [script, file] });
      const code = await child.ended;
      if (code !== 0) throw new Error(`autocannon failed: ${child.lastWords()}`);
      return JSON.parse(child.output()) as Loaded;
    },
  };
}

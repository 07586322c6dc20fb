import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import { benchFolder, type Scene } from "./scene.ts";

/** Installed on demand and never beside keybearer. Without them the rest is measured, and the report says who is missing. */
export async function installRivals(scene: Scene): Promise<string | null> {
  const lock = join(benchFolder(), "package-lock.json");
  const installed = join(benchFolder(), "node_modules", ".package-lock.json");
  if (existsSync(installed) && statSync(installed).mtimeMs >= statSync(lock).mtimeMs) return null;
  scene.say("installing what keybearer is measured beside into test/bench/node_modules");
  const args = ["ci", "--prefix", benchFolder(), "--ignore-scripts", "--no-audit", "--no-fund"];
  // The lock names what is wanted by its hash: what lies in npm's cache need not be asked for again.
  args.push("--prefer-offline");
  const child = scene.children.start({ file: "npm", args });
  return (await child.ended) === 0 ? null : child.lastWords();
}

import { readFileSync } from "node:fs";
import { packageFolder } from "./package-folder.ts";

/** From package.json. */
export function version(): string {
  const text = readFileSync(new URL("package.json", packageFolder()), "utf8");
  return String(JSON.parse(text).version);
}

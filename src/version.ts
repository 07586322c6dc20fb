import { readFileSync } from "node:fs";

/** From package.json, which lies one folder above both src/ and dist/. */
export function version(): string {
  const text = readFileSync(new URL("../package.json", import.meta.url), "utf8");
  return String(JSON.parse(text).version);
}

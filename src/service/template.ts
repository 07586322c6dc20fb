import { readFileSync } from "node:fs";

/** A template as it lies in the package, one folder above both src/ and dist/. */
export function template(name: "keybearer.service" | "com.keybearer.plist"): string {
  return readFileSync(new URL(`../../service/${name}`, import.meta.url), "utf8");
}

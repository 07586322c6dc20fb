import { readFileSync } from "node:fs";
import { packageFolder } from "../core/version.ts";

/** A template as it lies in the package. */
export function template(name: "keybearer.service" | "com.keybearer.plist"): string {
  return readFileSync(new URL(`service/${name}`, packageFolder()), "utf8");
}

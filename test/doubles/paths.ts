import { fileURLToPath } from "node:url";
import { packageFolder } from "../../src/core/version.ts";

/** The repository's folder. Tests find its files from here, because they do not run from where they are written. */
export const ROOT = fileURLToPath(packageFolder());

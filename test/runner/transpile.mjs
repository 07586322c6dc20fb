// Once before all test files, because each would start esbuild for its own.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { javascriptOf } from "./javascript.mjs";

for (const folder of ["../../src", ".."].map((path) => fileURLToPath(new URL(path, import.meta.url))))
  for (const name of readdirSync(folder, { recursive: true }))
    if (name.endsWith(".ts") && !name.endsWith(".d.ts")) javascriptOf(join(folder, name));

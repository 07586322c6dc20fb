import { fileURLToPath } from "node:url";
import { build } from "esbuild";

/**
 * Builds the program into a folder inside the project. It contains only our own code. Packages stay in node_modules, so that
 * `npm audit` and an update of a package reach what runs. It is not minified: that would save 0.3 MB of memory and make stack
 * traces unreadable.
 *
 * The two workers are in the same folder as the chunks, because the code that starts a worker looks for it beside itself.
 * @param plugins the bench passes one that replaces modules.
 */
export async function buildProgram(outdir, plugins = []) {
  await build({
    absWorkingDir: fileURLToPath(new URL("..", import.meta.url)),
    entryPoints: [
      { in: "src/cli/main.ts", out: "cli/main" },
      { in: "src/usage/index/index-worker.ts", out: "index-worker" },
      { in: "src/mirror/sync/mirror-worker.ts", out: "mirror-worker" },
    ],
    bundle: true,
    packages: "external",
    splitting: true,
    chunkNames: "[name]-[hash]",
    format: "esm",
    platform: "node",
    target: "node20.19",
    outdir,
    plugins,
    logLevel: "warning",
  });
}

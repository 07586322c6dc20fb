import { fileURLToPath } from "node:url";
import { javascriptOf } from "./javascript.mjs";

const SOURCES = ["../../src/", "../"].map((folder) => new URL(folder, import.meta.url).href);

/** A load hook of Node, for the hooks in a thread of their own and for those in the program's thread alike. */
export function load(url, context, nextLoad) {
  const [file] = url.split("?");
  if (!file.endsWith(".ts") || !SOURCES.some((folder) => file.startsWith(folder)))
    return nextLoad(url, context);
  return { format: "module", source: javascriptOf(fileURLToPath(file)), shortCircuit: true };
}

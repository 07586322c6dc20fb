import { readFileSync } from "node:fs";
import { packageFolder } from "../core/version.ts";

/** The page, whole and in memory: an upgrade that replaces the files under a running daemon must not mix two versions. */
export type PageFiles = ReadonlyMap<string, PageFile>;

export interface PageFile {
  readonly type: string;
  readonly body: Buffer;
}

/** By the path it is asked for, and by nothing else: no path of a request is ever joined to a folder. */
const FILES: readonly (readonly [path: string, name: string, type: string])[] = [
  ["/", "index.html", "text/html; charset=utf-8"],
  ["/main.js", "main.js", "text/javascript; charset=utf-8"],
  ["/page.css", "page.css", "text/css; charset=utf-8"],
  ["/licenses.txt", "licenses.txt", "text/plain; charset=utf-8"],
];

/** What the build put there; null: nothing, as when it was never built. */
export function readPageFiles(folder: URL = new URL("dist/dashboard/", packageFolder())): PageFiles | null {
  try {
    return new Map(
      FILES.map(([path, name, type]) => [path, { type, body: readFileSync(new URL(name, folder)) }]),
    );
  } catch {
    return null;
  }
}

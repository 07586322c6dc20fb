import { existsSync, readFileSync } from "node:fs";

/** The version in package.json. */
export function version(): string {
  const text = readFileSync(new URL("package.json", packageFolder()), "utf8");
  return String(JSON.parse(text).version);
}

/** The package's folder, with a trailing slash. It is above src/ and dist/, however deep the build put this file. */
export function packageFolder(from: string = import.meta.url): URL {
  let folder = new URL(".", from);
  while (!existsSync(new URL("package.json", folder)) && folder.pathname !== "/")
    folder = new URL("..", folder);
  return folder;
}

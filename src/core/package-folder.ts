import { existsSync } from "node:fs";

/** The folder of the package, with a slash at its end: above src/ and dist/, wherever in them the build put this. */
export function packageFolder(from: string = import.meta.url): URL {
  let folder = new URL(".", from);
  while (!existsSync(new URL("package.json", folder)) && folder.pathname !== "/")
    folder = new URL("..", folder);
  return folder;
}

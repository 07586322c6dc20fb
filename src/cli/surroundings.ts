import { resolve } from "node:path";
import type { Surroundings } from "../clients/description.ts";
import { homeFolder, stdio } from "./ui/stdio.ts";

/** Where the settings of this user's clients are. @param folders more folders, such as projects, that are searched */
export function surroundings(folders: readonly string[] = []): Surroundings {
  const cwd = process.cwd();
  return {
    env: stdio().env,
    home: homeFolder(),
    cwd,
    platform: process.platform,
    folders: folders.map((folder) => resolve(cwd, folder)),
  };
}

import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { fail, print } from "../ui/messages.ts";
import { cutInFlight, type Effect } from "./effect.ts";

export interface Ending {
  readonly now: boolean;
  /** What to type to cut them after all; null: there is nothing. */
  readonly again: string | null;
}

/** What becomes of a tool's requests under way after it was disabled or removed. */
export async function endInFlight(
  paths: Paths,
  name: string,
  effect: Effect,
  { now, again }: Ending,
): Promise<void> {
  switch (effect.state) {
    case "not running":
      if (now) print("keybearer is not running, so nothing is under way");
      return;
    case "not in force":
      // To cut would be in vain: the next request would be let in again.
      return fail(`but ${effect.reason}${now ? ". nothing was cut" : ""}`, EXIT.failed);
    case "in force": {
      const running = effect.tool?.running ?? 0;
      if (!now) {
        if (running > 0)
          print(`${requests(running)} under way may finish${again === null ? "" : ` → ${again}`}`);
        return;
      }
      const cut = await cutInFlight(paths, name);
      if (typeof cut === "string") return fail(`what is under way was not cut: ${cut}`, EXIT.failed);
      print(
        cut === 0 ? "nothing was under way" : `${requests(cut)} under way ${cut === 1 ? "was" : "were"} cut`,
      );
    }
  }
}

function requests(count: number): string {
  return count === 1 ? "1 request" : `${count} requests`;
}

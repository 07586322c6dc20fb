import { advice, withConfig } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { count } from "../../usage/reports/format.ts";
import { surroundings } from "../surroundings.ts";
import { notice } from "../ui/messages.ts";
import { confirm } from "../ui/prompts.ts";
import { setExitCode } from "../ui/stdio.ts";
import { moveKeys } from "./move.ts";
import { describePlace } from "./print.ts";
import { searchKeys } from "./search.ts";

/** After `init`: says which keys of other tools can be moved into keybearer. @param mayAsk else it only says how. */
export async function offerAdopt(paths: Paths, mayAsk: boolean): Promise<void> {
  const search = await searchKeys(paths, surroundings([]), null);
  const { pairs } = search.inventory;
  const places = pairs.flatMap((pair) => pair.places);
  if (places.length === 0) return;
  const found = `keys of other tools can be moved into keybearer: ${count(pairs.length, "key")} in ${count(places.length, "place")}`;
  if (!mayAsk) return notice({ problem: found, next: withConfig(advice.adopt(), paths) });
  notice(found);
  for (const { key, baseUrl, places } of pairs)
    for (const place of places)
      notice(`  ${key.fingerprint} of ${baseUrl}: ${describePlace(place, search.where.home)}`);
  if (!(await confirm("move them into keybearer now?", "yes")))
    return notice(`later: ${withConfig(advice.adoptWrite(), paths)}`);
  await moveKeys(paths, search, paths.explicit ? { config: paths.config } : {});
  // Whatever became of other tools' keys, init did what it was asked for.
  setExitCode(EXIT.ok);
}

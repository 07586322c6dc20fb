import { grouped } from "./grouped.ts";
import { assignNearest, type Timeline, timeline } from "./nearest.ts";
import type { OurRequest, Scene } from "./scene.ts";
import { agree, rowTokens } from "./tokens.ts";
import { contradict, type Left, type Match, modelsOf, placeOf, type Unit, without } from "./units.ts";

/** How much earlier than the request's start its row may seem to be: clocks are compared to about a second. */
export const EARLY_MS = 5000;
/** A gateway goes on for a while with what nobody waits for any more. */
export const LATE_MS = 10 * 60_000;
/** Where nobody saw the end; and how far before its end a row can be one's own. */
export const FAR_MS = 30 * 60_000;

/**
 * The third tier: a record that never got an id takes the nearest row of its key and model in its time, one at most. What
 * is missed by that is one foreign request; what is won is no alarm whenever somebody presses Esc.
 */
export function matchPresumed(left: Left, scene: Scene): { matches: Match[]; left: Left } {
  let matches: Match[] = [];
  let rest = left;
  // A use before an error, which tells no tokens; and who knows its model before who may take any.
  for (const kind of ["use", "error"] as const) {
    for (const named of [true, false]) {
      const found = absorb(rest, kind, named, scene);
      matches = matches.concat(found);
      rest = without(rest, found);
    }
  }
  return { matches, left: rest };
}

function absorb({ records, units }: Left, kind: Unit["main"]["kind"], named: boolean, scene: Scene): Match[] {
  const seekers = records.filter((record) => seeks(record, scene) && modelsOf(record).length > 0 === named);
  if (seekers.length === 0) return [];
  const nameOf = ({ key, main }: Unit) => (named ? `${key}|${main.model?.toLowerCase()}` : `${key}`);
  const lists = listsOf(
    units.filter(({ key, main }) => key !== null && main.kind === kind),
    nameOf,
  );
  const given = assignNearest(
    seekers.map((record) => {
      const names = named ? modelsOf(record).map((model) => `${record.key}|${model}`) : [`${record.key}`];
      return {
        ...timeOf(record),
        near: placeOf(record),
        lists: names.flatMap((name) => lists.get(name) ?? []),
        fits: (unit: Unit) => !contradict(record, unit, scene.ids_are_own) && mayBe(record, unit),
      };
    }),
  );
  return seekers.flatMap((record, index): Match[] => {
    const unit = given[index];
    return unit ? [{ record, unit, how: "presumed", reason: reasonOf(record, scene) }] : [];
  });
}

function seeks(record: OurRequest, { ids_are_own }: Scene): boolean {
  const { ids, billable, running, upgraded, key } = record;
  return billable && !running && !upgraded && key !== null && (ids.length === 0 || !ids_are_own);
}

export function timeOf({ started_at, ended_at }: OurRequest): { readonly from: number; readonly to: number } {
  if (ended_at === null) return { from: started_at - EARLY_MS, to: started_at + FAR_MS };
  return { from: Math.max(started_at - EARLY_MS, ended_at - FAR_MS), to: ended_at + LATE_MS };
}

function mayBe({ tokens, exact, status }: OurRequest, { main }: Unit): boolean {
  if (main.kind !== "use") return true;
  // What was turned away cost nothing. A 5xx says only that somebody in between stopped waiting.
  if (status !== null && status >= 400 && status < 500) return false;
  if (tokens === null || !exact) return true;
  const theirs = rowTokens(main);
  return theirs === null || agree(tokens, theirs);
}

function listsOf(units: readonly Unit[], nameOf: (unit: Unit) => string): Map<string, Timeline<Unit>> {
  const lists = [...grouped(units, nameOf)];
  return new Map(lists.map(([name, list]) => [name, timeline(list, ({ main }) => main.at)]));
}

function reasonOf({ ended_at, status }: OurRequest, { hands_out_ids }: Scene): string {
  const nearest = "this is the nearest row of its key and model in its time";
  if (ended_at === null) return `keybearer never saw an id: it was stopped while this ran; ${nearest}`;
  if (status === null) return `keybearer never saw an id: it was left before the answer began; ${nearest}`;
  if (hands_out_ids) return `the answer had no id that the console knows; ${nearest}`;
  return `this gateway hands out no ids; ${nearest}`;
}

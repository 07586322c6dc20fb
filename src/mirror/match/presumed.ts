import { grouped } from "./grouped.ts";
import { assignNearest, type Timeline, timeline } from "./nearest.ts";
import type { OurRequest, Scene, TheirRow } from "./scene.ts";
import { agree, rowTokens } from "./tokens.ts";
import { contradict, type Left, type Match, modelsOf, placeOf, type Unit, without } from "./units.ts";

/** How much earlier than the request's start its row may seem to be: clocks are compared to about a second. */
export const EARLY_MS = 5000;
/** A gateway goes on for a while with what nobody waits for any more. */
export const LATE_MS = 10 * 60_000;
/** Where nobody saw the end; and how far before its end a row can be one's own. */
export const FAR_MS = 30 * 60_000;
/** So close together a request and what its row tells of its beginning are. */
const BEGAN_WITHIN_MS = 10_000;
/** A row that began with the request may end so much later than one of which only the end is known. */
const LONGER_MS = 60 * 60_000;

/** By what a row is looked for: when it began, which says more, and not every console tells it; or when it ended. */
type By = "beginning" | "end";

/**
 * The third tier: a record that never got an id takes a row of its key and model in its time, one at most: the one that
 * began with it, else the nearest. What is missed by that is one foreign request; what is won is no alarm whenever
 * somebody presses Esc.
 */
export function matchPresumed(left: Left, scene: Scene): { matches: Match[]; left: Left } {
  let matches: Match[] = [];
  let rest = left;
  // A use before an error, which tells no tokens; and who knows its model before who may take any.
  for (const kind of ["use", "error"] as const) {
    for (const named of [true, false]) {
      for (const by of ["beginning", "end"] as const) {
        const found = absorb(rest, { kind, named, by }, scene);
        matches = matches.concat(found);
        rest = without(rest, found);
      }
    }
  }
  return { matches, left: rest };
}

interface Search {
  readonly kind: Unit["main"]["kind"];
  readonly named: boolean;
  readonly by: By;
}

function absorb({ records, units }: Left, { kind, named, by }: Search, scene: Scene): Match[] {
  const seekers = records.filter((record) => seeks(record, scene) && modelsOf(record).length > 0 === named);
  if (seekers.length === 0) return [];
  const nameOf = ({ key, main }: Unit) => (named ? `${key}|${main.model?.toLowerCase()}` : `${key}`);
  const lists = listsOf(
    units.filter(({ key, main }) => key !== null && main.kind === kind),
    nameOf,
    by,
  );
  const given = assignNearest(
    seekers.map((record) => {
      const names = named ? modelsOf(record).map((model) => `${record.key}|${model}`) : [`${record.key}`];
      const time = timeOf(record, by);
      return {
        ...time,
        lists: names.flatMap((name) => lists.get(name) ?? []),
        fits: (unit: Unit) =>
          time.ends(unit.main.at) && !contradict(record, unit, scene.ids_are_own) && mayBe(record, unit),
      };
    }),
  );
  return seekers.flatMap((record, index): Match[] => {
    const unit = given[index];
    return unit ? [{ record, unit, how: "presumed", reason: reasonOf(record, by, scene) }] : [];
  });
}

function seeks(record: OurRequest, { ids_are_own }: Scene): boolean {
  const { ids, billable, running, upgraded, key } = record;
  return billable && !running && !upgraded && key !== null && (ids.length === 0 || !ids_are_own);
}

interface Sought {
  readonly near: number;
  readonly from: number;
  readonly to: number;
  /** Whether a row that ends then may be its own. */
  readonly ends: (at: number) => boolean;
}

function timeOf(record: OurRequest, by: By): Sought {
  const { started_at, ended_at } = record;
  const from = Math.max(started_at - EARLY_MS, (ended_at ?? started_at) - FAR_MS);
  const to = ended_at === null ? started_at + FAR_MS : ended_at + LATE_MS;
  if (by === "end") return { near: placeOf(record), from, to, ends: () => true };
  return {
    near: started_at,
    from: started_at - BEGAN_WITHIN_MS,
    to: started_at + BEGAN_WITHIN_MS,
    ends: (at) => at >= from && at <= to + LONGER_MS,
  };
}

function mayBe({ tokens, exact, status }: OurRequest, { main }: Unit): boolean {
  if (main.kind !== "use") return true;
  // What was turned away cost nothing. A 5xx says only that somebody in between stopped waiting.
  if (status !== null && status >= 400 && status < 500) return false;
  if (tokens === null || !exact) return true;
  const theirs = rowTokens(main);
  return theirs === null || agree(tokens, theirs);
}

function listsOf(
  units: readonly Unit[],
  nameOf: (unit: Unit) => string,
  by: By,
): Map<string, Timeline<Unit>> {
  const lists = [...grouped(by === "end" ? units : byBeginning(units), nameOf)];
  const timeOfUnit = ({ main }: Unit) => (by === "end" ? main.at : beganAt(main));
  return new Map(lists.map(([name, list]) => [name, timeline(list, timeOfUnit)]));
}

/** Those that tell it. */
function byBeginning(units: readonly Unit[]): Unit[] {
  return units
    .filter(({ main }) => main.duration_ms !== null)
    .sort((a, b) => beganAt(a.main) - beganAt(b.main));
}

function beganAt({ at, duration_ms }: TheirRow): number {
  return at - (duration_ms ?? 0);
}

function reasonOf({ ended_at, status }: OurRequest, by: By, { hands_out_ids }: Scene): string {
  const nearest =
    by === "end"
      ? "this is the nearest row of its key and model in its time"
      : "this row of its key and model began when it did";
  if (ended_at === null) return `keybearer never saw an id: it was stopped while this ran; ${nearest}`;
  if (status === null) return `keybearer never saw an id: it was left before the answer began; ${nearest}`;
  if (hands_out_ids) return `the answer had no id that the console knows; ${nearest}`;
  return `this gateway hands out no ids; ${nearest}`;
}

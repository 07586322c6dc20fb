import { asObject, countAt, flagAt, type JsonObject, numberAt, objectAt, wholeAt } from "../json.ts";

/** Up to where the log has been read, as kept between two walks. */
export interface Mark {
  /** The newest row of the last walk that came to its end; null: none ever did. */
  readonly complete: Place | null;
  /** When the last complete walk that also looked for late rows had begun. */
  readonly overlapAt: number;
  /** A walk that was broken off. */
  readonly going: Going | null;
}

export interface Place {
  readonly id: number;
  /** Console time. */
  readonly time: number;
}

export interface Going {
  /** Where the walk began: the newest row there was. */
  readonly top: Place;
  /**
   * Rows that are older than all that was read. New rows come in above, so that this stays true however long the walk
   * rests, which the number of a page does not.
   */
  readonly below: number;
  /** It also looks for late rows. */
  readonly overlap: boolean;
  readonly began: number;
}

const VERSION = 1;

export function markText(mark: Mark): string {
  return JSON.stringify({ v: VERSION, ...mark });
}

/** What cannot be read is no mark: the log is walked from the beginning again, which changes nothing twice. */
export function markOf(text: string | null): Mark {
  const fresh: Mark = { complete: null, overlapAt: 0, going: null };
  if (text === null) return fresh;
  const mark = parsed(text);
  const overlapAt = mark === null ? null : numberAt(mark, "overlapAt");
  if (mark === null || overlapAt === null || wholeAt(mark, "v") !== VERSION) return fresh;
  return { complete: placeAt(mark, "complete"), overlapAt, going: goingAt(mark) };
}

function placeAt(object: JsonObject, name: string): Place | null {
  const place = objectAt(object, name);
  if (place === null) return null;
  const id = countAt(place, "id");
  const time = numberAt(place, "time");
  return id === null || time === null ? null : { id, time };
}

function goingAt(mark: JsonObject): Going | null {
  const going = objectAt(mark, "going");
  if (going === null) return null;
  const top = placeAt(going, "top");
  const below = countAt(going, "below");
  const overlap = flagAt(going, "overlap");
  const began = numberAt(going, "began");
  if (top === null || below === null || overlap === null || began === null) return null;
  return { top, below, overlap, began };
}

function parsed(text: string): JsonObject | null {
  try {
    return asObject(JSON.parse(text));
  } catch {
    return null;
  }
}

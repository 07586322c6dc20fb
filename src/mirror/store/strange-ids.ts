import type Database from "libsql";
import type { OurRequest } from "../match/scene.ts";
import type { Loaded } from "./loading.ts";
import { AMONG, readMany } from "./many.ts";
import type { Ours } from "./ours.ts";

/** Any server in between can set it, and callers can choose it: it is this gateway's only where a row has it too. */
const ANYBODYS = "x-request-id";

/** What is no id of this gateway must not speak against a row that is the request's own. */
export function withoutStrangeIds(
  db: Database.Database,
  gateway: string,
  { ours, theirs }: Loaded,
): OurRequest[] {
  const loaded = new Set(theirs.map(({ row }) => row.request_id));
  const unsure = ours.flatMap((one) => strangeIn(one) ?? []).filter((id) => !loaded.has(id));
  if (unsure.length === 0) return ours.map(({ request }) => request);
  // A row that is settled is not among those that were loaded.
  const listed = new Set(
    readMany(
      db,
      ["request_id"],
      `FROM mirror.console_rows INDEXED BY console_rows_by_id WHERE gateway = ? AND request_id IN ${AMONG}`,
      gateway,
      JSON.stringify(unsure),
    ).map(([id]) => id),
  );
  const strange = new Set(unsure.filter((id) => !listed.has(id)));
  return ours.map((one) => {
    const { request } = one;
    const id = strangeIn(one);
    if (id === null || !strange.has(id)) return request;
    return { ...request, ids: request.ids.filter((other) => other !== id) };
  });
}

/** null: it has none, or it goes by another name too. */
function strangeIn({ request, gateway_ids }: Ours): string | null {
  const id = gateway_ids[ANYBODYS];
  if (id === undefined || !request.ids.includes(id)) return null;
  const others = Object.entries(gateway_ids).some(([name, one]) => name !== ANYBODYS && one === id);
  return others ? null : id;
}

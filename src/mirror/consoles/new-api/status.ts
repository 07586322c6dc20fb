import { otherShape } from "../answers.ts";
import type { ConsoleClient } from "../console.ts";
import { asObject, numberAt } from "../json.ts";
import { cleanAt, cleanText } from "../texts.ts";
import { dataOf } from "./envelope.ts";
import { USUAL_QUOTA_PER_UNIT } from "./money.ts";

/** What the console says of itself to everybody. */
export interface SiteStatus {
  readonly quotaPerUnit: number;
  readonly version: string | null;
  /** What its clock shows, milliseconds, to the second; null: not told. */
  readonly time: number | null;
}

export async function readStatus(client: ConsoleClient): Promise<SiteStatus> {
  const about = "its status";
  const answer = await client.send({ method: "GET", path: "/api/status", bearer: null });
  const data = asObject(dataOf(answer, about));
  if (data === null) throw otherShape(about, "data");
  const told = numberAt(data, "quota_per_unit");
  const header = answer.headers["x-new-api-version"];
  const time = typeof answer.headers.date === "string" ? Date.parse(answer.headers.date) : Number.NaN;
  return {
    quotaPerUnit: told !== null && told > 0 ? told : USUAL_QUOTA_PER_UNIT,
    version: typeof header === "string" && header !== "" ? cleanText(header) : cleanAt(data, "version"),
    time: Number.isNaN(time) ? null : time,
  };
}

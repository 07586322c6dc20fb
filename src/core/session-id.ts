import { basename } from "node:path";
import { dayName } from "./units.ts";

/** Instead of the name of a token, for requests without one. */
export const NO_TOKEN = "no-token";

/**
 * Requests that name no session share one: those of a tool that showed the same token on the same day, local time. Such as
 * 2026-11-19/laptop. No client can send an id with a slash.
 * @param token its name
 * @param program its path
 */
export function sharedSession(startedAt: number, token: string | null, program: string | null): string {
  return `${dayName(startedAt)}/${token ?? (program === null ? NO_TOKEN : basename(program))}`;
}

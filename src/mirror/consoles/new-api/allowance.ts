import type { Allowance } from "../http.ts";

/*
 * The web API counts calls per address. Read in common/init.go: 180 in 180 s up to v1.0.0-rc.10, 360 from rc.11 on. Without
 * Redis the window slides; with Redis it is fixed. What stays below the limit in every window of 180 s suits both.
 * 30 calls are left to the owner's browser: opening the console's pages takes about ten.
 */
const SINCE_RC11: Allowance = { calls: 330, milliseconds: 180_000 };
const BEFORE_RC11: Allowance = { calls: 150, milliseconds: 180_000 };

/** A version that cannot be read (a build of one's own, a nightly) gets the lower limit: a 429 costs a minute. */
export function allowanceOf(version: string | null): Allowance {
  const found = /^v?(\d+)\.(\d+)\.(\d+)(?:-rc\.(\d+))?/.exec(version ?? "");
  if (found === null) return BEFORE_RC11;
  const [major = 0, minor = 0, patch = 0] = found.slice(1, 4).map(Number);
  if (major === 0) return BEFORE_RC11;
  const candidate =
    major === 1 && minor === 0 && patch === 0 && found[4] !== undefined ? Number(found[4]) : null;
  return candidate === null || candidate >= 11 ? SINCE_RC11 : BEFORE_RC11;
}

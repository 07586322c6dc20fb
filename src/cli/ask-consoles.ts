import { setTimeout as pause } from "node:timers/promises";
import { type Asked, askDaemon, type DaemonPaths } from "../control/client.ts";
import type { Status } from "../control/status.ts";
import { MINUTE_MS } from "../core/units.ts";
import { limitWait } from "./mirror/messages.ts";
import { notice } from "./ui/messages.ts";

/** A console may be slow, and each step waits for it, and for its limit. */
const TIMEOUT_MS = 4 * MINUTE_MS;
const POLL_MS = 1000;
/** Waits that end within this time of one another are the same. */
const SAME_WAIT_MS = 5000;

/** Asks the daemon for something that needs the consoles, and says when that waits for a console's limit. */
export async function askConsoles<T>(
  paths: DaemonPaths,
  method: "GET" | "POST",
  path: string,
  body?: unknown,
): Promise<Asked<T>> {
  const over = new AbortController();
  const reporting = reportWaits(paths, over.signal);
  const asked = await askDaemon<T>(paths, method, path, body, TIMEOUT_MS);
  over.abort();
  await reporting;
  return asked;
}

async function reportWaits(paths: DaemonPaths, signal: AbortSignal): Promise<void> {
  const reported = new Map<string, number>();
  for (;;) {
    try {
      await pause(POLL_MS, undefined, { signal });
    } catch {
      // The answer has come.
      return;
    }
    const status = await askDaemon<Status>(paths, "GET", "/status");
    if (!status.ok || signal.aborted) continue;
    const now = Date.now();
    for (const { gateway, limited_until: limited } of status.value.consoles ?? []) {
      const until = limited?.keys ?? null;
      if (until === null || until - (reported.get(gateway) ?? 0) < SAME_WAIT_MS) continue;
      reported.set(gateway, until);
      notice(`${gateway}: ${limitWait(until, now)}`);
    }
  }
}

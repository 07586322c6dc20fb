import type { ConsoleClient } from "../console.ts";
import { ConsoleFault } from "../console.ts";
import { type Credentials, loginSub2api, type Tokens } from "./login.ts";

/** An account must not be locked, nor a console's limit used up, by trying over and over. */
const EVERY_MS = 10 * 60_000;
const REFUSED_EVERY_MS = 24 * 3600_000;

/** Logs in with a password that nobody types, rarely. Meanwhile it says again what happened the last time. */
export function createPasswordLogin(
  client: ConsoleClient,
  now: () => number,
  credentials: Credentials,
): () => Promise<Tokens> {
  let last: { readonly at: number; readonly fault: ConsoleFault | null } | null = null;
  return async () => {
    const wait = last?.fault?.kind === "login-refused" ? REFUSED_EVERY_MS : EVERY_MS;
    // Either way: a clock that was set back must not keep it waiting for weeks.
    if (last !== null && Math.abs(now() - last.at) < wait) {
      throw last.fault ?? new ConsoleFault("failing", "ends every login within minutes");
    }
    last = { at: now(), fault: null };
    try {
      const outcome = await loginSub2api(client, credentials);
      if (outcome.state === "done") return outcome;
      throw new ConsoleFault("login-needed", "wants a second factor, which only a person can give");
    } catch (error) {
      if (error instanceof ConsoleFault) last = { at: now(), fault: error };
      throw error;
    }
  };
}

import type { Snapshot } from "../config/snapshot.ts";
import type { ConsoleGateway } from "./sync/connect.ts";

/** The secrets of a console that a snapshot holds, to notice that one of them is another. */
export function consoleSecrets(gateway: ConsoleGateway, snapshot: Snapshot): string {
  const names = ["password", "access_token", "refresh_token"] as const;
  return JSON.stringify(
    gateway.console.logins.flatMap((login) =>
      names.map((name) => {
        const state = snapshot.consoleSecret(gateway, login.name, name);
        return state?.state === "ready" ? state.key.digest("same") : (state?.state ?? null);
      }),
    ),
  );
}

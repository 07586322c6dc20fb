import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import type { MirrorReport } from "../../mirror/report/shape.ts";
import { failNull } from "../ui/messages.ts";
import { joinNames } from "../ui/units.ts";

/** Printed when no console is configured. */
export const NO_CONSOLE = `no console is mirrored, so keybearer cannot see whether a key is used elsewhere. in config.yaml:

gateways:
  main:
    base_url: https://gateway.example.com/v1
    console: { kind: sub2api, login: { email: me@example.com } }

then: ${advice.mirrorLogin()}. new-api needs no login: console: { kind: new-api }`;

/** The report of every console. null: it failed, and the reason was printed. */
export async function readAllConsoles(paths: Paths): Promise<readonly MirrorReport[] | null> {
  const asked = await askDaemon<MirrorReport[]>(paths, "GET", "/mirror");
  if (!asked.ok) return failNull(asked, EXIT.failed);
  if (asked.value.length > 0) return asked.value;
  // An empty report may also come from a usage log that cannot be read.
  const status = await askDaemon<Status>(paths, "GET", "/status");
  if (!status.ok || status.value.consoles.length === 0) return [];
  return failNull(
    { problem: "the usage log cannot be read, so nothing can be compared", next: advice.status() },
    EXIT.failed,
  );
}

/** The console of this gateway, or all of them. null: there is none, and the reason was printed. */
export async function readConsoles(
  paths: Paths,
  gateway: string | undefined,
): Promise<readonly MirrorReport[] | null> {
  const reports = await readAllConsoles(paths);
  if (reports === null) return null;
  if (reports.length === 0) return failNull(NO_CONSOLE, EXIT.failed);
  if (gateway === undefined) return reports;
  const named = reports.filter((report) => report.gateway === gateway);
  if (named.length > 0) return named;
  const known = joinNames(reports.map((report) => report.gateway));
  return failNull(`there is no gateway ${gateway} with a console; there is ${known}`, EXIT.failed);
}

import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { EXIT } from "../../core/errors.ts";
import type { MirrorReport } from "../../mirror/report/shape.ts";
import { fail } from "../ui/messages.ts";
import { joinNames } from "../ui/units.ts";

/** Printed when no console is configured. */
export const NO_CONSOLE = `no console is mirrored, so keybearer cannot see whether a key is used elsewhere. in config.yaml:

gateways:
  main:
    base_url: https://gateway.example.com/v1
    console: { kind: sub2api, login: { email: me@example.com } }

then: keybearer mirror login. a new-api needs no login: console: { kind: new-api }`;

/** The report of every console. null: it failed, and the reason was printed. */
export async function readMirror(socket: string): Promise<readonly MirrorReport[] | null> {
  const asked = await askDaemon<MirrorReport[]>(socket, "GET", "/mirror");
  if (!asked.ok) return failed(asked.reason, EXIT.failed);
  if (asked.value.length > 0) return asked.value;
  // An empty report may also come from a usage log that cannot be read.
  const status = await askDaemon<Status>(socket, "GET", "/status");
  if (!status.ok || status.value.consoles.length === 0) return [];
  return failed("the usage log cannot be read, so nothing can be compared → keybearer status", EXIT.failed);
}

/** The console of this gateway, or all of them. null: there is none, and the reason was printed. */
export async function readConsoles(
  socket: string,
  gateway: string | undefined,
): Promise<readonly MirrorReport[] | null> {
  const reports = await readMirror(socket);
  if (reports === null) return null;
  if (reports.length === 0) return failed(NO_CONSOLE, EXIT.failed);
  if (gateway === undefined) return reports;
  const named = reports.filter((report) => report.gateway === gateway);
  return named.length > 0
    ? named
    : failed(
        `there is no gateway ${gateway} with a console; there is ${joinNames(reports.map((one) => one.gateway))}`,
        EXIT.failed,
      );
}

/** One console. Its name may be left out if there is only one. */
export async function readOneConsole(
  socket: string,
  gateway: string | undefined,
  typed: string,
): Promise<MirrorReport | null> {
  const reports = await readConsoles(socket, gateway);
  const [only] = reports ?? [];
  if (reports === null || only === undefined) return null;
  if (reports.length === 1) return only;
  return failed(
    `there are several consoles. say which:\n${reports.map((one) => `${typed} ${one.gateway}`).join("\n")}`,
    EXIT.usage,
  );
}

function failed(message: string, code: number): null {
  fail(message, code);
  return null;
}

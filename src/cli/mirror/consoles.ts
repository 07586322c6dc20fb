import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import type { MirrorReport } from "../../mirror/report/shape.ts";
import { EXIT } from "../../start-failure.ts";
import { fail } from "../fail.ts";
import { listed } from "./amounts.ts";

/** Where no console is configured, what to write. */
export const NO_CONSOLE = `no console is mirrored, so nobody can see whether a key is used elsewhere. in config.yaml:

gateways:
  main:
    base_url: https://gateway.example.com/v1
    console: { kind: sub2api, login: { email: me@example.com } }

then: keybearer mirror login. a new-api needs no login: console: { kind: new-api }`;

/** What the daemon knows of every console. null: it has been told why not. */
export async function readMirror(socket: string): Promise<readonly MirrorReport[] | null> {
  const asked = await askDaemon<MirrorReport[]>(socket, "GET", "/mirror");
  if (!asked.ok) return told(asked.reason, EXIT.failed);
  if (asked.value.length > 0) return asked.value;
  // While the usage log is out of reach nothing can be compared, which is not the same as nothing to compare.
  const status = await askDaemon<Status>(socket, "GET", "/status");
  if (!status.ok || status.value.consoles.length === 0) return [];
  return told("the usage log cannot be read, so nothing can be compared → keybearer status", EXIT.failed);
}

/** The console of the gateway that was named, or all of them. null: it has been told why there is none. */
export async function readConsoles(
  socket: string,
  gateway: string | undefined,
): Promise<readonly MirrorReport[] | null> {
  const reports = await readMirror(socket);
  if (reports === null) return null;
  if (reports.length === 0) return told(NO_CONSOLE, EXIT.failed);
  if (gateway === undefined) return reports;
  const named = reports.filter((report) => report.gateway === gateway);
  return named.length > 0
    ? named
    : told(
        `there is no gateway ${gateway} with a console; there is ${listed(reports.map((one) => one.gateway))}`,
        EXIT.failed,
      );
}

/** One console: which may be left out where there is one. */
export async function readOneConsole(
  socket: string,
  gateway: string | undefined,
  typed: string,
): Promise<MirrorReport | null> {
  const reports = await readConsoles(socket, gateway);
  const [only] = reports ?? [];
  if (reports === null || only === undefined) return null;
  if (reports.length === 1) return only;
  return told(
    `there are several consoles. say which:\n${reports.map((one) => `${typed} ${one.gateway}`).join("\n")}`,
    EXIT.usage,
  );
}

function told(words: string, code: number): null {
  fail(words, code);
  return null;
}

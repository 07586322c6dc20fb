import type { Duplex } from "node:stream";
import type { Dashboard as Settings } from "../config/shape.ts";
import type { Tail } from "../control/tail.ts";
import { portOwner } from "../core/process-lookup.ts";
import { authority, hostsOf, openPort, type Port, PortTaken } from "../proxy/server.ts";
import type { Access } from "./access.ts";
import { sendBare } from "./answer.ts";
import { createLive } from "./live.ts";
import { createNowView, type NowDeps, shownRecord } from "./now.ts";
import type { PageFiles } from "./page-files.ts";
import type { ApiDeps } from "./routes.ts";
import { serve } from "./serve.ts";
import { throttledLog } from "./sparsely.ts";

export interface DoorDeps
  extends Omit<ApiDeps, "access" | "view" | "live" | "oddities">,
    Pick<NowDeps, "inFlight"> {
  /** null: it was built without them. */
  readonly files: PageFiles | null;
  readonly tail: Pick<Tail, "subscribe">;
}

/** The dashboard's port while it is open. */
export interface Door {
  readonly url: string;
  readonly addresses: readonly string[];
  /** How many pages show what happens. */
  followers(): number;
  close(): Promise<void>;
}

/** Throws, in words, where it cannot be opened. */
export async function openDoor(deps: DoorDeps, { listen }: Settings, access: Access): Promise<Door> {
  const { log, files } = deps;
  if (files === null)
    throw new Error("this keybearer was built without its dashboard → npm run build, then restart it");
  const view = createNowView(deps);
  const live = createLive(() => view.now(), deps);
  const gate = { hosts: [] as readonly string[] };
  const api = { ...deps, files, access, view, live, oddities: odditiesIn(log), hosts: () => gate.hosts };
  const port = await openPort(listen, {
    request: (req, res) => {
      serve(req, res, api).catch((error) => {
        log.error({ err: error }, "a request to the dashboard failed inside keybearer");
        res.destroy();
      });
    },
    clientError: sayUnparsable,
    onError: (error) => log.error(`a connection to the dashboard could not be accepted: ${error.message}`),
    upgrade: (_req, socket) => sendBare(socket, 400, "nothing here is served by websocket"),
  }).catch(async (error) => {
    throw error instanceof PortTaken ? new Error(await takenInWords(error)) : error;
  });
  gate.hosts = hostsOf(port.port);
  const unlisten = deps.tail.subscribe((record) => {
    const shown = shownRecord(record);
    view.ended(shown);
    live.record(shown);
  });
  return {
    url: `http://${authority(listen.host, port.port)}/`,
    addresses: port.addresses,
    followers: () => live.followers,
    close: () => {
      unlisten();
      return closePort(port);
    },
  };
}

function odditiesIn(log: DoorDeps["log"]): ApiDeps["oddities"] {
  const told = (what: string) =>
    throttledLog((more) => log.warn(more === 0 ? what : `${what}: ${more} more times within a minute`));
  return {
    wrongCode: told("somebody came to the dashboard with a code that is not good, or no longer"),
    stranger: told("somebody who is not this user came to the dashboard, and was turned away"),
  };
}

function sayUnparsable({ code }: NodeJS.ErrnoException, socket: Duplex): void {
  // It was told already, and sends on: closed now, the words would be lost on it.
  if (socket.writableEnded && !socket.destroyed) return;
  if (code === "HPE_HEADER_OVERFLOW") sendBare(socket, 431, "the head of the request is larger than 16 KB");
  else sendBare(socket, 400, "this is not a request that can be read");
}

/** Nothing here is worth waiting for. */
function closePort(port: Port): Promise<void> {
  const drained = port.drain();
  port.cut();
  return drained;
}

async function takenInWords({ address, port }: PortTaken): Promise<string> {
  const owner = await portOwner(port);
  const by = owner === null ? "by another program" : `by ${owner.program} (pid ${owner.pid})`;
  return `${address}, where the dashboard belongs, is taken ${by}. stop it, or change dashboard.listen in config.yaml`;
}

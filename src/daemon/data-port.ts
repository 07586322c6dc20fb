import type { Socket } from "node:net";
import { DEFAULT_DASHBOARD, type Listen } from "../config/schema.ts";
import { background } from "../core/background.ts";
import { EXIT, StartError } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import type { PeerLookup } from "../core/peer-user.ts";
import { describePortOwner } from "../core/process-lookup.ts";
import type { ProxyDeps } from "../proxy/deps.ts";
import type { Destroyable } from "../proxy/in-flight.ts";
import { serve, serveUnparsable } from "../proxy/pipeline.ts";
import { openPort, type Port, PortTaken } from "../proxy/server.ts";
import { serveUpgrade } from "../proxy/upgrade.ts";

/** Connections of other users that are kept open to answer them. More would take the place of the owner's. */
const MAX_OTHER_USERS = 16;

/** The sandbox tries this many ports after the one it should take. */
const MAX_NEXT_PORTS = 20;

/** For the sandbox: binds the next free port if another program uses the configured one. */
export async function bindNextDataPort(listen: Listen, peers: PeerLookup, log: Logger): Promise<DataPort> {
  const last = listen.port + MAX_NEXT_PORTS;
  for (let port = listen.port; ; port += 1) {
    // The dashboard has this port.
    if (port === DEFAULT_DASHBOARD.listen.port) continue;
    try {
      return await bindDataPort({ ...listen, port }, peers, log);
    } catch (error) {
      const isTaken = error instanceof StartError && error.exitCode === EXIT.portTaken;
      if (!isTaken || listen.port === 0 || port >= last) throw error;
    }
  }
}

/** The port that tools call. */
export interface DataPort extends Pick<Port, "port" | "addresses" | "drain" | "cut"> {
  /** Requests that arrived since the port was bound are served now, later ones at once. */
  serve(deps: ProxyDeps): void;
}

/**
 * Binds the port, or reports which program has it. That happens before the usage log is opened, so that a start that fails
 * here changes no record.
 */
export async function bindDataPort(listen: Listen, peers: PeerLookup, log: Logger): Promise<DataPort> {
  let deps: ProxyDeps | null = null;
  /** What came on 127.0.0.1 while [::1] was still being bound. */
  const early: ((deps: ProxyDeps) => void)[] = [];
  let inFlight = 0;
  let allDone = () => {};
  const done = () => {
    inFlight -= 1;
    if (inFlight === 0) allDone();
  };
  // A bug in one request must not end the others, but it must be seen.
  const run = (work: () => Promise<void>, connection: Destroyable) => {
    inFlight += 1;
    const handling = (async () => work())();
    handling.then(done, (error) => {
      log.error({ err: error }, "a request failed because of a bug in keybearer");
      connection.destroy();
      done();
    });
  };
  const whenServing = (work: (deps: ProxyDeps) => void) => {
    if (deps === null) early.push(work);
    else work(deps);
  };
  const otherUsers = new Set<Socket>();
  const checkPeer = async (socket: Socket) => {
    const peer = await peers.of(socket);
    if (peer === "ours") return;
    if (peer === "gone" || otherUsers.size >= MAX_OTHER_USERS) return void socket.destroy();
    otherUsers.add(socket);
    socket.once("close", () => otherUsers.delete(socket));
  };
  const port = await openPort(listen, {
    connection: (socket) => background(checkPeer(socket), log, "looking up whose a connection is"),
    request: (req, res) => whenServing((ready) => run(() => serve(req, res, ready), res)),
    clientError: (error, socket) => whenServing((ready) => serveUnparsable(error, socket, ready)),
    onError: (error) => log.error(`could not accept a connection: ${error.message}`),
    upgrade: (req, socket, head) =>
      whenServing((ready) => run(() => serveUpgrade(req, socket, head, ready), socket)),
  }).catch(async (error) => {
    throw error instanceof PortTaken ? await portTakenError(error) : error;
  });
  const drain = async () => {
    await port.drain();
    // A connection is closed before its request gets the event. Until then the gateway's side must not be closed: the
    // record would blame the gateway for an end of our own.
    await new Promise<void>((resolve) => {
      allDone = resolve;
      if (inFlight === 0) resolve();
    });
  };
  let drained: Promise<void> | null = null;
  return {
    port: port.port,
    addresses: port.addresses,
    cut: () => port.cut(),
    serve(ready) {
      deps = ready;
      for (const work of early.splice(0)) work(ready);
    },
    drain() {
      drained ??= drain();
      return drained;
    },
  };
}

async function portTakenError({ address, port }: PortTaken): Promise<StartError> {
  const by = await describePortOwner(port);
  const next = "stop it, or change listen in config.yaml";
  return new StartError(EXIT.portTaken, { problem: `${address} is taken by ${by}`, next });
}

import type { Listen } from "./config/shape.ts";
import { portOwner } from "./identity/port-owner.ts";
import { handle } from "./proxy/handle.ts";
import { handleUnparsable } from "./proxy/handle-unparsable.ts";
import { handleUpgrade } from "./proxy/handle-upgrade.ts";
import type { HandleMeans } from "./proxy/means.ts";
import { openPort, type Port, PortTaken } from "./proxy/server.ts";
import { EXIT, StartFailure } from "./start-failure.ts";

interface Destroyable {
  destroy(): unknown;
}

/** Opens the port that tools call, or says who has it. */
export async function openDataPort(listen: Listen, means: HandleMeans): Promise<Port> {
  let running = 0;
  let allDone = () => {};
  const done = () => {
    running -= 1;
    if (running === 0) allDone();
  };
  // A bug in one request must not end the others, but it must be seen.
  const run = (handling: Promise<void>, connection: Destroyable) => {
    running += 1;
    handling.then(done, (error) => {
      means.log.error({ err: error }, "a request failed inside keybearer");
      connection.destroy();
      done();
    });
  };
  try {
    const port = await openPort(listen, {
      request: (req, res) => run(handle(req, res, means), res),
      unparsable: (error, socket) => handleUnparsable(error, socket, means),
      trouble: (error) => means.log.error(`a connection could not be accepted: ${error.message}`),
      upgrade: (req, socket, head) => run(handleUpgrade(req, socket, head, means), socket),
    });
    const drain = async () => {
      await port.drain();
      // A connection is gone before its request hears of it. Until then the gateway's side must not be closed: the
      // record would blame the gateway for an end of our own.
      await new Promise<void>((resolve) => {
        allDone = resolve;
        if (running === 0) resolve();
      });
    };
    return { ...port, drain };
  } catch (error) {
    if (!(error instanceof PortTaken)) throw error;
    const owner = await portOwner(error.port);
    const by = owner === null ? "by another program" : `by ${owner.program} (pid ${owner.pid})`;
    throw new StartFailure(
      EXIT.portTaken,
      `${error.address} is taken ${by}. stop it, or change listen in config.yaml`,
    );
  }
}

import type { Listen } from "./config/shape.ts";
import { portOwner } from "./identity/port-owner.ts";
import { answerUnparsable } from "./proxy/answer.ts";
import { handle } from "./proxy/handle.ts";
import { handleUpgrade } from "./proxy/handle-upgrade.ts";
import type { HandleMeans } from "./proxy/means.ts";
import { openPort, type Port, PortTaken } from "./proxy/server.ts";
import { requestId } from "./request-id.ts";
import { EXIT, StartFailure } from "./start-failure.ts";

/** Opens the port that tools call, or says who has it. */
export async function openDataPort(listen: Listen, means: HandleMeans): Promise<Port> {
  // A bug in one request must not end the others, but it must be seen.
  const failed = (error: unknown) => means.log.error({ err: error }, "a request failed inside keybearer");
  try {
    return await openPort(listen, {
      request: (req, res) =>
        void handle(req, res, means).catch((error) => {
          failed(error);
          res.destroy();
        }),
      unparsable: (error, socket) => answerUnparsable(error, socket, requestId(means.clock.now())),
      trouble: (error) => means.log.error(`a connection could not be accepted: ${error.message}`),
      upgrade: (req, socket, head) =>
        void handleUpgrade(req, socket, head, means).catch((error) => {
          failed(error);
          socket.destroy();
        }),
    });
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

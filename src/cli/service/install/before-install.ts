import { loadConfig } from "../../../config/load.ts";
import { problemsInWords } from "../../../config/problem.ts";
import type { Config } from "../../../config/shape.ts";
import { type Asked, askDaemon } from "../../../control/client.ts";
import type { Status } from "../../../control/status.ts";
import { EXIT } from "../../../core/errors.ts";
import type { Paths } from "../../../core/paths.ts";
import { portOwner } from "../../../core/process-lookup.ts";
import type { ServiceState } from "../../../service/manager.ts";
import { isTaken } from "../../doctor/daemon-findings.ts";
import { failNull } from "../../ui/messages.ts";

/** The configuration, if a service could start with it. null: the person has been told what is wrong with it. */
export async function usableConfig({ config: file, home }: Paths, nothing: string): Promise<Config | null> {
  const { found, config, problems } = await loadConfig(file, { home, strict: true });
  if (config !== null) return config;
  if (!found) return failNull(`there is no ${file} → keybearer init\n${nothing}`, EXIT.badConfig);
  return failNull(`${problemsInWords(file, problems)}\n${nothing}`, EXIT.badConfig);
}

/** Whether the way is free for the service's own process. false: the person has been told who stands in it. */
export async function wayIsFree(paths: Paths, config: Config, state: ServiceState): Promise<boolean> {
  const asked = await askDaemon<Status>(paths.socket, "GET", "/status", undefined, 3000);
  const byHand =
    (asked.ok && asked.value.pid !== state.pid) || (!asked.ok && asked.running && state.pid === null);
  if (byHand) {
    const pid = asked.ok ? asked.value.pid : null;
    const who = pid === null ? "keybearer runs here already" : `keybearer runs here already, as pid ${pid}`;
    const how = pid === null ? "stop it" : `stop it where it was started (Ctrl-C, or kill ${pid})`;
    failNull(
      `${who}, and not as the service → ${how}, then try again\nnothing was changed`,
      EXIT.alreadyRunning,
    );
    return false;
  }
  const { port } = config.listen;
  if (port === 0 || servesAlready(asked, port) || !(await isTaken(port))) return true;
  // One that is about to answer, or that goes on its own socket, is ours all the same.
  const owner = await portOwner(port);
  if (owner !== null && owner.pid === state.pid) return true;
  const by = owner === null ? "another program" : `${owner.program} (pid ${owner.pid})`;
  failNull(
    `port ${port} is taken by ${by} → stop it, or change listen in config.yaml\nnothing was changed`,
    EXIT.portTaken,
  );
  return false;
}

function servesAlready(asked: Asked<Status>, port: number): boolean {
  return asked.ok && asked.value.listen.some((address) => address.endsWith(`:${port}`));
}

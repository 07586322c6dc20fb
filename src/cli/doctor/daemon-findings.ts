import { existsSync } from "node:fs";
import { connect } from "node:net";
import type { Listen } from "../../config/schema.ts";
import type { Asked } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import type { Paths } from "../../core/paths.ts";
import { portOwner } from "../../core/process-lookup.ts";
import type { Finding } from "../../doctor/findings.ts";
import { ago } from "../ui/units.ts";

const ABOUT = "the daemon";

export interface DaemonDeps {
  readonly asked: Asked<Status>;
  readonly paths: Paths;
  /** null: config.yaml cannot be used. */
  readonly listen: Listen | null;
  /** Of this program. */
  readonly version: string;
  readonly node: { readonly version: string; readonly path: string };
  /** It is started by the service: one that is started by hand would stand in its way. */
  readonly byService: boolean;
}

const SERVICE = "keybearer service restart";
const AGAIN = "stop it, and start it again: keybearer run";

/** Whether it runs, as what, and what would keep it from starting. */
export async function daemonFindings(deps: DaemonDeps): Promise<Finding[]> {
  const { asked, paths, node } = deps;
  const said = (level: Finding["level"], id: string, what: string, next: string | null): Finding => ({
    ...{ id, level, about: ABOUT, what, next },
  });
  const here = said(
    "ok",
    "node",
    `this is keybearer ${deps.version} on node ${node.version}, ${node.path}`,
    null,
  );
  if (asked.ok) return [...runningFindings(asked.value, deps, said), here];
  if (asked.running) {
    const what = `keybearer runs, but does not answer as it should: ${asked.reason}`;
    return [said("problem", "daemon", what, deps.byService ? SERVICE : AGAIN), here];
  }
  const found = [
    said("problem", "daemon", "keybearer is not running", deps.byService ? SERVICE : "keybearer run"),
  ];
  if (existsSync(paths.socket)) {
    const what = `${paths.socket} was left behind by a daemon that was killed; the next start takes it away`;
    found.push(said("ok", "socket", what, null));
  }
  const port = deps.listen?.port ?? 0;
  if (port !== 0 && (await isTaken(port))) {
    const owner = await portOwner(port);
    const by = owner === null ? "another program" : `${owner.program} (pid ${owner.pid})`;
    const next = "stop it, or change listen in config.yaml";
    found.push(said("problem", "port", `port ${port} is taken by ${by}`, next));
  }
  return [...found, here];
}

type Said = (level: Finding["level"], id: string, what: string, next: string | null) => Finding;

function runningFindings(
  status: Status,
  { paths, listen, version, byService }: DaemonDeps,
  said: Said,
): Finding[] {
  const on = status.listen.join(" and ");
  const what = `runs as pid ${status.pid} for ${ago(status.uptime_s * 1000)}, on ${on}`;
  const found = [said("ok", "daemon", what, null)];
  const again = byService ? SERVICE : AGAIN;
  if (status.version !== version) {
    const older = `the running one is keybearer ${status.version}, this one is ${version}`;
    found.push(said("warning", "version", older, again));
  }
  if (status.config.path !== paths.config) {
    const other = `it goes by another file, ${status.config.path}`;
    found.push(said("warning", "config", other, `keybearer check ${status.config.path}`));
  }
  // Port 0 is any, and without a config.yaml the sandbox is served on the default one.
  const wanted = listen === null || listen.port === 0 || status.sandbox ? null : `:${listen.port}`;
  if (wanted !== null && !status.listen.some((address) => address.endsWith(wanted)))
    found.push(
      said("warning", "port", `config.yaml says port ${listen?.port}, which needs a restart`, again),
    );
  return found;
}

const PATIENCE_MS = 500;

/** Both addresses are served together, so that either being taken is enough. */
export async function isTaken(port: number): Promise<boolean> {
  const answers = await Promise.all(["127.0.0.1", "::1"].map((host) => isAnswered(host, port)));
  return answers.includes(true);
}

function isAnswered(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: PATIENCE_MS });
    const end = (answered: boolean) => {
      socket.destroy();
      resolve(answered);
    };
    socket.once("connect", () => end(true));
    socket.once("timeout", () => end(false));
    socket.once("error", () => end(false));
  });
}

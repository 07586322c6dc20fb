import { realpath } from "node:fs/promises";
import { chooseModels, type Target } from "../../clients/snippets.ts";
import type { Client } from "../../clients/table.ts";
import { loadConfig } from "../../config/load.ts";
import { formatProblems } from "../../config/problems.ts";
import type { Listen, Token } from "../../config/schema.ts";
import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import type { ToolModels } from "../../doctor/models.ts";

/** The tool that is asked for, as far as its settings go. */
export interface FoundTool {
  readonly name: string;
  readonly model: string | null;
  readonly tokens: readonly Token[];
  readonly tokenInUrl: boolean;
  /** Where keybearer can be reached, without a slash at the end. */
  readonly origin: string;
  /** The running daemon goes by this file, so that it can be asked about the tool. */
  readonly served: boolean;
  /** There is no config.yaml: the sandbox's tool, whose token `run` printed. */
  readonly sandbox: boolean;
}

export type Found =
  | { readonly ok: true; readonly tool: FoundTool }
  | { readonly ok: false; readonly reason: string; readonly code: number };

/** Long enough for a daemon that is busy, short enough for a person who only wants to read. */
const PATIENCE_MS = 3000;

export async function findTool(paths: Paths, name: string): Promise<Found> {
  const asked = await askDaemon<Status>(paths.socket, "GET", "/status", undefined, PATIENCE_MS);
  const status = asked.ok ? asked.value : null;
  const { found, config, problems } = await loadConfig(paths.config, { home: paths.home, strict: false });
  if (config === null) {
    if (!found && status?.sandbox === true && !paths.explicit) return sandboxTool(status, name);
    return found
      ? failed(formatProblems(paths.config, problems), EXIT.badConfig)
      : failed(`there is no ${paths.config} → keybearer init`, EXIT.badConfig);
  }
  const tool = config.tools[name];
  if (tool === undefined)
    return failed(
      `there is no tool ${name} in ${paths.config}; its tools are ${Object.keys(config.tools).join(", ")}\n` +
        `  → keybearer tools add ${name}`,
      EXIT.failed,
    );
  const served = status !== null && (await isSameFile(status.config.path, paths.config));
  if (!served && config.listen.port === 0)
    return failed("listen: has port 0, a new one at each start. start it first → keybearer run", EXIT.failed);
  return {
    ok: true,
    tool: {
      name,
      model: tool.model,
      tokens: tool.tokens,
      tokenInUrl: tool.tokenInUrl,
      // A daemon keeps its port until it is started again, whatever the file says by now.
      origin: originOf(config.listen, served ? portOf(status.listen) : null),
      served,
      sandbox: false,
    },
  };
}

function sandboxTool(status: Status, name: string): Found {
  const tool = status.tools.find((each) => each.name === name);
  if (tool === undefined) {
    const names = status.tools.map((each) => each.name).join(", ");
    return failed(
      `there is no config.yaml yet → keybearer init. the sandbox's tool is ${names}`,
      EXIT.failed,
    );
  }
  const origin = originOf({ host: "localhost", port: 5397 }, portOf(status.listen));
  return {
    ok: true,
    tool: { name, model: null, tokens: [], tokenInUrl: true, origin, served: true, sandbox: true },
  };
}

export function originOf({ host, port }: Listen, running: number | null): string {
  return `http://${host === "::1" ? "[::1]" : host}:${running ?? port}`;
}

/** Of 127.0.0.1:5397 or [::1]:5397. */
function portOf(listen: readonly string[]): number | null {
  const port = /:(\d+)$/.exec(listen[0] ?? "")?.[1];
  return port === undefined ? null : Number(port);
}

/** What a client is pointed at, its token still open. The model is the tool's, else one that the gateway lists. */
export async function targetFor(paths: Paths, tool: FoundTool, client: Client): Promise<Target> {
  const { origin } = tool;
  if (client.unusable !== null) return { origin, token: null, model: tool.model };
  const listed = tool.served ? await modelsOf(paths, tool.name) : [];
  return { origin, token: null, ...chooseModels(client, listed, tool.model) };
}

/** As the running daemon had them from the gateway; none where that takes too long. */
async function modelsOf(paths: Paths, name: string): Promise<readonly string[]> {
  const path = `/models/${encodeURIComponent(name)}`;
  const asked = await askDaemon<readonly ToolModels[]>(paths.socket, "GET", path, undefined, PATIENCE_MS);
  if (!asked.ok) return [];
  return asked.value.flatMap(({ models }) => models.filter((model) => model.in_group).map(({ id }) => id));
}

async function isSameFile(one: string, other: string): Promise<boolean> {
  const real = (path: string) => realpath(path).catch(() => path);
  return (await real(one)) === (await real(other));
}

function failed(reason: string, code: number): Found {
  return { ok: false, reason, code };
}

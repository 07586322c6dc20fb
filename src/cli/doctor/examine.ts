import { type Loaded, loadConfig } from "../../config/load.ts";
import { type Config, DEFAULT_LISTEN } from "../../config/schema.ts";
import { type Asked, askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import type { Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import { version } from "../../core/version.ts";
import { configFindings, type Finding, gatewayFindings, toolFindings } from "../../doctor/findings.ts";
import { type History, readHistory } from "../../doctor/history.ts";
import { type ToolProbe, withOwnConnections } from "../../doctor/probe.ts";
import { probeTools } from "../../doctor/tool-probes.ts";
import { bringUpToDate } from "../usage/log-file.ts";
import { daemonFindings } from "./daemon-findings.ts";
import { type KeysHere, readKeysHere } from "./keys-here.ts";
import { statusFindings } from "./status-findings.ts";

export interface ExamineDeps {
  readonly paths: Paths;
  readonly env: NodeJS.ProcessEnv;
  readonly now: number;
  readonly node: { readonly version: string; readonly path: string };
  /** What lies around on this machine, told with the keys that must not lie there. */
  readonly elsewhere: (about: Around) => Promise<readonly Finding[]>;
  /** The service, where there is one to be spoken of. Default none. */
  readonly service?: {
    readonly installed: boolean;
    findings(): Promise<readonly Finding[]>;
  };
}

export interface Around {
  readonly keys: () => Iterable<Secret>;
  /** null: config.yaml cannot be used. */
  readonly config: Config | null;
  /** Where keybearer listens, or would. */
  readonly ports: readonly number[];
}

/** Together with the probes this is less than 20 s. */
const STATUS_MS = 3000;

/** Everything doctor looks at. What cannot be looked at is a finding of its own: nothing hides the rest. */
export async function examine(deps: ExamineDeps): Promise<Finding[]> {
  const { paths } = deps;
  const [loaded, asked] = await Promise.all([
    loadConfig(paths.config, { home: paths.home, strict: true }),
    askDaemon<Status>(paths.socket, "GET", "/status", undefined, STATUS_MS),
  ]);
  const { config } = loaded;
  const running = asked.ok || asked.running;
  const keys = config === null ? null : await readKeysHere({ config, paths, env: deps.env, running });
  try {
    const around = bounded(
      deps.elsewhere({ keys: () => keys?.secrets() ?? [], config, ports: portsOf(config, asked) }),
    );
    const [listen, byService] = [config?.listen ?? null, deps.service?.installed ?? false];
    const [daemon, service, gateways, elsewhere] = await Promise.all([
      daemonFindings({ ...deps, asked, listen, version: version(), byService }),
      deps.service?.findings() ?? [],
      config === null || keys === null ? [] : atGateways(config, keys, asked, deps),
      around,
    ]);
    const file = {
      file: paths.config,
      found: loaded.found,
      usable: config !== null,
      problems: loaded.problems,
    };
    return [
      ...configFindings(file, asked.ok && asked.value.sandbox),
      ...daemon,
      ...service,
      ...gateways,
      ...(asked.ok ? statusFindings(asked.value, deps.now) : []),
      ...elsewhere,
    ];
  } finally {
    keys?.close();
  }
}

function portsOf(config: Config | null, asked: Asked<Status>): number[] {
  const running = asked.ok ? asked.value.listen.map((address) => Number(address.split(":").at(-1))) : [];
  return [...new Set([(config?.listen ?? DEFAULT_LISTEN).port, ...running])].filter((port) => port > 0);
}

async function atGateways(
  config: NonNullable<Loaded["config"]>,
  keys: KeysHere,
  asked: Asked<Status>,
  { paths, now }: ExamineDeps,
): Promise<Finding[]> {
  await bringUpToDate(paths);
  const history = readHistory(paths.index, now);
  const sameFile = asked.ok && asked.value.config.path === paths.config && !asked.value.sandbox;
  const probes =
    (sameFile ? await askProbes(paths) : null) ?? (await probeHere(config, keys, history, paths.keyCalls));
  // The daemon remembers what its probes found, so that doctor and status say the same.
  const after = sameFile
    ? await askDaemon<Status>(paths.socket, "GET", "/status", undefined, STATUS_MS)
    : asked;
  const tools = Object.values(config.tools);
  return [
    ...Object.values(config.gateways)
      .filter(({ name }) => tools.some((tool) => tool.gateway === name && tool.enabled))
      .flatMap((gateway) => gatewayFindings(gateway, probes)),
    ...tools.flatMap((tool) => {
      const probe = probes.find((each) => each.tool === tool.name);
      const known =
        sameFile && after.ok ? after.value.tools.find((each) => each.name === tool.name) : undefined;
      return toolFindings(tool, {
        config,
        probe,
        known,
        uses: history.uses,
        lastFailures: history.lastFailures,
        now,
      });
    }),
    ...keys.warnings().map(({ name, message }): Finding => {
      return { id: "key", level: "warning", about: `tool ${name}`, what: message, next: null };
    }),
    ...(history.problem === null ? [] : [unreadable(history.problem)]),
  ];
}

function unreadable(why: string): Finding {
  const what = `the usage log cannot be read: ${why}`;
  return { id: "usage", level: "warning", about: "the usage log", what, next: "keybearer status" };
}

/** The daemon gives itself 16 s. */
const PROBES_MS = 17_000;

/** The daemon has the keys, env: and command: among them. null: it cannot be asked, such as an older one. */
async function askProbes({ socket }: Paths): Promise<readonly ToolProbe[] | null> {
  const asked = await askDaemon<ToolProbe[]>(socket, "GET", "/probes", undefined, PROBES_MS);
  return asked.ok ? asked.value : null;
}

async function probeHere(
  config: Config,
  keys: KeysHere,
  { worked }: History,
  keyCallsFile: string,
): Promise<readonly ToolProbe[]> {
  const tools = Object.values(config.tools).filter((tool) => tool.enabled);
  const { keyOf } = keys;
  return withOwnConnections(keyCallsFile, (deps) =>
    probeTools(tools, { ...deps, config, keyOf, worked, totalTimeout: 15_000 }),
  );
}

const AROUND_MS = 10_000;

/** A folder on a network that hangs must not keep back what is known. */
async function bounded(looking: Promise<readonly Finding[]>): Promise<readonly Finding[]> {
  const stop = new AbortController();
  const late = new Promise<readonly Finding[]>((resolve) => {
    const timer = setTimeout(() => resolve([notLooked("it took too long")]), AROUND_MS);
    stop.signal.addEventListener("abort", () => clearTimeout(timer));
  });
  const safe = looking.catch((error) => [notLooked(error instanceof Error ? error.message : String(error))]);
  try {
    return await Promise.race([safe, late]);
  } finally {
    stop.abort();
  }
}

function notLooked(why: string): Finding {
  const what = `other settings could not be looked through: ${why}`;
  return { id: "elsewhere", level: "warning", about: "this machine", what, next: null };
}

import { setTimeout as wait } from "node:timers/promises";
import { configCautions } from "../../config/cautions.ts";
import { loadConfig } from "../../config/load.ts";
import type { Problem } from "../../config/problems.ts";
import type { Config, Tool } from "../../config/schema.ts";
import { DEFAULT_LISTEN } from "../../config/schema.ts";
import { type Asked, askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { advice } from "../../core/advice.ts";
import { errorMessage } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { ineffectiveStart } from "../../daemon/unsafe-start.ts";
import { configFindings, type Finding, gatewayFindings, toolFindings } from "../../doctor/findings.ts";
import { readHistory } from "../../doctor/history.ts";
import { type ToolProbe, withOwnConnections } from "../../doctor/probe.ts";
import { scanSettings } from "../../doctor/settings-scan.ts";
import { probeTools } from "../../doctor/tool-probes.ts";
import { unsafeHere } from "../safe-start.ts";
import type { ServiceContext } from "../service/context.ts";
import { catchUpIndex } from "../usage/index-file.ts";
import { daemonFindings, serviceFindings, statusFindings } from "./daemon-findings.ts";
import { type KeysHere, readKeysHere } from "./keys-here.ts";

/** With the probes' 17 s, doctor takes at most about 20 s. */
const STATUS_TIMEOUT_MS = 3000;

/** Everything doctor checks. What cannot be checked is a finding of its own and does not hide the rest. */
export async function examine(
  paths: Paths,
  env: NodeJS.ProcessEnv,
  service: ServiceContext,
  now: number,
): Promise<Finding[]> {
  const [loaded, asked] = await Promise.all([
    loadConfig(paths.config, { home: paths.home, strict: true }),
    askStatus(paths),
  ]);
  const { config, found, problems } = loaded;
  const isSandbox = asked.ok && asked.value.sandbox;
  const keys =
    config === null ? null : await readKeysHere({ config, paths, env, running: asked.ok || asked.running });
  try {
    const [daemon, serviceState, gateways, elsewhere] = await Promise.all([
      daemonFindings(asked, paths, config?.listen ?? null, service),
      serviceFindings(service),
      config === null || keys === null ? [] : gatewaysAndTools(config, keys, asked, paths, now),
      withTimeout(scan(config, keys, asked, paths, env)),
    ]);
    return [
      ...configFindings(
        {
          file: paths.config,
          found,
          usable: config !== null,
          problems: [...problems, ...(config === null ? [] : cautionsOf(config, keys))],
        },
        isSandbox,
      ),
      ...shellFindings(env),
      ...daemon,
      ...serviceState,
      ...gateways,
      ...(asked.ok ? statusFindings(asked.value, now) : []),
      ...elsewhere,
    ];
  } finally {
    keys?.close();
  }
}

function cautionsOf(config: Config, keys: KeysHere | null): Problem[] {
  return configCautions(config, (tool) => {
    const known = keys?.keyOf(tool);
    return known?.state === "ready" ? known.key : null;
  });
}

/** What this shell would do to a keybearer that is started in it. */
function shellFindings(env: NodeJS.ProcessEnv): Finding[] {
  const about = "this shell";
  const unsafe = unsafeHere();
  const ineffective = ineffectiveStart(env);
  return [
    ...(unsafe === null ? [] : [{ id: "shell", level: "warning", about, what: unsafe, next: null } as const]),
    ...(ineffective === null
      ? []
      : [{ id: "shell", level: "warning", about, what: ineffective, next: null } as const]),
  ];
}

function askStatus(paths: Paths): Promise<Asked<Status>> {
  return askDaemon<Status>(paths, "GET", "/status", undefined, STATUS_TIMEOUT_MS);
}

async function gatewaysAndTools(
  config: Config,
  keys: KeysHere,
  asked: Asked<Status>,
  paths: Paths,
  now: number,
): Promise<Finding[]> {
  await catchUpIndex(paths);
  const history = readHistory(paths.index, now);
  const isOurDaemon = asked.ok && asked.value.config.path === paths.config && !asked.value.sandbox;
  const tools = Object.values(config.tools);
  const enabled = tools.filter((tool) => tool.enabled);
  const probes =
    (isOurDaemon ? await askProbes(paths) : null) ??
    (await probeHere(config, enabled, keys, history.worked, paths.keyCalls));
  // The daemon remembers what its probes found. It is asked again, so that doctor and status say the same.
  const after = isOurDaemon ? await askStatus(paths) : null;
  const findings = Object.values(config.gateways)
    .filter(({ name }) => enabled.some((tool) => tool.gateway === name))
    .flatMap((gateway) => gatewayFindings(gateway, probes));
  for (const tool of tools) {
    const probe = probes.find((each) => each.tool === tool.name);
    const known = after?.ok ? after.value.tools.find((each) => each.name === tool.name) : undefined;
    findings.push(
      ...toolFindings(tool, {
        config,
        probe,
        known,
        uses: history.uses,
        lastFailures: history.lastFailures,
        now,
      }),
    );
  }
  for (const { name, message } of keys.warnings())
    findings.push({ id: "key", level: "warning", about: `tool ${name}`, what: message, next: null });
  if (history.problem !== null) {
    const what = `the usage log cannot be read: ${history.problem}`;
    findings.push({ id: "usage", level: "warning", about: "the usage log", what, next: advice.status() });
  }
  return findings;
}

/** The daemon limits itself to 16 s. */
const PROBES_TIMEOUT_MS = 17_000;

/** The daemon has all keys, also those of env: and command:. null: it cannot be asked, for example an older one. */
async function askProbes(paths: Paths): Promise<readonly ToolProbe[] | null> {
  const asked = await askDaemon<ToolProbe[]>(paths, "GET", "/probes", undefined, PROBES_TIMEOUT_MS);
  return asked.ok ? asked.value : null;
}

function probeHere(
  config: Config,
  tools: readonly Tool[],
  keys: KeysHere,
  worked: ReadonlySet<string>,
  keyCallsFile: string,
): Promise<readonly ToolProbe[]> {
  const { keyOf } = keys;
  return withOwnConnections(keyCallsFile, (deps) =>
    probeTools(tools, { ...deps, config, keyOf, worked, totalTimeout: 15_000 }),
  );
}

/** Searches this machine's settings for what would bypass keybearer, and for exposed keys. */
function scan(
  config: Config | null,
  keys: KeysHere | null,
  asked: Asked<Status>,
  { home }: Paths,
  env: NodeJS.ProcessEnv,
): Promise<readonly Finding[]> {
  const tools = Object.values(config?.tools ?? {});
  const runningPorts = asked.ok ? asked.value.listen.map((address) => Number(address.split(":").at(-1))) : [];
  const ports = new Set([(config?.listen ?? DEFAULT_LISTEN).port, ...runningPorts]);
  return scanSettings({
    env,
    home,
    cwd: process.cwd(),
    platform: process.platform,
    keys: () => keys?.secrets() ?? [],
    ports: [...ports].filter((port) => port > 0),
    gateways: Object.values(config?.gateways ?? {}).map(({ baseUrl }) => new URL(baseUrl).origin),
    tools: tools.map(({ name }) => name),
    sources: tools.flatMap(({ key }) => (key.kind === "env" ? [key.name] : [])),
  });
}

const SCAN_TIMEOUT_MS = 10_000;

/** A network folder that hangs must not hold back the other findings. */
export async function withTimeout(
  scanning: Promise<readonly Finding[]>,
  timeout: number = SCAN_TIMEOUT_MS,
): Promise<readonly Finding[]> {
  const finished = new AbortController();
  const late = wait(timeout, [notScanned("it took too long")], { signal: finished.signal });
  const safe = scanning.catch((error) => [notScanned(errorMessage(error))]);
  // The timer rejects when it is aborted, after the race is decided.
  const aborted = late.catch(() => []);
  try {
    return await Promise.race([safe, aborted]);
  } finally {
    finished.abort();
  }
}

function notScanned(reason: string): Finding {
  const what = `other settings could not be checked: ${reason}`;
  return { id: "elsewhere", level: "warning", about: "this machine", what, next: null };
}

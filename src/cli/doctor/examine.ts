import { existsSync } from "node:fs";
import { makeInventory } from "../../adopt/inventory.ts";
import { findSettings, isOwnAddress } from "../../clients/find.ts";
import { configCautions } from "../../config/cautions.ts";
import type { ConfigProblem } from "../../config/problems.ts";
import type { Config, Tool } from "../../config/schema.ts";
import { DEFAULT_LISTEN } from "../../config/schema.ts";
import type { KeyState } from "../../config/snapshot.ts";
import { type Asked, askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { advice } from "../../core/advice.ts";
import { systemClock } from "../../core/clock.ts";
import type { Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import { wantedKeys } from "../../daemon/reload.ts";
import { createTrust } from "../../daemon/served-before.ts";
import { ineffectiveStart } from "../../daemon/unsafe-start.ts";
import { boundaryFindings } from "../../doctor/boundary.ts";
import { configFindings, type Finding, gatewayFindings, toolFindings } from "../../doctor/findings.ts";
import { readHistory } from "../../doctor/history.ts";
import { type ToolProbe, withOwnConnections } from "../../doctor/probe.ts";
import { scanOrProblem, settingsFindings } from "../../doctor/settings-findings.ts";
import { probeTools } from "../../doctor/tool-probes.ts";
import { Keyring, type KeyWarning } from "../../keys/keyring.ts";
import { loadHere } from "../config-here.ts";
import { unsafeHere } from "../safe-start.ts";
import type { ServiceContext } from "../service/context.ts";
import { homeFolder, isOwners } from "../ui/stdio.ts";
import { catchUpIndex } from "../usage/index-file.ts";
import { daemonFindings, serviceFindings, statusFindings } from "./daemon-findings.ts";
import { readBoundary } from "./read-boundary.ts";

/** With the probes' 17 s, doctor takes at most about 20 s. */
const STATUS_TIMEOUT_MS = 3000;

/** Everything doctor checks. What cannot be checked is a finding of its own and does not hide the rest. */
export async function examine(
  paths: Paths,
  env: NodeJS.ProcessEnv,
  service: ServiceContext,
  now: number,
): Promise<Finding[]> {
  const [loaded, asked] = await Promise.all([loadHere(paths, { strict: true }), askStatus(paths)]);
  const { config, found, problems } = loaded;
  const isSandbox = asked.ok && asked.value.sandbox;
  const isHere = asked.ok || asked.running;
  const keys =
    config === null
      ? null
      : isOwners(paths)
        ? KEYS_OF_SERVICE
        : await readKeysHere(config, paths, env, isHere);
  try {
    const [daemon, serviceState, gateways, elsewhere] = await Promise.all([
      daemonFindings(asked, paths, config?.listen ?? null, service),
      paths.mode === "system" ? boundaryFindings(readBoundary()) : serviceFindings(service),
      config === null || keys === null ? [] : gatewaysAndTools(config, keys, asked, paths, now),
      scanOrProblem(scan(config, keys, asked, paths.mode === "user" ? paths.home : homeFolder(), env)),
    ]);
    return [
      ...configFindings(
        {
          file: paths.config,
          found,
          usable: config !== null,
          problems: [...problems, ...(config === null ? [] : keyCautions(config, keys))],
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

interface KeysHere {
  keyOf(tool: Tool): KeyState;
  secrets(): Iterable<Secret>;
  /** What should be corrected although the key works. */
  warnings(): readonly KeyWarning[];
  close(): void;
}

/** An owner of the system service cannot read its keys. The daemon tries them. */
const KEYS_OF_SERVICE: KeysHere = {
  keyOf: () => NOT_READ,
  secrets: () => [],
  warnings: () => [],
  close: () => {},
};

const KEYS_TIMEOUT_MS = 3000;
const NOT_READ: KeyState = {
  state: "unavailable",
  problem: "the running keybearer has read it, but does not answer",
  next: advice.status(),
};

/**
 * Reads the tools' keys as the daemon would, under the same trust: doctor sends no key to a new place either.
 * @param isRunning a daemon has read them. Programs and keychains may ask the person, so they are not asked again.
 */
async function readKeysHere(
  config: Config,
  paths: Paths,
  env: NodeJS.ProcessEnv,
  isRunning: boolean,
): Promise<KeysHere> {
  const trust = createTrust(paths, systemClock);
  const hasTrustFile = existsSync(paths.trust);
  trust.load();
  const keyring = new Keyring({ trust, env, clock: systemClock, onLate: () => {}, limit: KEYS_TIMEOUT_MS });
  const wants = wantedKeys(config, paths)
    .filter(({ name }) => Object.hasOwn(config.tools, name))
    .filter(({ source }) => !isRunning || (source.kind !== "command" && source.kind !== "keychain"));
  await keyring.resolve(wants, KEYS_TIMEOUT_MS + 500);
  // The first use of a key pins it. Before the first start nothing is pinned: that is for the start to do. While a daemon
  // runs, only the daemon writes the file.
  if (hasTrustFile && !isRunning) await trust.settle();
  const states = keyring.current();
  return {
    keyOf: (tool) => states.get(tool.name) ?? NOT_READ,
    secrets: () => keyring.secrets(),
    warnings: () => keyring.warnings(),
    close: () => keyring.close(),
  };
}

function keyCautions(config: Config, keys: KeysHere | null): ConfigProblem[] {
  return configCautions(config, (tool) => {
    const known = keys?.keyOf(tool);
    return known?.state === "ready" ? known.key : null;
  });
}

/** What this shell would do to a keybearer that is started in it. */
function shellFindings(env: NodeJS.ProcessEnv): Finding[] {
  return [unsafeHere(), ineffectiveStart(env)]
    .filter((what) => what !== null)
    .map((what) => ({ id: "shell", level: "warning", about: "this shell", what, next: null }));
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
  if (history.problem !== null && !isOwners(paths)) {
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
async function scan(
  config: Config | null,
  keys: KeysHere | null,
  asked: Asked<Status>,
  home: string,
  env: NodeJS.ProcessEnv,
): Promise<readonly Finding[]> {
  const tools = Object.values(config?.tools ?? {});
  const runningPorts = asked.ok ? asked.value.listen.map((address) => Number(address.split(":").at(-1))) : [];
  const ports = [(config?.listen ?? DEFAULT_LISTEN).port, ...runningPorts].filter((port) => port > 0);
  const held = [...(keys?.secrets() ?? [])];
  const where = { env, home, cwd: process.cwd(), platform: process.platform, folders: [] };
  const found = await findSettings(where, held);
  const { pairs } = makeInventory(found, (url) => isOwnAddress(url, ports));
  const movable = new Set(pairs.flatMap(({ places }) => places));
  return settingsFindings(found, {
    env,
    home,
    keys: held,
    ports,
    gateways: Object.values(config?.gateways ?? {}).map(({ baseUrl }) => new URL(baseUrl).origin),
    tools: tools.map(({ name }) => name),
    sources: tools.flatMap(({ key }) => (key.kind === "env" ? [key.name] : [])),
    isMovable: (key) => movable.has(key),
  });
}

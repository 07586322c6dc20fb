import { existsSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Candidate, CandidateKind, Setup } from "./candidates.ts";
import { BENCH_FOLDER, freePort, type Processes, packageVersion } from "./processes.ts";
import { MODEL, UPSTREAM_KEY } from "./prompts.ts";

/** Gateways of others. They convert requests and answers, so that the bytes differ from the upstream's. */

const PORTKEY = "@portkey-ai/gateway";
/** What callers show to a gateway that wants a key of its own. */
const CALLER_KEY = "sk-bench-caller";

export const GATEWAY_KINDS: readonly CandidateKind[] = [
  {
    name: "portkey",
    converts: true,
    healthPath: null,
    missing: () => (packageVersion(BENCH_FOLDER, PORTKEY) === null ? `${PORTKEY} is not installed` : null),
    prepare: preparePortkey,
  },
  namedByVariable("cliproxyapi", "BENCH_CLIPROXYAPI", prepareCliProxyApi),
  namedByVariable("bifrost", "BENCH_BIFROST", prepareBifrost),
  namedByVariable("litellm", "BENCH_LITELLM", prepareLiteLlm),
];

export const GATEWAY_HELP = `Other gateways:
  portkey       npm installs it into test/bench/node_modules (package.json there).
  cliproxyapi   BENCH_CLIPROXYAPI=/path/to/cli-proxy-api; started with --config FILE
  bifrost       BENCH_BIFROST=/path/to/bifrost-http; started with -app-dir FOLDER -host 127.0.0.1 -port N
  litellm       BENCH_LITELLM=/path/to/venv/bin/litellm; started with --config FILE --host 127.0.0.1 --port N
`;

/** A program that npm does not have: a variable names it. */
function namedByVariable(
  name: string,
  variable: string,
  prepare: (program: string, setup: Setup) => Promise<Candidate>,
): CandidateKind {
  const program = () => process.env[variable] ?? "";
  const missing = () => {
    if (program() === "") return `${variable} is not set`;
    return existsSync(program()) ? null : `${variable} names no file`;
  };
  return { name, converts: true, healthPath: null, missing, prepare: (setup) => prepare(program(), setup) };
}

/**
 * As published, without its console; headers tell it where to send a request. package.json holds @hono/node-server at 1.13:
 * with the newest version that its range allows, 1.15.2 fails on every stream.
 */
async function preparePortkey({ upstreamPort }: Setup): Promise<Candidate> {
  const port = await freePort();
  const program = join(BENCH_FOLDER, "node_modules", PORTKEY, "build", "start-server.js");
  const headers = {
    authorization: `Bearer ${UPSTREAM_KEY}`,
    "x-portkey-provider": "openai",
    "x-portkey-custom-host": `http://127.0.0.1:${upstreamPort}/v1`,
  };
  return {
    name: "portkey",
    version: packageVersion(BENCH_FOLDER, PORTKEY) ?? "",
    command: { file: process.execPath, args: [program, "--headless", `--port=${port}`] },
    target: { port, basePath: "", headers },
    stateFolder: null,
  };
}

/** Installs what package.json names, unless it is there. Returns why it failed, or null. */
export async function installPortkey(
  processes: Processes,
  log: (text: string) => void,
): Promise<string | null> {
  const lock = join(BENCH_FOLDER, "package-lock.json");
  const installed = join(BENCH_FOLDER, "node_modules", ".package-lock.json");
  if (existsSync(installed) && statSync(installed).mtimeMs >= statSync(lock).mtimeMs) return null;
  log("installing portkey into test/bench/node_modules");
  const args = [
    "ci",
    "--prefix",
    BENCH_FOLDER,
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--prefer-offline",
  ];
  // Behind a company's own certificate authority npm needs this variable.
  const certificates = process.env.NODE_EXTRA_CA_CERTS;
  const env = certificates === undefined ? {} : { NODE_EXTRA_CA_CERTS: certificates };
  const npm = processes.start("npm", { file: "npm", args, env });
  return (await npm.exited) === 0 ? null : npm.logEnd();
}

async function prepareCliProxyApi(program: string, { folder, upstreamPort }: Setup): Promise<Candidate> {
  const port = await freePort();
  const file = join(folder, "config.yaml");
  const config = `host: 127.0.0.1
port: ${port}
auth-dir: ${join(folder, "auth")}
api-keys: [${CALLER_KEY}]
remote-management: { secret-key: "", disable-control-panel: true }
openai-compatibility:
  - name: bench
    base-url: http://127.0.0.1:${upstreamPort}/v1
    api-key-entries: [{ api-key: ${UPSTREAM_KEY} }]
    models: [{ name: ${MODEL}, alias: ${MODEL} }]
`;
  writeFileSync(file, config);
  return {
    name: "cliproxyapi",
    version: "",
    command: { file: program, args: ["--config", file], env: { HOME: folder } },
    target: { port, basePath: "", headers: { authorization: `Bearer ${CALLER_KEY}` } },
    stateFolder: null,
  };
}

async function prepareBifrost(program: string, { folder, upstreamPort }: Setup): Promise<Candidate> {
  const port = await freePort();
  const config = {
    client: { drop_excess_requests: false, enable_logging: true },
    config_store: { enabled: false },
    providers: {
      openai: {
        keys: [{ name: "bench", value: UPSTREAM_KEY, models: ["*"], weight: 1 }],
        network_config: { base_url: `http://127.0.0.1:${upstreamPort}` },
      },
    },
  };
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  return {
    name: "bifrost",
    version: "",
    command: {
      file: program,
      args: ["-app-dir", folder, "-host", "127.0.0.1", "-port", String(port)],
      env: { HOME: folder },
    },
    target: { port, basePath: "/openai", headers: {} },
    stateFolder: null,
  };
}

async function prepareLiteLlm(program: string, { folder, upstreamPort }: Setup): Promise<Candidate> {
  const port = await freePort();
  const file = join(folder, "config.yaml");
  const config = `model_list:
  - model_name: ${MODEL}
    litellm_params:
      model: openai/${MODEL}
      api_base: http://127.0.0.1:${upstreamPort}/v1
      api_key: ${UPSTREAM_KEY}
general_settings: { master_key: ${CALLER_KEY} }
`;
  writeFileSync(file, config);
  return {
    name: "litellm",
    version: "",
    command: {
      file: program,
      args: ["--config", file, "--host", "127.0.0.1", "--port", String(port)],
      // Without this it downloads a price list when it starts.
      env: { HOME: folder, LITELLM_LOCAL_MODEL_COST_MAP: "True" },
    },
    target: { port, basePath: "", headers: { authorization: `Bearer ${CALLER_KEY}` } },
    stateFolder: null,
  };
}

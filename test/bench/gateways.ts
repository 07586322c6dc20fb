import { existsSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Candidate, Prepared, Setup } from "./candidates.ts";
import { BENCH_FOLDER, type Processes, packageVersion } from "./processes.ts";
import { MODEL, UPSTREAM_KEY } from "./prompts.ts";

/** Gateways of others, as published. They convert requests and answers. */

const PORTKEY = join(BENCH_FOLDER, "node_modules", "@portkey-ai", "gateway");
/** What callers show to a gateway that requires a key of its own. */
const CALLER_KEY = "sk-bench-caller";
const CALLER = { authorization: `Bearer ${CALLER_KEY}` };

export const GATEWAYS: readonly Candidate[] = [
  {
    name: "portkey",
    converts: true,
    version: () => packageVersion(PORTKEY),
    missing: "could not be installed",
    prepare: preparePortkey,
  },
  namedByVariable("cliproxyapi", "BENCH_CLIPROXYAPI", prepareCliProxyApi),
  namedByVariable("bifrost", "BENCH_BIFROST", prepareBifrost),
  namedByVariable("litellm", "BENCH_LITELLM", prepareLiteLlm),
];

export const GATEWAY_HELP = `Other gateways:
  portkey       npm installs it into test/bench/node_modules
  cliproxyapi   BENCH_CLIPROXYAPI=/path/to/cli-proxy-api     started with --config FILE
  bifrost       BENCH_BIFROST=/path/to/bifrost-http          started with -app-dir FOLDER -host 127.0.0.1 -port N
  litellm       BENCH_LITELLM=/path/to/venv/bin/litellm      started with --config FILE --host 127.0.0.1 --port N
`;

/** A program that npm does not have. Its version is not asked: each tells it in its own way. */
function namedByVariable(
  name: string,
  variable: string,
  prepare: (program: string, setup: Setup) => Prepared,
): Candidate {
  const program = () => process.env[variable] ?? "";
  return {
    name,
    converts: true,
    version: () => (existsSync(program()) ? "" : null),
    missing: `${variable} names no program`,
    prepare: (setup) => prepare(program(), setup),
  };
}

/**
 * Headers tell it where to send a request. package.json holds @hono/node-server at 1.13: with the newest version that its
 * range allows, 1.15.2 fails on every stream.
 */
function preparePortkey({ port, upstreamPort }: Setup): Prepared {
  return {
    file: process.execPath,
    args: [join(PORTKEY, "build", "start-server.js"), "--headless", `--port=${port}`],
    headers: {
      authorization: `Bearer ${UPSTREAM_KEY}`,
      "x-portkey-provider": "openai",
      "x-portkey-custom-host": `http://127.0.0.1:${upstreamPort}/v1`,
    },
  };
}

/** Installs what package.json names, unless it is there. A failure is logged; the gateway is missing then. */
export async function installPortkey(processes: Processes, log: (text: string) => void): Promise<void> {
  const lock = join(BENCH_FOLDER, "package-lock.json");
  const installed = join(BENCH_FOLDER, "node_modules", ".package-lock.json");
  if (existsSync(installed) && statSync(installed).mtimeMs >= statSync(lock).mtimeMs) return;
  log("installing portkey into test/bench/node_modules");
  const args = ["ci", "--prefix", BENCH_FOLDER, "--ignore-scripts", "--no-audit", "--prefer-offline"];
  // Behind a company's own certificate authority npm needs this variable.
  const certificates = process.env.NODE_EXTRA_CA_CERTS;
  const env = certificates === undefined ? {} : { NODE_EXTRA_CA_CERTS: certificates };
  const npm = processes.start("npm", { file: "npm", args, env });
  if ((await npm.exited) !== 0) log(`npm failed: ${npm.logEnd()}`);
}

function prepareCliProxyApi(program: string, { folder, port, upstreamPort }: Setup): Prepared {
  const file = join(folder, "config.yaml");
  const config = `host: 127.0.0.1
port: ${port}
auth-dir: ${folder}/auth
api-keys: [${CALLER_KEY}]
remote-management: { secret-key: "", disable-control-panel: true }
openai-compatibility:
  - name: bench
    base-url: http://127.0.0.1:${upstreamPort}/v1
    api-key-entries: [{ api-key: ${UPSTREAM_KEY} }]
    models: [{ name: ${MODEL}, alias: ${MODEL} }]
`;
  writeFileSync(file, config);
  return { file: program, args: ["--config", file], env: { HOME: folder }, headers: CALLER };
}

function prepareBifrost(program: string, { folder, port, upstreamPort }: Setup): Prepared {
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
  const args = ["-app-dir", folder, "-host", "127.0.0.1", "-port", String(port)];
  // Below this path, models need no provider in front of their name.
  return { file: program, args, env: { HOME: folder }, headers: CALLER, basePath: "/openai" };
}

function prepareLiteLlm(program: string, { folder, port, upstreamPort }: Setup): Prepared {
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
  const args = ["--config", file, "--host", "127.0.0.1", "--port", String(port)];
  // Without the variable it downloads a price list when it starts.
  const env = { HOME: folder, LITELLM_LOCAL_MODEL_COST_MAP: "True" };
  return { file: program, args, env, headers: CALLER };
}

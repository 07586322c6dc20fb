import { spawnSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { hashToken, makeToken } from "../../src/core/token.ts";
import { LOGIN } from "../doubles/consoles/console-double.ts";
import { BUILT_FOLDER, type Command, PROJECT_FOLDER, packageVersion } from "./processes.ts";
import { MODEL, UPSTREAM_KEY } from "./prompts.ts";

/** keybearer and the proxies it is measured beside, and how each is started. */

export interface Candidate {
  readonly name: string;
  /** Converts requests and answers, so that their bytes differ from the upstream's. */
  readonly converts: boolean;
  /** null when it is not installed; `missing` says why. */
  readonly version: () => string | null;
  readonly missing: string;
  readonly prepare: (setup: Setup) => Prepared;
}

export interface Setup {
  /** A folder of its own. */
  readonly folder: string;
  readonly port: number;
  /** Another free port. */
  readonly secondPort: number;
  /** Where it forwards to. */
  readonly upstreamPort: number;
}

export interface Prepared extends Command {
  /** What a request to it needs. */
  readonly headers: Readonly<Record<string, string>>;
  /** Before the path of every request; mostly empty. */
  readonly basePath?: string;
  /** Another program that it needs, and the port on which that listens. */
  readonly beside?: Command & { readonly port: number };
}

export const KEYBEARER = join(PROJECT_FOLDER, "dist", "cli", "main.js");

const REQUEST_LIMITS = ["900000/second", "900000k/month"];

export const PROXIES: readonly Candidate[] = [
  {
    name: "http-proxy-3",
    converts: false,
    version: () => packageVersion(join(PROJECT_FOLDER, "node_modules", "http-proxy-3")),
    missing: "not installed",
    prepare: (setup) => prepareOwnProgram("http-proxy-3.js", setup),
  },
  {
    name: "keybearer",
    converts: false,
    version: () => packageVersion(PROJECT_FOLDER),
    missing: "not built",
    prepare: (setup) => prepareKeybearer(setup),
  },
  {
    name: "keybearer, shared",
    converts: false,
    version: redisVersion,
    missing: "there is no redis-server",
    // Requests spend what this machine was granted.
    prepare: (setup) => prepareShared(setup, ["900000k/month"]),
  },
  {
    name: "keybearer, shared, per second",
    converts: false,
    version: redisVersion,
    missing: "there is no redis-server",
    // In so short a window every request asks the store.
    prepare: (setup) => prepareShared(setup, REQUEST_LIMITS),
  },
  {
    name: "node:http",
    converts: false,
    version: () => process.versions.node,
    missing: "",
    prepare: (setup) => prepareOwnProgram("node-http.js", setup),
  },
  {
    name: "nginx",
    converts: false,
    version: nginxVersion,
    missing: "not installed",
    prepare: prepareNginx,
  },
];

/** As many as a tool can have in its metrics. */
export const SCRAPED_MODELS: readonly string[] = Array.from({ length: 99 }, (_, n) => `bench-${n}`);

/** keybearer with metrics, which can be read at its second port. */
export const WITH_METRICS: Candidate = {
  name: "keybearer, metrics",
  converts: false,
  version: () => packageVersion(PROJECT_FOLDER),
  missing: "not built",
  prepare: (setup) =>
    prepareKeybearer(setup, {
      settings: `metrics: { listen: localhost:${setup.secondPort} }\n`,
      models: [MODEL, ...SCRAPED_MODELS],
    }),
};

/** keybearer in front of a gateway whose console it reads, with a dashboard that can be opened. */
export const WITH_CONSOLE: Candidate = {
  name: "keybearer, watched",
  converts: false,
  version: () => packageVersion(PROJECT_FOLDER),
  missing: "not built",
  prepare: (setup) => {
    const login = `{ email: ${LOGIN.email}, password: ${LOGIN.password} }`;
    const url = `http://127.0.0.1:${setup.upstreamPort}`;
    return prepareKeybearer(setup, {
      console: `    console: { kind: sub2api, url: ${url}, login: ${login} }\n`,
    });
  },
};

/** keybearer as it was built into another file, with the same settings. */
export function keybearerAt(name: string, file: string): Candidate {
  return {
    name: `keybearer, ${name}`,
    converts: false,
    version: () => packageVersion(PROJECT_FOLDER),
    missing: "not built",
    prepare: (setup) => ({ ...prepareKeybearer(setup), args: [file, "run"] }),
  };
}

function prepareOwnProgram(program: string, { port, upstreamPort }: Setup): Prepared {
  const args = [join(BUILT_FOLDER, program), String(port), String(upstreamPort)];
  return { file: process.execPath, args, headers: {} };
}

interface MoreSettings {
  readonly requests?: readonly string[];
  /** YAML lines at the top level. */
  readonly settings?: string;
  /** YAML lines of the gateway. */
  readonly console?: string;
  readonly models?: readonly string[];
}

/** Everything is on: a group, every kind of limit (none is ever reached), prices, the usage log and log lines. */
function prepareKeybearer(
  { folder, port, upstreamPort }: Setup,
  { requests = REQUEST_LIMITS, settings = "", console = "", models = [MODEL] }: MoreSettings = {},
): Prepared {
  const token = makeToken();
  const config = `listen: localhost:${port}
${settings}gateways:
  main:
    base_url: http://127.0.0.1:${upstreamPort}/v1
${console}    groups: { bench: { multiplier: 1.5, models: ["bench-*"] } }
prices:
${models.map((model) => `  ${model}: { input: 1.0, output: 4.0 }\n`).join("")}tools:
  bench:
    group: bench
    key: ${UPSTREAM_KEY}
    token: sha256:${hashToken(token)}
    limits:
      requests: [${requests.join(", ")}]
      tokens: 900000k/minute
      spend: [$900000/day, $900000/month]
      concurrent: 900
    quota: $90000000
`;
  writeFileSync(join(folder, "config.yaml"), config, { mode: 0o600 });
  return {
    file: process.execPath,
    args: [KEYBEARER, "run"],
    env: { KEYBEARER_HOME: folder, HOME: folder },
    headers: { authorization: `Bearer ${token}` },
  };
}

/** The same, with every limit shared through a store on this machine. */
function prepareShared(setup: Setup, requests: readonly string[]): Prepared {
  const { folder, secondPort: port } = setup;
  const settings = `shared: { store: "redis://127.0.0.1:${port}", machine: bench, timezone: UTC }\n`;
  const args = ["--port", String(port), "--bind", "127.0.0.1", "--dir", folder, "--appendonly", "yes"];
  return { ...prepareKeybearer(setup, { requests, settings }), beside: { file: "redis-server", args, port } };
}

function redisVersion(): string | null {
  const { stdout } = spawnSync("redis-server", ["--version"], { encoding: "utf8" });
  const redis = /v=([\d.]+)/.exec(stdout ?? "")?.[1];
  return redis === undefined ? null : `${packageVersion(PROJECT_FOLDER)} with Redis ${redis}`;
}

function nginxProgram(): string | null {
  // nginx is in sbin, which is not in every PATH.
  const folders = [...(process.env.PATH ?? "").split(":"), "/usr/sbin", "/usr/local/sbin"];
  return folders.map((folder) => join(folder, "nginx")).find((file) => existsSync(file)) ?? null;
}

function nginxVersion(): string | null {
  const program = nginxProgram();
  if (program === null) return null;
  return /nginx\/([\d.]+)/.exec(spawnSync(program, ["-v"], { encoding: "utf8" }).stderr)?.[1] ?? "";
}

/** One worker that sets one header. No log, no buffering. */
function prepareNginx({ folder, port, upstreamPort }: Setup): Prepared {
  const config = `daemon off;
master_process off;
pid ${folder}/nginx.pid;
error_log stderr crit;
events { worker_connections 2048; }
http {
  access_log off;
  keepalive_requests 100000000;
  client_max_body_size 200m;
  client_body_buffer_size 1m;
  client_body_temp_path ${folder}/client_body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  upstream main { server 127.0.0.1:${upstreamPort}; keepalive 256; keepalive_requests 100000000; }
  server {
    listen 127.0.0.1:${port} backlog=1024;
    location / {
      proxy_pass http://main;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Authorization "Bearer ${UPSTREAM_KEY}";
      proxy_buffering off;
      proxy_request_buffering off;
    }
  }
}
`;
  const file = join(folder, "nginx.conf");
  writeFileSync(file, config);
  return { file: nginxProgram() ?? "nginx", args: ["-c", file, "-p", folder], headers: {} };
}

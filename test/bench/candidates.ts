import { spawnSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { hashToken, makeToken } from "../../src/identity/token.ts";
import type { Target } from "./connection.ts";
import { type Command, freePort, PROJECT_FOLDER, packageVersion } from "./processes.ts";
import { MODEL, UPSTREAM_KEY } from "./prompts.ts";

/** keybearer and the proxies it is measured beside, and how each is started. */

/** Ready to be started. */
export interface Candidate {
  readonly name: string;
  readonly version: string;
  readonly command: Command;
  readonly target: Target;
  /** Where keybearer keeps its usage log; null for all others. */
  readonly stateFolder: string | null;
}

/** What a candidate is set up with: a folder of its own and the port it forwards to. */
export interface Setup {
  readonly folder: string;
  readonly upstreamPort: number;
}

export interface CandidateKind {
  readonly name: string;
  /** Converts requests and answers, so that their bytes differ from the upstream's. */
  readonly converts: boolean;
  /** A path it answers by itself; null when there is none. */
  readonly healthPath: string | null;
  /** null when it is installed, else the reason why it is left out. */
  readonly missing: () => string | null;
  readonly prepare: (setup: Setup) => Promise<Candidate>;
}

export const PROXY_KINDS: readonly CandidateKind[] = [
  {
    name: "http-proxy-3",
    converts: false,
    healthPath: "/healthz",
    missing: () => null,
    prepare: prepareHttpProxy,
  },
  {
    name: "keybearer",
    converts: false,
    healthPath: "/healthz",
    missing: () => null,
    prepare: prepareKeybearer,
  },
  {
    name: "node:http",
    converts: false,
    healthPath: null,
    missing: () => null,
    prepare: prepareNodeHttp,
  },
  {
    name: "nginx",
    converts: false,
    healthPath: null,
    missing: () => (nginxProgram() === null ? "nginx is not installed" : null),
    prepare: prepareNginx,
  },
];

async function prepareHttpProxy({ upstreamPort }: Setup): Promise<Candidate> {
  const port = await freePort();
  return {
    name: "http-proxy-3",
    version: packageVersion(PROJECT_FOLDER, "http-proxy-3") ?? "",
    command: ownProgram("http-proxy-3.js", port, upstreamPort),
    target: { port, basePath: "", headers: {} },
    stateFolder: null,
  };
}

async function prepareNodeHttp({ upstreamPort }: Setup): Promise<Candidate> {
  const port = await freePort();
  return {
    name: "node:http",
    version: process.versions.node,
    command: ownProgram("node-http.js", port, upstreamPort),
    target: { port, basePath: "", headers: {} },
    stateFolder: null,
  };
}

function ownProgram(name: string, port: number, upstreamPort: number): Command {
  const file = fileURLToPath(new URL(name, import.meta.url));
  return { file: process.execPath, args: [file, String(port), String(upstreamPort)] };
}

/** Everything is on: a group, every kind of limit (none is ever reached), prices, the usage log and log lines. */
async function prepareKeybearer({ folder, upstreamPort }: Setup): Promise<Candidate> {
  const port = await freePort();
  const token = makeToken();
  const config = `listen: localhost:${port}
gateways:
  main:
    base_url: http://127.0.0.1:${upstreamPort}/v1
    groups: { bench: { multiplier: 1.5, models: ["bench-*"] } }
prices:
  ${MODEL}: { input: 1.0, output: 4.0 }
tools:
  bench:
    group: bench
    key: ${UPSTREAM_KEY}
    token: sha256:${hashToken(token)}
    limits:
      requests: [900000/second, 900000k/month]
      tokens: 900000k/minute
      spend: [$900000/day, $900000/month]
      concurrent: 900
    quota: $90000000
`;
  writeFileSync(join(folder, "config.yaml"), config, { mode: 0o600 });
  return {
    name: "keybearer",
    version: packageVersion(PROJECT_FOLDER, null) ?? "",
    command: {
      file: process.execPath,
      args: [join(PROJECT_FOLDER, "dist", "cli", "main.js"), "run"],
      env: { KEYBEARER_HOME: folder, HOME: folder },
    },
    target: { port, basePath: "", headers: { authorization: `Bearer ${token}` } },
    stateFolder: join(folder, "state"),
  };
}

function nginxProgram(): string | null {
  // nginx is in sbin, which is not in every PATH.
  const folders = [...(process.env.PATH ?? "").split(":"), "/usr/sbin", "/usr/local/sbin"];
  return folders.map((folder) => join(folder, "nginx")).find((file) => existsSync(file)) ?? null;
}

/** One worker that sets one header. No log, no buffering. */
async function prepareNginx({ folder, upstreamPort }: Setup): Promise<Candidate> {
  const program = nginxProgram();
  if (program === null) throw new Error("nginx is not installed");
  const port = await freePort();
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    .map((name) => `  ${name}_temp_path ${join(folder, name)};`)
    .join("\n");
  const config = `daemon off;
master_process off;
pid ${join(folder, "nginx.pid")};
error_log stderr crit;
events { worker_connections 2048; }
http {
  access_log off;
  keepalive_requests 100000000;
  client_max_body_size 200m;
  client_body_buffer_size 1m;
${temporary}
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
  const { stderr } = spawnSync(program, ["-v"], { encoding: "utf8" });
  return {
    name: "nginx",
    version: /nginx\/([\d.]+)/.exec(stderr)?.[1] ?? "",
    command: { file: program, args: ["-c", file, "-p", folder] },
    target: { port, basePath: "", headers: {} },
    stateFolder: null,
  };
}

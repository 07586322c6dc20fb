import { existsSync } from "node:fs";
import type { Test } from "tap";
import { ROOT } from "./paths.ts";
import { PROGRAM, type SystemManager, startSystemManager } from "./system-manager.ts";

/* A machine with the users alice and bob, a gateway that accepts one key, and the keybearer of alice. */

export const NODE = process.execPath;
export const CANARY = "sk-CANARY-1f9a7c35e2b84d60";
export const PORT = 5397;
const GATEWAY_PORT = 9090;
export const GATEWAY_URL = `http://127.0.0.1:${GATEWAY_PORT}/v1`;

/** Accepts only that key, and shows a key that it was sent in an error. Only root can read this program. */
const GATEWAY = `
  require("http").createServer((request, response) => {
    const key = request.headers.authorization ?? request.headers["x-api-key"] ?? "";
    response.statusCode = request.url === "/v1/echo" ? 400 : key.includes("${CANARY}") ? 200 : 401;
    response.setHeader("content-type", "application/json");
    const models = '{"object":"list","data":[{"id":"m1","object":"model"}]}';
    response.end(request.url === "/v1/echo" ? JSON.stringify({ error: { message: key } }) : models);
  }).listen(${GATEWAY_PORT}, "127.0.0.1");`;

export const CONFIG = `gateway: ${GATEWAY_URL}
tools:
  codex: { key: file:~/.config/keybearer/keys/codex, limits: { spend: $5/day } }
`;

/** The two users, and the gateway that runs. null: no system manager can run here. */
export async function startMachine(t: Test): Promise<SystemManager | null> {
  if (!existsSync(`${ROOT}/dist/cli/main.js`)) throw new Error("build the program first: node src/build.mjs");
  const system = await startSystemManager(t);
  if (system === null) return null;
  for (const user of ["alice", "bob"]) await system.as("root", ["useradd", "-m", "-s", "/bin/sh", user]);
  await system.as("root", ["sh", "-c", "umask 077; cat > /root/gateway.cjs"], GATEWAY);
  await system.as("root", ["systemd-run", "--unit=gateway", NODE, "/root/gateway.cjs"]);
  return system;
}

/** The same, and alice has a keybearer of her own that serves. */
export async function prepare(t: Test): Promise<SystemManager | null> {
  const system = await startMachine(t);
  if (system === null) return null;
  const folder = "/home/alice/.config/keybearer";
  await system.sh("alice", `umask 077; mkdir -p ${folder}/keys; echo ${CANARY} > ${folder}/keys/codex`);
  await system.as("alice", ["sh", "-c", `umask 077; cat > ${folder}/config.yaml`], CONFIG);
  const started = await keybearer(system, "alice", "start");
  t.equal(started.code, 0, started.stderr);
  await takeToken(system, "alice", "codex");
  return system;
}

/** Gives a tool a token, which the user keeps in ~/token. */
export async function takeToken(system: SystemManager, user: string, tool: string): Promise<void> {
  const token = await keybearer(system, user, "tools", "token", tool);
  await system.as(user, ["sh", "-c", "umask 077; cat > ~/token"], token.stdout);
}

export function keybearer(system: SystemManager, user: string, ...args: readonly string[]) {
  return system.as(user, [NODE, PROGRAM, ...args]);
}

/** The status of a request as this user, with the token of a user. */
export async function call(system: SystemManager, user: string, token = "alice"): Promise<string> {
  const text = (await system.sh(token, "cat ~/token")).stdout.trim();
  const url = `http://127.0.0.1:${PORT}/v1/models`;
  const script = `fetch("${url}", { headers: { authorization: "Bearer " + process.argv[1] } }).then((answer) => console.log(answer.status), () => console.log("none"))`;
  return (await system.as(user, [NODE, "-e", script, text])).stdout.trim();
}

export async function install(t: Test, system: SystemManager, ...more: readonly string[]): Promise<void> {
  const args = ["service", "install", "--system", "--owner", "alice", ...more];
  const { code, stderr } = await keybearer(system, "root", ...args);
  t.equal(code, 0, `the system service is installed ${stderr}`);
}

/** What programs of alice see of the system service: each way to the key, and whether it found it. */
export async function attackSystem(system: SystemManager): Promise<Way[]> {
  const pid = await system.sh("root", "systemctl show keybearer --property=MainPID --value");
  const uid = await system.as("alice", ["id", "-u"]);
  return attack(system, {
    pid: pid.stdout.trim(),
    socket: `/run/keybearer/${uid.stdout.trim()}.sock`,
    folder: "/home/alice/.config/keybearer",
  });
}

interface Way {
  readonly name: string;
  readonly found: boolean;
}

/** The same of any keybearer. */
export async function attack(
  system: SystemManager,
  place: { readonly pid: string; readonly socket: string; readonly folder: string },
): Promise<Way[]> {
  const token = (await system.sh("alice", "cat ~/token")).stdout.trim();
  const attacker = "/opt/keybearer/test/service/attacker.mjs";
  const argv = [NODE, attacker, place.pid, String(PORT), token, place.socket, place.folder];
  const { stdout, stderr } = await system.as("alice", argv);
  const lines = stdout.split("\n").filter((line) => line.startsWith("{"));
  if (lines.length < 25) throw new Error(`the attacker stopped early: ${stdout}${stderr}`);
  return lines.map((line) => JSON.parse(line));
}

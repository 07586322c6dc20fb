import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { createPeers } from "../../../src/identity/peer-user.ts";
import { median } from "../report/statistics.ts";

/*
 * What it takes to look up whose a new connection is, once for each, while so many others are open.
 *   node peer-lookup.js
 */

export interface LookupTimes {
  readonly others: number;
  readonly ms: number;
  /** Of the processor. */
  readonly cpuMs: number;
}

const ROUNDS = 50;
const server = createServer().listen(0, "127.0.0.1");
await once(server, "listening");
const { port } = server.address() as AddressInfo;

/** As the server sees it. */
async function open(): Promise<Socket> {
  const accepted = once(server, "connection");
  connect(port, "127.0.0.1");
  const [socket] = await accepted;
  return socket;
}

async function lookUp(others: number): Promise<LookupTimes> {
  for (let n = 0; n < others; n += 1) await open();
  const peers = createPeers();
  const ms: number[] = [];
  const cpuMs: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const socket = await open();
    const [began, cpu] = [performance.now(), process.cpuUsage()];
    if ((await peers.of(socket)) !== "ours") throw new Error("a connection of our own is not known as ours");
    const { user, system } = process.cpuUsage(cpu);
    ms.push(performance.now() - began);
    cpuMs.push((user + system) / 1000);
  }
  return { others, ms: median(ms), cpuMs: median(cpuMs) };
}

process.stdout.write(`${JSON.stringify([await lookUp(0), await lookUp(500)])}\n`);
process.exit();

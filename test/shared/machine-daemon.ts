/*
 * A daemon as a process of its own, whose clock differs from the system's: `node machine-daemon.js <milliseconds>`.
 * Its home is KEYBEARER_HOME. It prints `serves <port>` when it serves. After SIGUSR2 its clock that only goes forward is
 * eleven seconds ahead, as if the machine had been idle for so long.
 */

import { commandPaths } from "../../src/cli/ui/stdio.ts";
import type { Clock } from "../../src/core/clock.ts";
import { LogStream } from "../../src/core/log-stream.ts";
import { startDaemon } from "../../src/daemon/daemon.ts";

const skew = Number(process.argv[2] ?? 0);
const IDLE_MS = 11_000;
let passed = 0;
const clock: Clock = { now: () => Date.now() + skew, elapsed: () => performance.now() + passed };
process.on("SIGUSR2", () => {
  passed += IDLE_MS;
});
const logTo = new LogStream(process.stderr.fd, () => {});

process.umask(0o077);
const daemon = await startDaemon({ paths: commandPaths(), env: process.env, logTo, clock });

async function stop(): Promise<void> {
  await daemon.stop(0);
  logTo.end();
  process.exit(0);
}

process.once("SIGTERM", () => void stop());
process.stdout.write(`serves ${daemon.port}\n`);

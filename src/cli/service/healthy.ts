import { setTimeout as wait } from "node:timers/promises";
import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { type Clock, systemClock } from "../../core/clock.ts";
import { answersAt } from "../../service/answers.ts";
import type { ServiceManager, ServiceState } from "../../service/manager.ts";

export type Health =
  | { readonly ok: true; readonly status: Status; readonly state: ServiceState }
  | { readonly ok: false; readonly why: string; readonly state: ServiceState };

const PATIENCE_MS = 15_000;
const BETWEEN_MS = 200;
const ANSWER_MS = 2000;

/** Waits until the service's own process answers, on its port and on its socket, or has failed. */
export async function whenHealthy(
  manager: ServiceManager,
  socket: string,
  clock: Clock = systemClock,
): Promise<Health> {
  const until = clock.elapsed() + PATIENCE_MS;
  for (;;) {
    const health = await look(manager, socket);
    if (health.ok || health.state.active === "failed" || clock.elapsed() >= until) return health;
    await wait(BETWEEN_MS);
  }
}

async function look(manager: ServiceManager, socket: string): Promise<Health> {
  const [state, asked] = await Promise.all([
    manager.state(),
    askDaemon<Status>(socket, "GET", "/status", undefined, ANSWER_MS),
  ]);
  const not = (why: string): Health => ({ ok: false, why, state });
  if (state.active === "failed") return not("it ended with a failure");
  if (!asked.ok) return not(asked.running ? asked.reason : "it does not answer on its socket yet");
  if (state.pid !== asked.value.pid)
    return not(`another keybearer answers, pid ${asked.value.pid}, not the service`);
  const [address] = asked.value.listen;
  if (address === undefined || !(await answersHealth(address))) return not("/healthz does not answer yet");
  return { ok: true, status: asked.value, state };
}

/** As a load balancer would ask. */
export function answersHealth(address: string): Promise<boolean> {
  return answersAt([address], ANSWER_MS);
}

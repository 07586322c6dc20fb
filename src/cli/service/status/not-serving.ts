import { EXIT } from "../../../core/errors.ts";
import type { ServiceManager } from "../../../service/manager.ts";
import { fail } from "../../ui/messages.ts";
import type { Health } from "../healthy.ts";
import { lastLines } from "../logs/log-lines.ts";
import { exitInWords } from "./exit-words.ts";

/** Our own codes are told on: they mean the same here. */
const OURS: readonly number[] = [EXIT.portTaken, EXIT.alreadyRunning, EXIT.badConfig];

/** The service was told to run and does not: why, as far as anybody knows. `check`: see checkCommand. */
export async function notServing(
  manager: ServiceManager,
  { why, state }: Health & { ok: false },
  check: string,
): Promise<void> {
  const last = state.active === "running" ? null : state.lastExit;
  const exit = last === null || last.code === 0 ? null : exitInWords(last, { check, said: state.said });
  const lines = [
    `the service does not serve: ${why}`,
    `${state.words}${exit === null ? "" : `; ${exit.what}`}`,
    ...(await lastLines(manager, 12)),
    `→ ${exit?.next ?? "keybearer service status"}`,
  ];
  fail(lines.join("\n"), last?.code != null && OURS.includes(last.code) ? last.code : EXIT.failed);
}

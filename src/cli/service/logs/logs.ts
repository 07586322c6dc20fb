import { EXIT } from "../../../core/errors.ts";
import { exitOnClosedOutput, fail } from "../../ui/messages.ts";
import { installedScene } from "../installed-scene.ts";
import type { SceneDeps } from "../scene.ts";
import { reachedManager } from "../without-manager.ts";
import { jsonLine, logLine } from "./log-lines.ts";

export interface LogOptions {
  readonly follow?: boolean;
  readonly lines: string;
  readonly json?: boolean;
}

export async function logs(options: LogOptions, deps: SceneDeps = {}): Promise<void> {
  if (!/^\d{1,6}$/.test(options.lines))
    return fail(`-n takes a whole number, not "${options.lines}"`, EXIT.usage);
  const scene = await installedScene(deps);
  const manager = await reachedManager(scene);
  if (manager === null) return;
  exitOnClosedOutput();
  const stop = new AbortController();
  const onSignal = () => stop.abort();
  process.once("SIGINT", onSignal).once("SIGTERM", onSignal);
  const done = await manager.logs({
    follow: options.follow ?? false,
    lines: Number(options.lines),
    onLine: (line) =>
      void process.stdout.write(`${options.json ? jsonLine(line, manager.kind) : logLine(line)}\n`),
    signal: stop.signal,
  });
  process.off("SIGINT", onSignal).off("SIGTERM", onSignal);
  if (!done.ok) fail(`${done.why}\n→ keybearer service status`, EXIT.failed);
}

import type { EditResult } from "../../config/edit.ts";
import { setMetricsToken } from "../../config/edit-metrics.ts";
import { hashToken, makeToken } from "../../core/token.ts";
import { activeRevision, editConfig, readConfig, waitUntilActive } from "../config-change.ts";
import { notice } from "../ui/messages.ts";
import { commandPaths, stdio } from "../ui/stdio.ts";

export interface MetricsTokenOptions {
  readonly config?: string;
}

/** `keybearer metrics token`. Returns once the daemon accepts the token: a script may use it at once. */
export async function metricsToken(options: MetricsTokenOptions): Promise<void> {
  const paths = commandPaths(options.config);
  const before = await readConfig(paths);
  if (before === null) return;
  const revision = await activeRevision(paths);
  const made = makeToken();
  const edited = await editConfig(
    paths,
    (text): EditResult => setMetricsToken(text, `sha256:${hashToken(made)}`),
  );
  if (edited === null) return;
  const others = before.metrics?.token ? "; the one before has ended" : "";
  notice(`the token for metrics: shown only now; ${paths.config} holds its hash${others}`);
  if (before.metrics === null) notice("metrics were off, and are on now");
  const effect = await waitUntilActive(paths, "", (_tool, now) => now > revision);
  if (effect.state === "not in force") notice({ ...effect, problem: `but ${effect.problem}` });
  // Alone on stdout, so that it can be piped.
  stdio().stdout.write(`${made}\n`);
}

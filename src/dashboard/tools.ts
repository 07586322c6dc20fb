import { editFile } from "../config/edit-file.ts";
import { setEnabled } from "../config/edit-tools.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { Status } from "../control/status.ts";
import type { Clock } from "../core/clock.ts";
import { describeSource } from "../core/key-source.ts";
import type { Logger } from "../core/log.ts";
import { No } from "./answer.ts";
import type { GroupSettings, SwitchAnswer, ToolSettings, ToolsAnswer } from "./api.ts";

export interface ToolsDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly status: () => Promise<Status>;
  readonly snapshot: () => Snapshot;
  /** The daemon's own config.yaml. */
  readonly config: string;
  /** Where tools reach keybearer. */
  readonly origin: () => string;
  readonly sandbox: () => boolean;
  /** Looks at the file now, instead of when the save is noticed. */
  readonly refresh: () => Promise<void>;
}

export async function toolsAnswer({ status, snapshot, origin, sandbox }: ToolsDeps): Promise<ToolsAnswer> {
  const { tools } = await status();
  const { config } = snapshot();
  return {
    tools: tools.flatMap((shown): ToolSettings[] => {
      const tool = config.tools[shown.name];
      // It was removed while the status was put together.
      if (tool === undefined) return [];
      const { enabled, model, tokenInUrl: token_in_url, watchOnly: watch_only } = tool;
      return [{ ...shown, enabled, model, source: describeSource(tool.key), token_in_url, watch_only }];
    }),
    origin: origin(),
    groups: Object.values(config.gateways).flatMap(({ name: gateway, groups }) =>
      Object.entries(groups).map(
        ([name, { multiplier, models, enabled }]): GroupSettings => ({
          gateway,
          name,
          multiplier,
          models,
          enabled,
        }),
      ),
    ),
    sandbox: sandbox(),
  };
}

/** The one thing that the page can change: as `keybearer tools disable` and `enable` do it, by an edit of the file. */
export async function switchTool(
  name: string,
  enabled: boolean,
  deps: ToolsDeps,
): Promise<SwitchAnswer | No> {
  const { config, log, clock } = deps;
  if (deps.snapshot().config.tools[name] === undefined) return new No(404, `there is no tool ${name}`);
  if (deps.sandbox())
    return new No(409, "the sandbox's tool comes from no file. write a config.yaml first → keybearer init");
  const edited = await editFile(config, (text) => setEnabled(text, name, enabled), clock);
  if (!edited.ok) return new No(409, edited.reason);
  const { changed } = edited;
  const done = enabled ? "enabled" : "disabled";
  if (changed) log.warn({ tool: name }, `tool ${name}: ${done} on the dashboard`);
  await deps.refresh();
  return { ok: true, changed, in_force: deps.snapshot().config.tools[name]?.enabled === enabled };
}

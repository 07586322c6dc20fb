import { setEnabled } from "../../config/edit-tools.ts";
import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { PAST } from "../../lifecycle/key-action.ts";
import type { KeyReport } from "../../mirror/report/shape.ts";
import { editConfig, endInFlight, reportEffect, waitUntilActive } from "../config-change.ts";
import { confirmAtConsole, describeKey, requestChange } from "../console-changes.ts";
import { fail, print, printText } from "../ui/messages.ts";
import { canConfirm } from "../ui/prompts.ts";
import { commandPaths } from "../ui/stdio.ts";

interface SwitchOptions {
  readonly now?: boolean;
  readonly atGateway?: boolean;
  readonly yes?: boolean;
  readonly config?: string;
}

/** `keybearer tools disable` */
export async function disable(name: string, options: SwitchOptions): Promise<void> {
  const paths = commandPaths(options.config);
  if (options.atGateway && !canConfirm(advice.changeAtGateway("disable", name), options)) return;
  const confirmed = async () => (await confirmAtConsole(paths, name, "disable", options)) !== null;
  const edited = await editConfig(
    paths,
    (text) => setEnabled(text, name, false),
    options.atGateway ? confirmed : undefined,
  );
  if (edited === null) return;
  print(edited.changed ? `${name} is disabled` : `${name} is disabled already`);
  const effect = await waitUntilActive(paths, name, (tool) => tool?.state === "disabled");
  const cutLater = advice.disableNow(name);
  await endInFlight(paths, name, effect, { now: options.now ?? false, cutLater });
  // Last: the tool's next request gets keybearer's own refusal, not the gateway's.
  if (options.atGateway) await switchKey(paths, name, "disable");
}

/** `keybearer tools enable` */
export async function enable(name: string, options: SwitchOptions): Promise<void> {
  const paths = commandPaths(options.config);
  if (options.atGateway && !canConfirm(advice.changeAtGateway("enable", name), options)) return;
  const confirmed = async () => {
    const key = await confirmAtConsole(paths, name, "enable", options);
    return key !== null && (await switchKey(paths, name, "enable"));
  };
  const edited = await editConfig(
    paths,
    (text) => setEnabled(text, name, true),
    options.atGateway ? confirmed : undefined,
  );
  if (edited === null) return;
  print(edited.changed ? `${name} is enabled` : `${name} is enabled already`);
  const isEnabled = (state: string | undefined) => state !== undefined && state !== "disabled";
  reportEffect(await waitUntilActive(paths, name, (tool) => isEnabled(tool?.state)));
}

/** False: the console did not do it, and the reason was printed. */
async function switchKey(paths: Paths, tool: string, action: "disable" | "enable"): Promise<boolean> {
  const path = `/enablekey/${encodeURIComponent(tool)}`;
  const changed = await requestChange<KeyReport>(paths, path, { enabled: action === "enable" });
  if (!changed.ok) {
    fail(
      [
        {
          problem: `the key of ${tool} was not ${PAST[action]} at the gateway: ${changed.problem}`,
          next: changed.next,
        },
        `by hand: ${action} it in the gateway's console`,
      ],
      EXIT.failed,
    );
    return false;
  }
  const key = changed.value;
  printText(`key ${describeKey(key)} is ${PAST[action]} at the console of ${key.gateway}`);
  return true;
}

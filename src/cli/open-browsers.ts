import type { BrowsersAnswer } from "../control/browsers.ts";
import { askDaemon } from "../control/client.ts";
import { systemClock } from "../core/clock.ts";
import { EXIT } from "../core/errors.ts";
import { fail, notice, print, printJson, printText } from "./ui/messages.ts";
import { commandPaths } from "./ui/stdio.ts";
import { columnsFor, renderTable } from "./ui/table.ts";
import { stdoutScreen } from "./ui/terminal.ts";
import { ago, shortDate } from "./ui/units.ts";

/* The browsers that open the dashboard by a bookmark, without a terminal. */

export async function listBrowsers(isJson: boolean): Promise<void> {
  const asked = await askDaemon<BrowsersAnswer>(commandPaths(), "GET", "/browsers");
  if (!asked.ok) return fail(asked, EXIT.failed);
  const { browsers, why, next } = asked.value;
  if (isJson) return printJson(asked.value);
  if (browsers.length > 0) {
    const now = systemClock.now();
    const { text } = columnsFor(browsers);
    const columns = [
      text("name", 0, ({ name }) => name),
      text("key", 0, ({ fingerprint }) => fingerprint),
      text("made", 2, ({ made_at }) => shortDate(made_at, now)),
      text("last use", 1, ({ used_at }) => `${ago(now - used_at)} ago`),
      text("opens", 3, ({ origin }) => origin),
    ];
    print(...renderTable(columns, stdoutScreen().width).split("\n"));
  }
  if (why !== null) notice({ problem: why, next });
  else if (browsers.length === 0)
    printText("no browser is remembered. the foot of the dashboard has a button");
}

export async function revokeBrowser(name: string): Promise<void> {
  const path = `/revokebrowser/${encodeURIComponent(name)}`;
  const asked = await askDaemon<Record<string, never>>(commandPaths(), "POST", path, {});
  if (!asked.ok) return fail(asked, EXIT.failed);
  printText(`${name} is not remembered any more, and its sessions have ended`);
}

import { Command } from "commander";
import { askDaemon } from "../control/client.ts";
import type { OpenAnswer } from "../control/routes.ts";
import { EXIT, errorMessage } from "../core/errors.ts";
import { findPaths } from "../core/paths.ts";
import { writeRedirect } from "../dashboard/redirect-file.ts";
import { browserFor, needsFile, startBrowser } from "./browser.ts";
import { fail, print } from "./ui/messages.ts";

export function openCommand(): Command {
  return new Command("open")
    .description("open the dashboard in the browser: what runs, what it cost, what is refused")
    .option("--print", "print the address instead; it is good once, for a minute")
    .option("--json", "the same, for programs")
    .action(open);
}

async function open(options: { print?: boolean; json?: boolean }): Promise<void> {
  if (options.print && options.json) return fail("--print or --json, not both", EXIT.usage);
  const { socket, run } = findPaths();
  const asked = await askDaemon<OpenAnswer>(socket, "POST", "/open", {});
  if (!asked.ok) return fail(oldInWords(asked.reason), EXIT.failed);
  const { url, code, expires_in } = asked.value;
  // Behind the #: a browser sends that part to nobody, and writes it into no Referer.
  const address = `${url}#code=${code}`;
  if (options.json)
    return void process.stdout.write(`${JSON.stringify({ url: address, expires_in }, null, 2)}\n`);
  if (options.print) return print(address);
  const browser = browserFor(process.platform, process.env);
  if (browser !== null) {
    try {
      const shown = needsFile(process.platform) ? await writeRedirect(run, address) : address;
      if (await startBrowser(browser, shown, process.env))
        return print(`the dashboard opens in your browser: ${url}`);
    } catch (error) {
      print(`the page that leads the browser there could not be written: ${errorMessage(error)}`);
    }
  }
  print(
    "there is no browser here that could be started. copy this address into one on this machine,",
    `within ${expires_in} s; it is good once:`,
    "",
    address,
  );
}

/** A daemon from before an update knows no dashboard. */
function oldInWords(reason: string): string {
  return reason === "no such control"
    ? "the running keybearer has no dashboard: it is older than this program → restart it"
    : reason;
}

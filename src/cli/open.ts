import { spawn } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { Command } from "commander";
import { askDaemon } from "../control/client.ts";
import type { OpenAnswer } from "../control/routes.ts";
import type { Problem } from "../core/display.ts";
import { EXIT, errorMessage } from "../core/errors.ts";
import type { Paths } from "../core/paths.ts";
import { removeRedirects, writeRedirect } from "../dashboard/redirect-file.ts";
import { listBrowsers, revokeBrowser } from "./open-browsers.ts";
import { fail, print, printJson } from "./ui/messages.ts";
import { commandPaths, stdio } from "./ui/stdio.ts";

export function openCommand(): Command {
  return new Command("open")
    .description("open the dashboard in the browser: what runs, what it cost, what is refused")
    .option("--print", "print the address instead; it works once, for a minute")
    .option("--list", "list the browsers that open it by a bookmark instead")
    .option("--revoke <name>", "end this browser's bookmark and its sessions instead")
    .option("--json", "print the address or the list as JSON")
    .action(open);
}

interface OpenOptions {
  readonly print?: boolean;
  readonly list?: boolean;
  readonly revoke?: string;
  readonly json?: boolean;
}

async function open(options: OpenOptions): Promise<void> {
  const chosen = [options.print, options.list, options.revoke].filter((option) => option !== undefined);
  if (chosen.length > 1) return fail("--print, --list or --revoke, one of them", EXIT.usage);
  if (options.json && options.list === undefined && chosen.length > 0)
    return fail("--json is for the address and for --list", EXIT.usage);
  if (options.list) return listBrowsers(options.json ?? false);
  if (options.revoke !== undefined) return revokeBrowser(options.revoke);
  const paths = commandPaths();
  const asked = await askDaemon<OpenAnswer>(paths, "POST", "/open", {});
  if (!asked.ok) return fail(explain(asked), EXIT.failed);
  const { url, code, expires_in } = asked.value;
  // Browsers neither send the part behind the # nor put it into a Referer.
  const address = `${url}#code=${code}`;
  if (options.json) return printJson({ url: address, expires_in });
  if (options.print) return print(address);
  const browser = browserFor(process.platform, stdio().env);
  if (browser !== null) {
    try {
      const target = needsFile(process.platform) ? await writeOwnRedirect(paths, address) : address;
      if (await startBrowser(browser, target, stdio().env))
        return print(`the dashboard opens in your browser: ${url}`);
    } catch (error) {
      print(`could not write the page that takes the browser there: ${errorMessage(error)}`);
    }
  }
  print(
    "no browser could be started here. open this address in a browser on this machine",
    `within ${expires_in} s; it works once:`,
    "",
    address,
  );
}

/** The daemon removes old pages; of an owner of the system service it sees none. */
async function writeOwnRedirect({ mode, run }: Paths, address: string): Promise<string> {
  if (mode === "system") {
    await mkdir(run, { recursive: true, mode: 0o700 });
    await removeRedirects(run, Date.now());
  }
  return writeRedirect(run, address);
}

/** A daemon from before an update has no dashboard. */
function explain(asked: Problem): Problem {
  if (asked.problem !== "no such control") return asked;
  return {
    problem: "the running keybearer is older than this program and has no dashboard",
    next: "restart it",
  };
}

/** The program that opens an address, and its arguments before the address. No shell is involved. */
type BrowserCommand = readonly [program: string, ...args: string[]];

/** null: there is probably no browser, as over ssh or without a display. */
export function browserFor(platform: string, env: NodeJS.ProcessEnv): BrowserCommand | null {
  if (platform === "darwin") return env.SSH_CONNECTION ? null : ["open"];
  // In WSL the browser is Windows' own.
  if (env.WSL_DISTRO_NAME) return ["wslview"];
  return env.DISPLAY || env.WAYLAND_DISPLAY ? ["xdg-open"] : null;
}

/**
 * Every user of the machine can read a program's arguments. On Linux the daemon checks which user's connection brings the
 * code; elsewhere the browser opens a private file that leads to the address.
 */
export function needsFile(platform: string): boolean {
  return platform !== "linux";
}

/** A program that could not open the address says so within this time. */
const BROWSER_START_MS = 3000;

/** Whether the browser could be started. A program that still runs after a while is the browser itself. */
export function startBrowser(
  [program, ...args]: BrowserCommand,
  address: string,
  env: NodeJS.ProcessEnv,
): Promise<boolean> {
  return new Promise((resolve) => {
    const child = spawn(program, [...args, address], { stdio: "ignore", detached: true, env });
    const timer = setTimeout(() => resolve(true), BROWSER_START_MS);
    const end = (isStarted: boolean) => {
      clearTimeout(timer);
      resolve(isStarted);
    };
    child.once("error", () => end(false));
    child.once("exit", (code) => end(code === 0));
    // The browser outlives this program.
    child.unref();
  });
}

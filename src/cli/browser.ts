import { spawn } from "node:child_process";

/** How an address is handed to the person's browser, without a shell: the program, and what stands before the address. */
export type BrowserCommand = readonly [program: string, ...before: string[]];

/** null: there is none to be expected, as over ssh or without a screen. */
export function browserFor(platform: string, env: NodeJS.ProcessEnv): BrowserCommand | null {
  if (platform === "darwin") return env.SSH_CONNECTION ? null : ["open"];
  // Windows' own browser, from a Linux inside of it.
  if (env.WSL_DISTRO_NAME) return ["wslview"];
  return env.DISPLAY || env.WAYLAND_DISPLAY ? ["xdg-open"] : null;
}

/**
 * Whether the address must not stand in its arguments, which every user of the machine can read. On Linux the daemon sees
 * whose connection it is that comes with the code; elsewhere the browser is led by a file that nobody else reads.
 */
export function needsFile(platform: string): boolean {
  return platform !== "linux";
}

/** So long a program that hands an address on may take to say that it could not. */
const PATIENCE_MS = 3000;

/** Whether it could be started; what is still running after a while is a browser. */
export function startBrowser(
  [program, ...before]: BrowserCommand,
  address: string,
  env: NodeJS.ProcessEnv,
): Promise<boolean> {
  return new Promise((resolve) => {
    const child = spawn(program, [...before, address], { stdio: "ignore", detached: true, env });
    const timer = setTimeout(() => resolve(true), PATIENCE_MS);
    const end = (started: boolean) => {
      clearTimeout(timer);
      resolve(started);
    };
    child.once("error", () => end(false));
    child.once("exit", (code) => end(code === 0));
    // It outlives this program.
    child.unref();
  });
}

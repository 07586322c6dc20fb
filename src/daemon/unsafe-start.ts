import { advice } from "../core/advice.ts";

/**
 * Options of Node that can neither show nor redirect a key. Everything else is refused, options of later versions too:
 * among them are those that open a debugger (--inspect), load other code (--require, --import), write memory, keys of TLS
 * or the environment to files (--heapsnapshot-signal, --tls-keylog, --report-on-signal), and trust other authorities.
 */
const HARMLESS: readonly string[] = [
  "--disable-sigusr1",
  "--disable-warning",
  "--dns-result-order",
  "--enable-fips",
  "--enable-source-maps",
  "--experimental-vm-modules",
  "--expose-gc",
  "--force-fips",
  "--huge-max-old-generation-size",
  "--initial-heap-size",
  "--initial-old-space-size",
  "--jitless",
  "--max-heap-size",
  "--max-http-header-size",
  "--max-old-space-size",
  "--max-old-space-size-percentage",
  "--max-semi-space-size",
  "--min-semi-space-size",
  "--network-family-autoselection",
  "--network-family-autoselection-attempt-timeout",
  "--no-deprecation",
  "--no-network-family-autoselection",
  "--no-warnings",
  "--optimize-for-size",
  "--pending-deprecation",
  "--report-exclude-env",
  "--report-exclude-network",
  "--secure-heap",
  "--secure-heap-min",
  "--stack-size",
  "--stack-trace-limit",
  "--throw-deprecation",
  "--title",
  "--trace-deprecation",
  "--trace-gc",
  "--trace-warnings",
  "--unhandled-rejections",
  "--v8-pool-size",
  "--zero-fill-buffers",
];

/** Variables that Node or a package reads before or behind our back, and what they would do. */
const UNSAFE_VARIABLES: Readonly<Record<string, string>> = {
  NODE_DEBUG: "makes node print keys",
  NODE_DEBUG_NATIVE: "makes node print what it sends",
  NODE_USE_SYSTEM_CA: "adds certificate authorities for every gateway. write ca_file: at the gateway instead",
  NODE_TLS_REJECT_UNAUTHORIZED: "turns off the check of certificates. write ca_file: at the gateway instead",
  NODE_USE_ENV_PROXY: "sends requests through another proxy. write proxy: at the gateway instead",
  NODE_COMPILE_CACHE: "makes node run code from another folder",
  NODE_PATH: "makes node load code from other folders",
  OPENSSL_CONF: "makes node load code and settings from another file",
  OPENSSL_MODULES: "makes node load code from another folder",
  OPENSSL_ENGINES: "makes node load code from another folder",
};

export interface StartedWith {
  readonly env: NodeJS.ProcessEnv;
  /** The options of Node in front of the program. */
  readonly execArgv: readonly string[];
  /** A debugger can connect. */
  readonly inspected: boolean;
}

/** What was set for Node and has no effect on keybearer (proxy/agents.ts); null: nothing. Many companies set it for everything. */
export function ineffectiveStart(env: NodeJS.ProcessEnv): string | null {
  if (!isSet("NODE_EXTRA_CA_CERTS", env.NODE_EXTRA_CA_CERTS)) return null;
  return "NODE_EXTRA_CA_CERTS has no effect on keybearer. if a gateway needs that certificate authority, write ca_file: at the gateway";
}

/**
 * Why a process that was started like this must hold no key, and how to start it otherwise; null: it may.
 *
 * Node obeys its options before our first line runs, so this does not undo what they did. It keeps a person who has them
 * in a shell profile from running for months with a key in reach of others.
 */
export function unsafeStart({ env, execArgv, inspected }: StartedWith): string | null {
  for (const [name, does] of Object.entries(UNSAFE_VARIABLES)) {
    if (isSet(name, env[name])) return `${name} ${does}. ${startWithout(name)}`;
  }
  const options = env.NODE_OPTIONS ?? "";
  // Node takes a backslash away before it reads an option.
  const inVariable = options.includes("\\") ? "a backslash" : options.split(/[\s"]+/).find(isUnsafe);
  if (inVariable !== undefined)
    return `NODE_OPTIONS holds ${nameOf(inVariable)}, which ${describeDanger(inVariable)}. ${startWithout("NODE_OPTIONS")}`;
  const inArguments = execArgv.find(isUnsafe);
  if (inArguments !== undefined)
    return `node was started with ${nameOf(inArguments)}, which ${describeDanger(inArguments)}. start without it: ${advice.run()}`;
  if (inspected)
    return "a debugger is open, and any program that connects to it can read every key. start keybearer without it";
  return null;
}

function describeDanger(option: string): string {
  return nameOf(option).endsWith("-ca")
    ? "changes the certificate authorities of every gateway. write ca_file: at the gateway instead"
    : "can reveal or redirect keys";
}

function startWithout(variable: string): string {
  return `start without it: ${advice.runWithout(variable)}`;
}

/** An empty variable does nothing; the launchd agent sets some so. These do something with one value only. */
function isSet(name: string, value: string | undefined): boolean {
  if (name === "NODE_TLS_REJECT_UNAUTHORIZED") return value === "0";
  if (name === "NODE_USE_SYSTEM_CA" || name === "NODE_USE_ENV_PROXY") return value === "1";
  return value !== undefined && value !== "";
}

/** Node takes an underscore for a dash. Words that do not begin with a dash are values of the option before them. */
function isUnsafe(word: string): boolean {
  return word.startsWith("-") && !HARMLESS.includes(nameOf(word).replaceAll("_", "-"));
}

/** Without its value, which may be anything. */
function nameOf(option: string): string {
  return option.split("=", 1)[0] ?? "";
}

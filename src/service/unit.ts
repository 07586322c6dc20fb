import { type InstalledService, PATH_VARIABLES, type ServiceSpec } from "./spec.ts";

/** The first line of every unit that keybearer writes. */
const MARK = /^# keybearer unit (\d{1,6})$/;
const BEGIN_NAMESPACES = "# begin namespaces";
const END_NAMESPACES = "# end namespaces";
const NO_NAMESPACES =
  "# (no namespaces, so no read-only view of the file system; service/README.md says why)";
/** `command:` sources keep temporary files here, and agents their sockets. */
const TEMPORARY = ["/tmp", "/var/tmp"];

/** Fills this machine's paths into the template. Comments and everything else stay. */
export function renderUnit(template: string, spec: ServiceSpec): string {
  const lines = spec.namespaces ? template.split("\n") : withoutNamespaces(template.split("\n"));
  const { node, main, config, environment } = spec;
  const writable = [...new Set([...spec.writable, ...TEMPORARY])];
  const filled: Record<string, readonly string[]> = {
    "ExecStart=": [`ExecStart=:${quote(node)} ${quote(main)} run --config ${quote(config)}`],
    "Environment=": Object.entries(environment).map(
      ([name, value]) => `Environment=${quote(`${name}=${value}`)}`,
    ),
    // Killed during the drain, the daemon would break streams off and lose their records.
    "TimeoutStopSec=": [`TimeoutStopSec=${spec.stopSeconds}s`],
    // With the dash, systemd ignores a missing folder, and the daemon explains what is wrong with it.
    "ReadWritePaths=": [`ReadWritePaths=${writable.map((folder) => quote(`-${folder}`)).join(" ")}`],
  };
  return lines.flatMap((line) => filled[/^[A-Za-z]+=/.exec(line)?.[0] ?? ""] ?? [line]).join("\n");
}

function withoutNamespaces(lines: readonly string[]): string[] {
  const begin = lines.indexOf(BEGIN_NAMESPACES);
  const end = lines.indexOf(END_NAMESPACES);
  return [...lines.slice(0, begin), NO_NAMESPACES, ...lines.slice(end + 1)];
}

/**
 * Quotes one word as systemd.syntax(7) says. A dollar sign needs no escape: the colon of ExecStart= turns variables off,
 * and Environment= and ReadWritePaths= have none.
 */
export function quote(text: string): string {
  return `"${text.replace(/[\\"]/g, "\\$&").replaceAll("%", "%%")}"`;
}

/** The replacements for %h and %t in systemd.unit(5). A unit that was copied by hand contains them. */
export interface Specifiers {
  readonly home: string;
  /** $XDG_RUNTIME_DIR. */
  readonly runtime: string;
}

/** null: keybearer did not write this unit. */
export function readUnit(text: string, specifiers: Specifiers): InstalledService | null {
  const lines = text.split(/\r?\n/);
  const format = MARK.exec(lines[0] ?? "")?.[1];
  const start = listValues("ExecStart=", lines)[0];
  if (format === undefined || start === undefined) return null;
  const [node, main, run, flag, config, ...more] = unquote(start.replace(/^:/, ""), specifiers);
  if (run !== "run" || flag !== "--config" || config === undefined || more.length > 0) return null;
  if (node === undefined || main === undefined) return null;
  const environment: Record<string, string> = {};
  for (const variable of listValues("Environment=", lines).flatMap((value) => unquote(value, specifiers))) {
    const equals = variable.indexOf("=");
    const name = variable.slice(0, equals);
    if (PATH_VARIABLES.includes(name)) environment[name] = variable.slice(equals + 1);
  }
  const namespaces = listValues("PrivateUsers=", lines).some((value) =>
    /^(?:yes|true|on|1)\s*$/i.test(value),
  );
  const stop = /^(\d+)s?$/.exec(listValues("TimeoutStopSec=", lines).at(-1) ?? "")?.[1];
  const stopSeconds = stop === undefined ? null : Number(stop);
  return { node, main, config, environment, namespaces, logFile: null, stopSeconds, format: Number(format) };
}

function listValues(name: string, lines: readonly string[]): string[] {
  return lines.filter((line) => line.startsWith(name)).map((line) => line.slice(name.length));
}

/** Reads what `quote` writes, and plain words. */
function unquote(text: string, { home, runtime }: Specifiers): string[] {
  const replacements = new Map([
    ["%%", "%"],
    ["%h", home],
    ["%t", runtime],
  ]);
  return [...text.matchAll(/"((?:[^"\\]|\\.)*)"|([^\s"]+)/g)].map(([, quoted, plain]) =>
    (quoted?.replace(/\\(.)/g, "$1") ?? plain ?? "").replace(
      /%./g,
      (specifier) => replacements.get(specifier) ?? specifier,
    ),
  );
}

/** The variables that the unit removes from the daemon's environment. */
export function unsetVariables(template: string): string[] {
  return listValues("UnsetEnvironment=", template.split("\n")).flatMap((value) => value.split(" "));
}

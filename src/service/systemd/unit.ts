import { type InstalledUnit, PLACE_VARIABLES, type ServiceSpec, specFault } from "../spec.ts";

/** The first line of every unit of ours, of whichever format. */
const MARK = /^# keybearer unit (\d{1,6})$/;
const BEGIN = "# begin namespaces";
const END = "# end namespaces";
const LEFT_OUT = "# (no namespaces: the file system is as everybody sees it; service/README.md says why)";
/** Where programs leave temporary files, and the sockets of agents are. */
const TEMPORARY = ["/tmp", "/var/tmp"];

/** The template with the paths of this machine. Comments and all else stay as they are. */
export function unitText(template: string, spec: ServiceSpec): string {
  const fault = specFault(spec, "systemd");
  if (fault !== null) throw new Error(fault);
  const lines = spec.namespaces ? template.split("\n") : withoutNamespaces(template.split("\n"));
  const { node, main, config } = spec;
  const paths = { ...(spec.home === null ? {} : { KEYBEARER_HOME: spec.home }), ...spec.environment };
  const variables = Object.entries({ PATH: spec.path, ...paths });
  const writable = [...new Set([...spec.writable, ...TEMPORARY])];
  const filled = new Map([
    ["ExecStart=", [`ExecStart=:${[node, main].map(word).join(" ")} run --config ${word(config)}`]],
    ["Environment=", variables.map(([name, value]) => `Environment=${word(`${name}=${value}`)}`)],
    // The dash: a folder that is not there is the daemon's to complain of, in words.
    ["ReadWritePaths=", [`ReadWritePaths=${writable.map((folder) => word(`-${folder}`)).join(" ")}`]],
  ]);
  for (const name of filled.keys()) {
    const count = lines.filter((line) => line.startsWith(name)).length;
    if (count !== 1 && (spec.namespaces || name !== "ReadWritePaths=")) {
      throw new Error(`the template of the unit has ${count} lines that begin with ${name}, not one`);
    }
  }
  return lines.flatMap((line) => filled.get(/^[A-Za-z]+=/.exec(line)?.[0] ?? "") ?? [line]).join("\n");
}

/** What to run to see whether this machine can do what the part on namespaces asks for: it can if this exits with 0. */
export function namespaceTrial(template: string): string[] {
  const lines = template.split("\n");
  const part = lines.slice(lines.indexOf(BEGIN) + 1, lines.indexOf(END));
  const properties = part.filter((line) => /^[A-Z]/.test(line) && !line.startsWith("ReadWritePaths="));
  const options = ["--user", "--wait", "--collect", "--quiet", "--service-type=exec"];
  return ["systemd-run", ...options, ...properties.map((line) => `--property=${line}`), "/bin/true"];
}

function withoutNamespaces(lines: readonly string[]): string[] {
  const [begin, end] = [lines.indexOf(BEGIN), lines.indexOf(END)];
  if (begin === -1 || end < begin) throw new Error("the template of the unit does not mark its namespaces");
  return [...lines.slice(0, begin), LEFT_OUT, ...lines.slice(end + 1)];
}

/**
 * One word as systemd.syntax(7) reads it. A dollar sign needs nothing: the colon of ExecStart= turns variables off
 * there, and Environment= and ReadWritePaths= know none.
 */
function word(text: string): string {
  return `"${text.replace(/[\\"]/g, "\\$&").replaceAll("%", "%%")}"`;
}

/** The variables that the unit takes away from the daemon and from what it starts. */
export function clearedBy(template: string): string[] {
  return valuesOf("UnsetEnvironment=", template.split("\n")).flatMap((value) => value.split(" "));
}

/** What systemd.unit(5) puts in place of %h and %t. A unit that was copied by hand has them. */
export interface Specifiers {
  readonly home: string;
  /** $XDG_RUNTIME_DIR. */
  readonly runtime: string;
}

/** null: not a unit of ours. Without `specifiers`, they stay as they are. */
export function readUnit(text: string, specifiers?: Specifiers): InstalledUnit | null {
  const lines = text.split(/\r?\n/);
  const format = MARK.exec(lines[0] ?? "")?.[1];
  const start = valuesOf("ExecStart=", lines)[0];
  if (format === undefined || start === undefined) return null;
  const [node, main, run, flag, config, ...more] = words(start.replace(/^:/, ""), specifiers);
  if (run !== "run" || flag !== "--config" || config === undefined || more.length > 0) return null;
  if (node === undefined || main === undefined) return null;
  const variables = valuesOf("Environment=", lines).flatMap((value) => words(value, specifiers));
  const set = new Map(variables.map((variable) => split(variable)));
  const namespaces = valuesOf("PrivateUsers=", lines).some((value) => /^(?:yes|true|on|1)\s*$/i.test(value));
  return {
    ...{ node, main, config, home: set.get("KEYBEARER_HOME") ?? null, namespaces, format: Number(format) },
    environment: Object.fromEntries([...set].filter(([name]) => PLACES.includes(name))),
  };
}

const PLACES: readonly string[] = PLACE_VARIABLES;

function valuesOf(name: string, lines: readonly string[]): string[] {
  return lines.filter((line) => line.startsWith(name)).map((line) => line.slice(name.length));
}

function split(variable: string): [name: string, value: string] {
  const at = variable.indexOf("=");
  return [variable.slice(0, at), variable.slice(at + 1)];
}

/** Reads what `word` writes, and plain words. */
function words(text: string, specifiers: Specifiers | undefined): string[] {
  const meant = new Map([["%%", "%"]]);
  if (specifiers !== undefined) meant.set("%h", specifiers.home).set("%t", specifiers.runtime);
  return [...text.matchAll(/"((?:[^"\\]|\\.)*)"|([^\s"]+)/g)].map(([, quoted, plain]) =>
    (quoted?.replace(/\\(.)/g, "$1") ?? plain ?? "").replace(/%./g, (all) => meant.get(all) ?? all),
  );
}

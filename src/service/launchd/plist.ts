import { type InstalledUnit, PLACE_VARIABLES, type ServiceSpec, specFault } from "../spec.ts";

const MARK = /^<!-- keybearer agent (\d{1,6}) -->$/m;
const ARGUMENTS = /(<key>ProgramArguments<\/key>\s*<array>)([\s\S]*?)(<\/array>)/;

/** The template with the paths of this machine. Comments and all else stay as they are. */
export function plistText(template: string, spec: ServiceSpec): string {
  const fault = specFault(spec, "launchd");
  if (fault !== null) throw new Error(fault);
  const { node, main, config, home, environment, logFile } = spec;
  const argv = [node, main, "run", "--config", config].map((text) => `\n    ${stringOf(text)}`).join("");
  const paths = Object.entries({ ...(home === null ? {} : { KEYBEARER_HOME: home }), ...environment });
  const variables = paths.map(([name, value]) => `\n    <key>${name}</key>\n    ${stringOf(value)}`).join("");
  return [
    { place: ARGUMENTS, value: `${argv}\n  ` },
    { place: stringAt("PATH"), value: stringOf(spec.path), after: variables },
    { place: stringAt("StandardOutPath"), value: stringOf(logFile) },
    { place: stringAt("StandardErrorPath"), value: stringOf(logFile) },
  ].reduce(fill, template);
}

/** The value of a key, between its two neighbours. */
function stringAt(key: string): RegExp {
  return new RegExp(`(<key>${key}</key>\\s*)(<string>[^<]*</string>)()`);
}

interface Filling {
  readonly place: RegExp;
  readonly value: string;
  readonly after?: string;
}

function fill(text: string, { place, value, after = "" }: Filling): string {
  if (!place.test(text)) throw new Error(`the template of the agent has nothing like ${place.source}`);
  // By a function: in a string, a dollar sign of a path would stand for something else.
  return text.replace(
    place,
    (_all, before: string, _old, behind: string) => `${before}${value}${behind}${after}`,
  );
}

function stringOf(text: string): string {
  return `<string>${text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")}</string>`;
}

/** null: not an agent of ours. */
export function readPlist(text: string): InstalledUnit | null {
  const format = MARK.exec(text)?.[1];
  const argv = ARGUMENTS.exec(text)?.[2];
  if (format === undefined || argv === undefined) return null;
  const words = [...argv.matchAll(/<string>([^<]*)<\/string>/g)].map(([, word]) => plainOf(word ?? ""));
  const [node, main, run, flag, config, ...more] = words;
  if (run !== "run" || flag !== "--config" || config === undefined || more.length > 0) return null;
  if (node === undefined || main === undefined) return null;
  const environment = PLACE_VARIABLES.flatMap((name) => {
    const value = valueAt(name, text);
    return value === null ? [] : [[name, value] as const];
  });
  return {
    ...{ node, main, config, home: valueAt("KEYBEARER_HOME", text), format: Number(format) },
    ...{ environment: Object.fromEntries(environment), namespaces: false },
  };
}

function valueAt(key: string, text: string): string | null {
  const found = stringAt(key).exec(text)?.[2];
  return found === undefined ? null : plainOf(found.slice("<string>".length, -"</string>".length));
}

function plainOf(text: string): string {
  return text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}

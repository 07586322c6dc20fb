import { type InstalledService, PATH_VARIABLES, type ServiceSpec } from "./spec.ts";

/** A comment in every property list that keybearer writes. */
const MARK = /^<!-- keybearer agent (\d{1,6}) -->$/m;
const EXIT_TIME_OUT = /(<key>ExitTimeOut<\/key>\s*<integer>)(\d+)/;
const ARGUMENTS = /(<key>ProgramArguments<\/key>\s*<array>)([\s\S]*?)(<\/array>)/;

/** What a property list starts, and how. */
interface PlistSpec extends Pick<ServiceSpec, "environment" | "logFile" | "stopSeconds"> {
  readonly argv: readonly string[];
}

/** Fills this machine's paths into the template. Comments and everything else stay. */
export function renderPlist(template: string, spec: ServiceSpec): string {
  return fillPlist(template, { ...spec, argv: [spec.node, spec.main, "run", "--config", spec.config] });
}

interface DaemonSpec extends PlistSpec {
  readonly label: string;
  readonly user: string;
  /** Has no two hyphens in a row, which XML does not allow in a comment. */
  readonly comment: string;
}

/** A LaunchDaemon with a user of its own, from the template of the agent: only the template's comments do not apply to it. */
export function renderDaemonPlist(template: string, { label, user, comment, ...spec }: DaemonSpec): string {
  const owner = `  <key>UserName</key>\n  ${xml(user)}\n  <key>GroupName</key>\n  ${xml(user)}`;
  return fillPlist(template, spec)
    .replace(/ *<!--[\s\S]*?-->\n/g, "")
    .replace(valuePattern("Label"), (_all, key) => `${key}${xml(label)}\n${owner}`)
    .replace("<plist ", () => `<!-- ${comment} -->\n<plist `);
}

function fillPlist(template: string, { argv, environment, stopSeconds, logFile }: PlistSpec): string {
  const { PATH = "", ...variables } = environment;
  const entries = Object.entries(variables).map(
    ([name, value]) => `\n    <key>${name}</key>\n    ${xml(value)}`,
  );
  // Replacements are functions, because a dollar sign in a replacement string has a meaning.
  return (
    template
      .replace(
        ARGUMENTS,
        (_all, before, _old, after) =>
          `${before}${argv.map((word) => `\n    ${xml(word)}`).join("")}\n  ${after}`,
      )
      .replace(valuePattern("PATH"), (_all, key) => `${key}${xml(PATH)}${entries.join("")}`)
      // Killed during the drain, the daemon would break streams off and lose their records.
      .replace(EXIT_TIME_OUT, (_all, key) => `${key}${stopSeconds}`)
      .replace(valuePattern("StandardOutPath"), (_all, key) => `${key}${xml(logFile)}`)
      .replace(valuePattern("StandardErrorPath"), (_all, key) => `${key}${xml(logFile)}`)
  );
}

function valuePattern(key: string): RegExp {
  return new RegExp(`(<key>${key}</key>\\s*)<string>([^<]*)</string>`);
}

function xml(text: string): string {
  return `<string>${text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")}</string>`;
}

/** null: keybearer did not write this property list. */
export function readPlist(text: string): InstalledService | null {
  const format = MARK.exec(text)?.[1];
  const argv = ARGUMENTS.exec(text)?.[2];
  if (format === undefined || argv === undefined) return null;
  const [node, main, run, flag, config, ...more] = [...argv.matchAll(/<string>([^<]*)<\/string>/g)].map(
    ([, word = ""]) => plainText(word),
  );
  if (run !== "run" || flag !== "--config" || config === undefined || more.length > 0) return null;
  if (node === undefined || main === undefined) return null;
  const environment: Record<string, string> = {};
  for (const name of PATH_VARIABLES) {
    const value = readValue(name, text);
    if (value !== null) environment[name] = value;
  }
  const logFile = readValue("StandardErrorPath", text);
  const stop = EXIT_TIME_OUT.exec(text)?.[2];
  const stopSeconds = stop === undefined ? null : Number(stop);
  return { node, main, config, environment, namespaces: false, logFile, stopSeconds, format: Number(format) };
}

function readValue(key: string, text: string): string | null {
  const value = valuePattern(key).exec(text)?.[2];
  return value === undefined ? null : plainText(value);
}

function plainText(text: string): string {
  return text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}

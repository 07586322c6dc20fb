import { Command } from "commander";
import { EXIT } from "../../core/errors.ts";
import { findPaths } from "../../core/paths.ts";
import type { Finding } from "../../doctor/findings.ts";
import { screenOf } from "../ui/terminal.ts";
import { findingsInWords, type Paint } from "./words.ts";

export function doctorCommand(): Command {
  return new Command("doctor")
    .description("check everything, and say what to do about what is wrong")
    .option("--json", "for programs")
    .option("-c, --config <file>", "another file than your own config.yaml")
    .action(doctor);
}

async function doctor(options: { json?: boolean; config?: string }): Promise<void> {
  const { env, stdout } = process;
  // Only now: every other command would wait for all of it, too.
  const { examine } = await import("./examine.ts");
  const { serviceFindings } = await import("./service-findings.ts");
  const { createContext } = await import("../service/context.ts");
  const { scanSettings } = await import("../../doctor/settings-scan.ts");
  const paths = findPaths({ config: options.config });
  const service = await createContext({ config: options.config });
  const findings = await examine({
    paths,
    env,
    now: Date.now(),
    node: { version: process.version, path: process.execPath },
    service: {
      installed: (await service.manager?.found())?.kind === "ours",
      findings: () => serviceFindings(service),
    },
    elsewhere: ({ keys, ports, config }) =>
      scanSettings({
        ...{ env, keys, ports, home: paths.home, platform: process.platform },
        cwd: process.cwd(),
        tools: Object.keys(config?.tools ?? {}),
        sources: Object.values(config?.tools ?? {}).flatMap(({ key }) =>
          key.kind === "env" ? [key.name] : [],
        ),
      }),
  });
  const paint = stdout.isTTY && !env.NO_COLOR && env.TERM !== "dumb" ? coloured : plain;
  stdout.write(
    options.json
      ? `${JSON.stringify({ ok: isWell(findings), findings }, null, 2)}\n`
      : findingsInWords(findings, screenOf(env, stdout.columns), paint),
  );
  process.exitCode = isWell(findings) ? EXIT.ok : EXIT.failed;
}

function isWell(findings: readonly Finding[]): boolean {
  return findings.every(({ level }) => level !== "problem");
}

const plain: Paint = (word) => word;

const COLOURS = { ok: 32, warning: 33, problem: 31 } as const;

const coloured: Paint = (word, level) => `\u001b[${COLOURS[level]}m${word}\u001b[39m`;

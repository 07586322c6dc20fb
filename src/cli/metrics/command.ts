import { Command } from "commander";
import type { MetricsTokenOptions } from "./token.ts";

export function metricsCommand(): Command {
  const metrics = new Command("metrics").description("let Prometheus read metrics");
  metrics
    .command("token")
    .summary("make the token for metrics and print it once")
    .description(
      "make the token with which a program of another user reads the metrics, and print it once; the one before ends",
    )
    .option("-c, --config <file>", "use this config.yaml instead of your own")
    .action(async (options: MetricsTokenOptions) => (await import("./token.ts")).metricsToken(options));
  return metrics;
}

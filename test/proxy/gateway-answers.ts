import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../doubles/paths.ts";

/** An error that a real gateway gave on its relay, and what keybearer must make of it. */
export interface GatewayAnswer {
  /** The programs that gave it, with their versions. */
  readonly seen: string;
  readonly isNewApi: boolean;
  /** `x-oneapi-request-id`. */
  readonly requestId: string | undefined;
  /** What was wrong. */
  readonly when: string;
  readonly status: number;
  readonly cause: string;
  readonly detail: string | null;
  /** Word for word. Only the ids are replaced: the gateway's own by 20261117X, as in its headers, a provider's by 20261117Y. */
  readonly body: string;
}

/** gateway-answers.tsv: seen, when, status, cause, detail, body. Recorded from the real programs in November 2026. */
export function gatewayAnswers(): GatewayAnswer[] {
  const text = readFileSync(join(ROOT, "test/proxy/gateway-answers.tsv"), "utf8");
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const [seen = "", when = "", status = "", cause = "", detail = "", body = ""] = line.split("\t");
      return {
        seen,
        isNewApi: seen.startsWith("new-api"),
        requestId: seen.startsWith("new-api") ? "20261117X" : undefined,
        when,
        status: Number(status),
        cause,
        detail: detail === "-" ? null : detail,
        body,
      };
    });
}

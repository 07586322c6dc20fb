import { request } from "node:http";
import { hasCode } from "../core/errors.ts";
import { PEER_HEADER } from "./routes.ts";
import type { TailLine } from "./tail.ts";

export interface FollowDeps {
  readonly socket: string;
  line(line: TailLine): void;
  /** Called once. `final`: trying again would not help. */
  ended(end: { readonly reason: string; readonly final: boolean }): void;
}

export interface Following {
  /** Nothing more is read, so that what waits stays with the daemon, which bounds it. */
  pause(): void;
  resume(): void;
}

/** Follows the running daemon's records until the connection ends. */
export function followTail(deps: FollowDeps): Following {
  let over = false;
  let pause = (): void => {};
  let resume = (): void => {};
  const end = (reason: string, final: boolean) => {
    if (over) return;
    over = true;
    deps.ended({ reason, final });
  };
  const headers = { [PEER_HEADER]: String(process.pid) };
  const asking = request({ socketPath: deps.socket, method: "GET", path: "/tail", headers }, (answer) => {
    let rest = "";
    pause = () => void answer.pause();
    resume = () => void answer.resume();
    answer.setEncoding("utf8");
    answer.on("data", (text: string) => {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      if (answer.statusCode === 200) for (const line of lines) deps.line(JSON.parse(line));
    });
    answer.on("error", () => {});
    answer.on("close", () => {
      if (answer.statusCode === 200) return end("keybearer stopped", false);
      // 503 while it starts. Everything else is an answer.
      end(refusalOf(answer.statusCode, rest), answer.statusCode !== 503);
    });
  });
  asking.on("error", (error) => {
    const absent = hasCode(error, "ENOENT", "ECONNREFUSED");
    end(absent ? "keybearer is not running" : error.message, false);
  });
  asking.end();
  return { pause: () => pause(), resume: () => resume() };
}

function refusalOf(status: number | undefined, body: string): string {
  if (status === 404)
    return "the running keybearer cannot be followed: it is older than this program → restart it";
  try {
    return String(JSON.parse(body).error);
  } catch {
    return `keybearer answered ${status}`;
  }
}

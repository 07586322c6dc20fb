import { spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Test } from "tap";
import { until } from "./until.ts";

/**
 * The service manager's end of NOTIFY_SOCKET: a real datagram socket. Node has none of that kind, perl does, and is
 * part of every Debian and of macOS.
 */
export interface NotifySocket {
  /** For NOTIFY_SOCKET. */
  readonly address: string;
  /** What came, one datagram each, without the barriers that a sender waits for. */
  readonly messages: readonly string[];
  /** Resolves once a message like this has come, at or after the given place in the list, with its place. */
  came(what: RegExp, from?: number): Promise<number>;
}

/** Prints one line of hexadecimal digits for each datagram. The first, empty one says that it listens. */
const RECEIVER = `
  use Socket; $| = 1;
  my $name = $ARGV[0]; $name =~ s/^@/\\0/;
  socket(my $socket, PF_UNIX, SOCK_DGRAM, 0) or die "socket: $!";
  bind($socket, pack_sockaddr_un($name)) or die "bind: $!";
  print "\\n";
  while (defined(recv($socket, my $text, 65536, 0))) { print unpack("H*", $text), "\\n"; }
`;

/** What is missing here for a real message to a real socket, in words; null when nothing is. */
export function cannotNotify(): string | null {
  if (!existsSync("/usr/bin/systemd-notify")) return "there is no systemd-notify";
  return spawnSync("perl", ["-e", "use Socket"]).status === 0 ? null : "there is no perl";
}

export async function openNotifySocket(t: Test, home: string, abstract = false): Promise<NotifySocket> {
  const address = abstract ? `@keybearer-test-${process.pid}` : join(home, "notify");
  const child = spawn("perl", ["-e", RECEIVER, address], { stdio: ["ignore", "pipe", "inherit"] });
  t.teardown(() => child.kill("SIGKILL"));
  const lines: string[] = [];
  createInterface({ input: child.stdout }).on("line", (line) =>
    lines.push(Buffer.from(line, "hex").toString()),
  );
  await until("the receiver listens", () => lines.length > 0);
  lines.length = 0;
  const messages = () => lines.filter((line) => line !== "BARRIER=1");
  const find = (what: RegExp, from: number) =>
    messages().findIndex((line, index) => index >= from && what.test(line));
  return {
    address,
    get messages() {
      return messages();
    },
    async came(what, from = 0) {
      await until(`${what} on the notify socket`, () => find(what, from) !== -1);
      return find(what, from);
    },
  };
}

import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, get, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t from "tap";
import { systemClock } from "../../src/core/clock.ts";
import type { HttpError } from "../../src/core/errors.ts";
import { LogReader } from "../../src/dashboard/log-reader.ts";
import { sendCsv } from "../../src/dashboard/usage-api.ts";
import { openIndexForReading } from "../../src/usage/index/database.ts";
import { makeIndex } from "../doubles/journal.ts";
import { NO_USAGE } from "../doubles/no-usage.ts";
import { plausible } from "../doubles/records.ts";
import { until } from "../doubles/until.ts";

const RECORDS = 20_000;
const PATIENCE_MS = 300;
const folder = mkdtempSync(join(tmpdir(), "kb-"));
const file = makeIndex(folder, plausible(RECORDS, Date.UTC(2026, 9, 1), 30));
const reader = new LogReader((waitMs) => openIndexForReading(file, waitMs), NO_USAGE, systemClock);

/** What became of each download, in the order in which they began. */
const sent: { readonly res: ServerResponse; result: "pending" | "sent" | HttpError }[] = [];
const server = createServer((_req, res) => {
  const one: (typeof sent)[number] = { res, result: "pending" };
  sent.push(one);
  sendCsv(new URLSearchParams(), res, reader, PATIENCE_MS).then(
    () => {
      one.result = "sent";
    },
    (error: HttpError) => {
      one.result = error;
      if (!res.headersSent) res.writeHead(error.status).end();
    },
  );
});
server.listen(0, "127.0.0.1");
await once(server, "listening");
t.teardown(() => {
  server.close();
  server.closeAllConnections();
  rmSync(folder, { recursive: true, force: true });
});

async function download(): Promise<IncomingMessage> {
  const asked = get({ port: (server.address() as AddressInfo).port, host: "127.0.0.1", agent: false });
  const [answer] = (await once(asked, "response")) as [IncomingMessage];
  return answer;
}

t.test("a long download waits for its reader many times, and leaves no listener behind", async (t) => {
  const answer = await download();
  const { res } = sent.at(-1) ?? {};
  let [lines, most] = [0, 0];
  for await (const chunk of answer) {
    lines += String(chunk).split("\r\n").length - 1;
    most = Math.max(most, res?.listenerCount("close") ?? 0, res?.listenerCount("drain") ?? 0);
  }
  t.equal(lines, RECORDS + 1);
  t.ok(most <= 4, `at most ${most} listeners`);
});

t.test(
  "of three downloads at once the third is refused, and those that are not read are cut off",
  async (t) => {
    const before = sent.length;
    const stalled = [await download(), await download()];
    const failed = stalled.map((answer) => once(answer.pause(), "error").then(([error]) => error));
    const third = await download();
    t.equal(third.statusCode, 503);
    third.resume();
    t.match(sent.at(-1)?.result, { message: /2 downloads are running/ });
    await until("both are over", () => sent.slice(before).every(({ result }) => result !== "pending"));
    for (const answer of stalled) answer.resume();
    t.match(
      await Promise.all(failed),
      [{ message: "aborted" }, { message: "aborted" }],
      "neither looks whole",
    );
    const again = await download();
    t.equal(again.statusCode, 200, "and another one may start");
    again.destroy();
    await until("it has ended with its reader", () => sent.at(-1)?.result !== "pending");
  },
);

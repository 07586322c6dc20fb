import { once } from "node:events";
import { createServer, get, type IncomingMessage, type ServerResponse } from "node:http";
import { join } from "node:path";
import t, { type Test } from "tap";
import type { HttpError } from "../../src/core/errors.ts";
import { UsageQuestions } from "../../src/dashboard/usage-api.ts";
import { Indexer } from "../../src/usage/index/indexer.ts";
import { newHome } from "../doubles/command.ts";
import { makeIndex } from "../doubles/journal.ts";
import { listen } from "../doubles/listen.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { record } from "../doubles/records.ts";
import { HANG_MS, until } from "../doubles/until.ts";

/** Together they are more than the buffers of a connection hold. */
const RECORDS = Array.from({ length: 2_000 }, (_, n) => record(n, { model: "m".repeat(4_000) }));

/** A server that sends the log as CSV, to readers that may stall for so long. */
async function startServer(t: Test) {
  const home = await newHome(t);
  const indexer = new Indexer({
    file: makeIndex(home, RECORDS),
    folder: join(home, "usage"),
    log: quietLog(),
  });
  t.teardown(() => indexer.stop());
  const usage = new UsageQuestions(indexer.ask);
  /** What became of each download, in the order in which they began. */
  const sent: { readonly res: ServerResponse; result: "pending" | "sent" | HttpError }[] = [];
  const limits = { stallMs: HANG_MS };
  const server = createServer((_req, res) => {
    const one: (typeof sent)[number] = { res, result: "pending" };
    sent.push(one);
    usage.download(new URLSearchParams(), res, new AbortController().signal, limits.stallMs).then(
      () => {
        one.result = "sent";
      },
      (error: HttpError) => {
        one.result = error;
        if (!res.headersSent) res.writeHead(error.status).end();
      },
    );
  });
  const { port } = await listen(t, server);
  const download = async (): Promise<IncomingMessage> => {
    const asked = get({ port, host: "127.0.0.1", agent: false });
    const [answer] = (await once(asked, "response")) as [IncomingMessage];
    return answer;
  };
  return { sent, limits, download };
}

t.test("downloads of the log", async (t) => {
  const { sent, limits, download } = await startServer(t);

  await t.test(
    "a long download waits for its reader many times, and leaves no listener behind",
    async (t) => {
      const answer = await download();
      const { res } = sent.at(-1) ?? {};
      let [lines, most] = [0, 0];
      for await (const chunk of answer) {
        // Not "\r\n", in the middle of which a chunk may end.
        lines += String(chunk).split("\n").length - 1;
        most = Math.max(most, res?.listenerCount("close") ?? 0, res?.listenerCount("drain") ?? 0);
      }
      t.equal(lines, RECORDS.length + 1);
      t.ok(most <= 6, `at most ${most} listeners`);
    },
  );

  await t.test("a third download at once is refused, and another one may start later", async (t) => {
    const before = sent.length;
    const stalled = [(await download()).pause(), (await download()).pause()];
    const third = await download();
    t.equal(third.statusCode, 503);
    third.resume();
    t.match(sent.at(-1)?.result, { message: /2 downloads are running/ });
    for (const answer of stalled) answer.on("error", () => {}).destroy();
    await until("both have ended", () => sent.slice(before).every(({ result }) => result !== "pending"));
    const again = await download();
    t.equal(again.statusCode, 200);
    again.on("error", () => {}).destroy();
    await until("it has ended", () => sent.at(-1)?.result !== "pending");
  });

  await t.test("a download that nothing reads is cut, and does not look complete", async (t) => {
    limits.stallMs = 50;
    const answer = (await download()).pause();
    const failed = once(answer, "error");
    await until("the download has ended", () => sent.at(-1)?.result !== "pending");
    answer.resume();
    t.match(await failed, [{ message: "aborted" }]);
  });
});

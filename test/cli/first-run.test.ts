import { connect } from "node:net";
import t from "tap";
import { bareEnv, command, newHome, start, startProgram } from "../doubles/command.ts";

/** The sandbox has no configuration, so it is served on the default port or not at all. */
const PORT = 5397;

function isFree(host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port: PORT }, () => {
      socket.destroy();
      resolve(false);
    });
    socket.once("error", () => resolve(true));
  });
}

t.test(
  "a newcomer without a config.yaml pastes the lines it prints, and the mirror shows them",
  async (t) => {
    if (!(await isFree("127.0.0.1")) || !(await isFree("::1"))) {
      return void t.skip(`port ${PORT} is in use on this machine`, async () => {});
    }
    const home = await newHome(t);
    const running = start(t, home, ["run"]);
    await running.says(/takes over as soon as it is saved\n/);
    const printed = running.stdout();
    t.equal(
      /https?:\/\/[^\s/]+/.exec(printed)?.[0],
      `http://localhost:${PORT}`,
      "its own address comes first",
    );
    t.match(printed, `your own gateway: keybearer init (or write ${home}/config.yaml`);
    const lines = printed.split("\n").filter((line) => line.startsWith("curl "));
    t.equal(lines.length, 4);

    const [list, chat, stream, straight] = await Promise.all(
      lines.map((line) => startProgram(t, "/bin/sh", ["-c", line], bareEnv(home)).ended),
    );
    t.ok(JSON.parse(list?.stdout ?? "").data.some(({ id }: { id: string }) => id.startsWith("sandbox-")));
    t.match(JSON.parse(chat?.stdout ?? "").choices[0].message.content, /hello/);
    const chunks = (stream?.stdout ?? "").split("\n").filter((line) => line.startsWith("data: "));
    t.ok(chunks.length > 3, `${chunks.length} chunks`);
    t.equal(chunks.at(-1), "data: [DONE]");
    t.match(JSON.parse(straight?.stdout ?? "").choices[0].message.content, /hello/);

    t.match(await command(t, home, ["mirror", "sync"]), { code: 0 });
    const mirror = await command(t, home, ["mirror", "--json"]);
    const [sandbox] = JSON.parse(mirror.stdout);
    t.match(sandbox, { gateway: "sandbox", kind: "sub2api", state: "ok", rows: { total: 3, by_id: 2 } });
    t.equal(sandbox.rows.pending + sandbox.rows.foreign_certain, 1, "what went past keybearer");

    running.child.kill("SIGINT");
    t.match(await running.ended, { code: 0 });
  },
);

import { connect } from "node:net";
import t from "tap";
import { bareEnv, newHome, start, startProgram } from "../doubles/command.ts";

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

t.test("a newcomer without a config.yaml pastes three lines, and each is answered", async (t) => {
  if (!(await isFree("127.0.0.1")) || !(await isFree("::1"))) {
    t.comment(`SKIPPED: port ${PORT} is in use on this machine`);
    return;
  }
  const home = await newHome(t);
  const running = start(t, home, ["run"]);
  await running.says(/takes over as soon as it is saved\n/);
  const printed = running.stdout();
  t.equal(/https?:\/\/[^\s/]+/.exec(printed)?.[0], `http://localhost:${PORT}`, "its own address comes first");
  t.match(printed, `${home}/config.yaml`);
  const lines = printed.split("\n").filter((line) => line.startsWith("curl "));
  t.equal(lines.length, 3);

  const [list, chat, stream] = await Promise.all(
    lines.map((line) => startProgram(t, "/bin/sh", ["-c", line], bareEnv(home)).ended),
  );
  t.ok(JSON.parse(list?.stdout ?? "").data.some(({ id }: { id: string }) => id.startsWith("sandbox-")));
  t.match(JSON.parse(chat?.stdout ?? "").choices[0].message.content, /hello/);
  const chunks = (stream?.stdout ?? "").split("\n").filter((line) => line.startsWith("data: "));
  t.ok(chunks.length > 3, `${chunks.length} chunks`);
  t.equal(chunks.at(-1), "data: [DONE]");

  running.child.kill("SIGINT");
  t.match(await running.ended, { code: 0 });
});

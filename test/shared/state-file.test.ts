import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { StateFile } from "../../src/shared/state-file.ts";
import { newFolder } from "../usage/journal/journal-under-test.ts";

t.test(
  "the name of a connection is on the disk before it is used, also if the first write failed",
  async (t) => {
    const folder = join(newFolder(t), "state");
    const path = join(folder, "shared.json");
    writeFileSync(folder, "not a folder");
    const file = new StateFile(path);
    await t.rejects(file.nextConnection());
    rmSync(folder);
    const connections = await file.nextConnection();
    t.strictSame(JSON.parse(readFileSync(path, "utf8")).connections, connections);
    t.equal(connections.length, 1);
  },
);

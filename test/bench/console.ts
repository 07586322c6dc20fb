import { startSub2api } from "../doubles/consoles/sub2api.ts";
import { UPSTREAM_KEY } from "./prompts.ts";

/*
 * A gateway with a console that lists every request, in a process of its own.
 */

const double = await startSub2api({ teardown: () => {} });
double.addKey({ name: "bench", key: UPSTREAM_KEY });
process.send?.({ port: Number(new URL(double.url).port) });
process.once("disconnect", () => process.exit());

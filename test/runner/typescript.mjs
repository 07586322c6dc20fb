import nodeModule from "node:module";
import { load } from "./hooks.mjs";

// Node 20 has only the hooks that run in a thread of their own; Node 26 warns of them.
const [major, minor] = process.versions.node.split(".").map(Number);
if (major >= 26 || (major === 24 && minor >= 13)) nodeModule.registerHooks({ load });
else nodeModule.register("./hooks.mjs", import.meta.url);

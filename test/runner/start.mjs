// The first thing every test file's process runs: NODE_OPTIONS in package.json's tap block.
import nodeModule, { syncBuiltinESMExports } from "node:module";
// Before the hook for our own files: it looks at every module, in a thread of its own, and tap has hundreds.
import "tap";
import "./typescript.mjs";

// Its own TypeScript loader stays at home: it costs seconds a file.
process.env.TAP_TYPE_STRIP_ONLY = "1";
// tap would look at every module, too, and at all of every program a test starts: for a coverage that is not measured
// and for mocks that there are none of. That is most of what a small test file costs and half of what each program
// costs, and a program would not run in the environment the test gave it.
process.env.__TAPJS_PROCESSINFO_TESTING_NO_REGISTER__ = String(process.pid);
nodeModule.register = () => {};
nodeModule.registerHooks = () => ({ deregister: () => {} });
syncBuiltinESMExports();

// What a test starts starts as a person would start it; a TypeScript file of ours with what it takes to read it.
delete process.env.NODE_OPTIONS;
process.execArgv = ["--enable-source-maps", `--import=${new URL("typescript.mjs", import.meta.url)}`];

import { FRAME } from "./zh/frame.ts";
import { MIRROR } from "./zh/mirror.ts";
import { NOW } from "./zh/now.ts";
import { REFUSALS } from "./zh/refusals.ts";
import { TOOLS } from "./zh/tools.ts";
import { USAGE } from "./zh/usage.ts";

export const ZH = { ...FRAME, ...NOW, ...REFUSALS, ...TOOLS, ...USAGE, ...MIRROR } as const;

import { FRAME } from "./en/frame.ts";
import { MIRROR } from "./en/mirror.ts";
import { NOW } from "./en/now.ts";
import { REFUSALS } from "./en/refusals.ts";
import { TOOLS } from "./en/tools.ts";
import { USAGE } from "./en/usage.ts";

export const EN = { ...FRAME, ...NOW, ...REFUSALS, ...TOOLS, ...USAGE, ...MIRROR } as const;

import { DOWNLOAD_PATH, KEY, PLAIN_PATH } from "../upstream/bodies.ts";
import type { Upstreams } from "../upstream/upstreams.ts";
import type { Kind, Ways } from "./candidate.ts";

/** The upstream itself: what is left when nothing stands in between. */
export function direct(): Kind {
  return {
    name: "direct",
    title: "straight to the upstream",
    version: () => "",
    missing: "",
    prepare: async (_scene, upstreams) => ({ command: null, port: 0, ways: directWays(upstreams) }),
  };
}

function directWays({ plain, stream }: Upstreams): Ways {
  const headers = { authorization: `Bearer ${KEY}` };
  return {
    plain: { url: `${plain}${PLAIN_PATH}`, headers },
    stream: { url: `${stream}${PLAIN_PATH}`, headers },
    download: { url: `${plain}${DOWNLOAD_PATH}`, headers },
  };
}

/** For a candidate that tells the two upstreams apart by the first part of the path. */
export function prefixedWays(port: number, headers: Readonly<Record<string, string>>): Ways {
  const origin = `http://127.0.0.1:${port}`;
  return {
    plain: { url: `${origin}/plain${PLAIN_PATH}`, headers },
    stream: { url: `${origin}/stream${PLAIN_PATH}`, headers },
    download: { url: `${origin}/plain${DOWNLOAD_PATH}`, headers },
  };
}

import { options, render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Banners } from "./components/banners.tsx";
import { Footer } from "./components/footer.tsx";
import { Header } from "./components/header.tsx";
import { LinkNotice } from "./components/link-notice.tsx";
import { type Frame, FrameContext, type PageProps } from "./frame.tsx";
import { createClient } from "./live/client.ts";
import { createLive, isStopped, type LiveState } from "./live/live.ts";
import { codeOf, createSession } from "./live/session.ts";
import { chooseLanguage, createTranslate } from "./messages/messages.ts";
import { MirrorPage } from "./pages/mirror.tsx";
import { NowPage } from "./pages/now.tsx";
import { ToolsPage } from "./pages/tools.tsx";
import { UsagePage } from "./pages/usage.tsx";
import { hrefOf, type PageName, type Route, routeOf } from "./route.ts";

/** The page's beginning: the one file that acts when it is loaded. */
function start(root: HTMLElement): void {
  const clock = () => Date.now();
  const language = chooseLanguage(navigator.languages);
  document.documentElement.lang = language;
  const session = createSession(() => sessionStorage);
  const client = createClient(session);
  const live = createLive({ client, session, now: clock });
  // The code must not stay in the address or in the history, used or not.
  const takeCode = () => {
    const code = codeOf(location.hash);
    if (code !== null) history.replaceState(null, "", `${location.pathname}#/now`);
    return code;
  };
  void live.open(takeCode());
  addEventListener("hashchange", () => {
    const code = takeCode();
    if (code !== null) void live.open(code);
  });
  document.addEventListener("visibilitychange", () => live.look(document.visibilityState === "visible"));
  // Opened in a tab behind this one.
  if (document.visibilityState === "hidden") live.look(false);
  root.textContent = "";
  spellOutSteering();
  render(<App frame={{ t: createTranslate(language), language, client, live, clock }} />, root);
}

const root = document.getElementById("page");
if (root !== null) start(root);

const PAGE_OF = {
  now: NowPage,
  usage: UsagePage,
  tools: ToolsPage,
  mirror: MirrorPage,
} as const satisfies Record<PageName, (props: PageProps) => unknown>;

function App({ frame }: { readonly frame: Frame }) {
  const state = useLiveState(frame);
  const [route, setRoute] = useState<Route>(() => routeOf(location.hash));
  const main = useRef<HTMLElement>(null);
  useEffect(() => {
    const read = () => setRoute(routeOf(location.hash));
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);
  useTitle(frame, route.page, main);
  const setQuery: PageProps["setQuery"] = (query, how = "push") => {
    const href = hrefOf(route.page, query);
    if (how === "replace") history.replaceState(null, "", href);
    else history.pushState(null, "", href);
    setRoute(routeOf(href));
  };
  const Page = PAGE_OF[route.page];
  const { link, now } = state;
  const shut = link.state === "no-session" || (now === null && isStopped(link));
  return (
    <FrameContext.Provider value={frame}>
      <Header page={route.page} state={state} onSkip={() => main.current?.focus()} />
      <main id="main" ref={main} tabIndex={-1}>
        <LinkNotice state={state} />
        {shut ? null : <Banners now={now} brief={route.page === "usage" || route.page === "tools"} />}
        {shut ? null : <Page key={route.page} state={state} query={route.query} setQuery={setQuery} />}
      </main>
      <Footer now={now} />
    </FrameContext.Provider>
  );
}

function useLiveState({ live }: Frame): LiveState {
  const [state, setState] = useState(live.state);
  useEffect(() => {
    setState(live.state());
    return live.subscribe(() => setState(live.state()));
  }, [live]);
  return state;
}

/** On another page a screen reader begins at its top; a changed filter leaves the focus alone. */
function useTitle({ t }: Frame, page: PageName, main: { readonly current: HTMLElement | null }): void {
  const shown = useRef(page);
  useEffect(() => {
    document.title = `${t(`${page}.title`)} · keybearer`;
    if (shown.current === page) return;
    shown.current = page;
    main.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [page, t, main]);
}

/** Control characters and turns of direction; a line break and a tab belong to what is there to be copied. */
const STEERING = /(?![\t\n])[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu;

/** The name of a model comes from whoever asks, and an error's words from the gateway: neither may turn ours around. */
function steeringSpelledOut(text: string): string {
  return text.replace(STEERING, (one) => `\\u{${(one.codePointAt(0) ?? 0).toString(16)}}`);
}

/** For every text of the page, in whichever part of it. What is asked for by its name still has it as it is. */
function spellOutSteering(): void {
  options.vnode = (vnode: { props: unknown }) => {
    // A text is a node of its own, whose properties are the text.
    if (typeof vnode.props === "string") vnode.props = steeringSpelledOut(vnode.props);
    else spellOutNames(vnode.props);
  };
}

/** What is read out, or shown under the pointer. */
function spellOutNames(props: unknown): void {
  if (typeof props !== "object" || props === null) return;
  const named = props as Record<string, unknown>;
  for (const name of ["title", "aria-label"]) {
    const text = named[name];
    if (typeof text === "string") named[name] = steeringSpelledOut(text);
  }
}

import { useEffect, useRef, useState } from "preact/hooks";
import type { Action } from "../actions/action.ts";
import { ActContext } from "./act.ts";
import type { ActionForm } from "./action-form.ts";
import { ActionDialog } from "./components/action-dialog.tsx";
import { CardsLine } from "./components/cards.tsx";
import { Footer } from "./components/footer.tsx";
import { Header } from "./components/header.tsx";
import { LinkNotice } from "./components/link-notice.tsx";
import { Shortcuts } from "./components/shortcuts.tsx";
import { type Frame, FrameContext, type PageProps } from "./frame.tsx";
import type { LiveState } from "./live/live.ts";
import { BillPage } from "./pages/bill.tsx";
import { EventsPage } from "./pages/events.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { ToolsPage } from "./pages/tools.tsx";
import { UsagePage } from "./pages/usage.tsx";
import { hrefOf, type PageName, type Route, routeOf } from "./route.ts";

const PAGE_OF = {
  overview: OverviewPage,
  usage: UsagePage,
  tools: ToolsPage,
  bill: BillPage,
  events: EventsPage,
} as const satisfies Record<PageName, (props: PageProps) => unknown>;

export function App({ frame }: { readonly frame: Frame }) {
  const state = useLiveState(frame);
  const [route, setRoute] = useState<Route>(() => routeOf(location.hash));
  const main = useRef<HTMLElement>(null);
  const [asked, setAsked] = useState<Action | ActionForm | null>(null);
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
  // Before the first state there may be no session yet, and an answer to a page's question would say that it is over.
  const shut = link.state === "no-session" || now === null;
  return (
    <FrameContext.Provider value={frame}>
      <ActContext.Provider value={setAsked}>
        <Header page={route.page} state={state} onSkip={() => main.current?.focus()} />
        <main id="main" ref={main} tabIndex={-1}>
          <LinkNotice state={state} />
          {shut || route.page === "overview" ? null : <CardsLine now={now} />}
          {shut ? null : <Page key={route.page} state={state} query={route.query} setQuery={setQuery} />}
        </main>
        <Footer now={now} />
        <Shortcuts />
        {asked === null ? null : (
          <ActionDialog
            key={JSON.stringify(asked)}
            asked={asked}
            onDone={() => frame.live.changed()}
            onClose={() => setAsked(null)}
          />
        )}
      </ActContext.Provider>
    </FrameContext.Provider>
  );
}

function useLiveState({ live }: Frame): LiveState {
  const [state, setState] = useState(() => live.state());
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

import { useEffect, useState } from "preact/hooks";
import { useFrame } from "../frame.tsx";
import { hrefOf, PAGES } from "../route.ts";
import { Dialog } from "./dialog.tsx";
import { type Pair, Pairs } from "./panel.tsx";

/** The page's keys: `g` and the first letter of a page's name, `/` for the search field, `?` for this list. */
export function Shortcuts() {
  const { t } = useFrame();
  const [isShown, setShown] = useState(false);
  useEffect(() => {
    let isGoing = false;
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      const page = isGoing ? PAGES.find((each) => each[0] === event.key) : undefined;
      isGoing = event.key === "g";
      if (page !== undefined) location.hash = hrefOf(page);
      else if (event.key === "?") setShown(true);
      else if (event.key === "/") {
        event.preventDefault();
        document.querySelector<HTMLInputElement>('main input[type="search"]')?.focus();
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  if (!isShown) return null;
  const pages = PAGES.map((page): Pair => [t(`${page}.title`), <kbd>g {page[0]}</kbd>]);
  return (
    <Dialog title={t("keys.title")} onClose={() => setShown(false)}>
      <Pairs pairs={[...pages, [t("word.search"), <kbd>/</kbd>], [t("keys.list"), <kbd>?</kbd>]]} />
    </Dialog>
  );
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("input, select, textarea, dialog") !== null;
}

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

/** A table without focusable cells. Where it is too wide, the keyboard must be able to scroll it. */
export function TableWrap({ children }: { readonly children: ComponentChildren }) {
  const wrap = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = wrap.current;
    if (element === null) return;
    const read = () => {
      if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
      else element.removeAttribute("tabindex");
    };
    const watch = new ResizeObserver(read);
    for (const each of [element, ...element.children]) watch.observe(each);
    return () => watch.disconnect();
  }, []);
  return (
    <div class="table-wrap" ref={wrap}>
      {children}
    </div>
  );
}

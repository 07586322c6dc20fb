import { useState } from "preact/hooks";
import type { BrowsersAnswer, RememberedBrowser } from "../../../control/browsers.ts";
import { useAct } from "../act.ts";
import { NAME, type Values } from "../action-form.ts";
import { dayOf } from "../format.ts";
import { useFrame } from "../frame.tsx";
import { type BrowserKey, makeBrowserKey, readBrowserKeys, takeIntoUse } from "../live/browser-key.ts";
import { wordsOf } from "../live/failed.ts";
import { useAnswer } from "../use-answer.ts";
import { ActionDialog } from "./action-dialog.tsx";
import { Dialog } from "./dialog.tsx";
import { Form, type FormProblem } from "./form.tsx";
import { Table } from "./table.tsx";

interface NewBrowser {
  readonly name: string;
  readonly key: BrowserKey;
}

/** The button that remembers this browser, so that a bookmark opens the dashboard without a terminal. */
export function Bookmark() {
  const { t, live } = useFrame();
  const [isOpen, setOpen] = useState(false);
  const [made, setMade] = useState<NewBrowser | null>(null);
  const close = () => setOpen(false);
  // Only now: until then the key that this browser had is in use.
  const remembered = (key: BrowserKey) => void takeIntoUse(key).then(() => live.changed());
  return (
    <>
      <button type="button" class="plain" onClick={() => setOpen(true)}>
        {t("bookmark.open")}
      </button>
      {isOpen ? (
        <BookmarkDialog
          onMade={(browser) => {
            close();
            setMade(browser);
          }}
          onClose={close}
        />
      ) : null}
      {made === null ? null : (
        <ActionDialog
          asked={{ kind: "remember-browser", name: made.name, public_key: made.key.publicKey }}
          onDone={() => remembered(made.key)}
          onClose={() => setMade(null)}
        />
      )}
    </>
  );
}

interface BookmarkDialogProps {
  readonly onMade: (browser: NewBrowser) => void;
  readonly onClose: () => void;
}

function BookmarkDialog({ onMade, onClose }: BookmarkDialogProps) {
  const { t, client } = useFrame();
  const asked = useAnswer(async (signal) => {
    const answer = await client.get("/api/browsers", undefined, signal);
    return { answer, keys: await readBrowserKeys() };
  }, []);
  return (
    <Dialog title={t("bookmark.title")} onClose={onClose}>
      <p>{t("bookmark.lead")}</p>
      {asked.failure === null ? null : <p role="alert">{t("frame.failed", { why: asked.failure })}</p>}
      {asked.value === null ? null : (
        <Remembered answer={asked.value.answer} own={asked.value.keys} onMade={onMade} onClose={onClose} />
      )}
    </Dialog>
  );
}

interface RememberedProps extends BookmarkDialogProps {
  readonly answer: BrowsersAnswer;
  /** The keys of this browser. */
  readonly own: readonly BrowserKey[];
}

function Remembered({ answer: { browsers, why, next }, own, onMade, onClose }: RememberedProps) {
  const { t } = useFrame();
  const itself = browsers.find((each) => own.some(({ publicKey }) => publicKey === each.public_key));
  return (
    <>
      {why === null ? null : (
        <p class="wrong" role="alert">
          {why}
          {next === null ? "" : ` → ${next}`}
        </p>
      )}
      {browsers.length === 0 ? null : <Browsers browsers={browsers} onClose={onClose} />}
      {itself === undefined ? null : <p>{t("bookmark.this", { name: itself.name })}</p>}
      {why === null && itself === undefined ? <Remember onMade={onMade} /> : null}
    </>
  );
}

interface BrowsersProps {
  readonly browsers: readonly RememberedBrowser[];
  readonly onClose: () => void;
}

function Browsers({ browsers, onClose }: BrowsersProps) {
  const { t } = useFrame();
  const act = useAct();
  const revoke = (name: string) => {
    onClose();
    act({ kind: "revoke-browser", name });
  };
  return (
    <Table
      caption={t("bookmark.list")}
      rows={browsers}
      keyOf={({ name }) => name}
      columns={[
        { id: "name", title: t("bookmark.name"), cell: ({ name }) => name },
        { id: "used", title: t("bookmark.used"), cell: ({ used_at }) => dayOf(used_at) },
        {
          id: "revoke",
          title: t("bookmark.revoke"),
          cell: ({ name }) => (
            <button type="button" class="plain" onClick={() => revoke(name)}>
              {t("bookmark.revoke")}
              <span class="visually-hidden"> {name}</span>
            </button>
          ),
        },
        { id: "key", title: t("bookmark.key"), cell: ({ fingerprint }) => <code>{fingerprint}</code> },
        { id: "made", title: t("bookmark.made"), cell: ({ made_at }) => dayOf(made_at) },
      ]}
    />
  );
}

function Remember({ onMade }: Pick<BookmarkDialogProps, "onMade">) {
  const { t } = useFrame();
  const [problem, setProblem] = useState<FormProblem | null>(null);
  const fields = () => [
    {
      name: "name",
      label: t("bookmark.name"),
      initial: nameOf(navigator.userAgent),
      check: (text: string) => (NAME.test(text) ? null : t("form.wrong.name")),
    },
  ];
  const make = ({ name = "" }: Values) => {
    makeBrowserKey().then(
      (key) => onMade({ name, key }),
      (error: unknown) => setProblem({ field: null, text: wordsOf(error) }),
    );
  };
  return <Form fields={fields} problem={problem} busy={false} onSubmit={make} />;
}

/** A first proposal: most people have one browser of a kind. */
function nameOf(userAgent: string): string {
  const [found = "browser"] = /Firefox|Edg|Chrome|Safari/.exec(userAgent) ?? [];
  return found === "Edg" ? "edge" : found.toLowerCase();
}

/**
 * What a hostile page can do to another origin. The code is the body of an async function of `at`, which makes an address
 * that contains the attack's name, and `token`, a valid one. It returns what the page could read of the answer.
 */
export interface Attack {
  readonly name: string;
  readonly code: string;
}

const loaded = (make: string) => `return new Promise((done) => {
  const element = ${make};
  element.onload = () => done("");
  element.onerror = () => done("");
  document.body.append(element);
});`;

const read = (init: string) => `const answer = await fetch(at("/v1/models"), ${init});
return answer.type === "opaque" ? "" : answer.status + (await answer.text());`;

const framed = (attributes: string, script: string) => `return new Promise((done) => {
  const frame = document.createElement("iframe");
  ${attributes}
  frame.srcdoc = "<script>(async () => {" + ${script} + "})().then((x) => parent.postMessage(x || '', '*'), () => parent.postMessage('', '*'))</scr" + "ipt>";
  addEventListener("message", (event) => { if (event.source === frame.contentWindow) done(event.data); });
  document.body.append(frame);
});`;

const form = (method: string, encoding: string) => `return new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.name = "frame-" + Math.random();
  document.body.append(frame);
  const form = document.createElement("form");
  Object.assign(form, { method: "${method}", enctype: "${encoding}", target: frame.name, action: at("/v1/chat/completions") });
  const field = document.createElement("input");
  Object.assign(field, { name: '{"model":"m","x":"', value: '"}' });
  // A form that GETs brings its own query.
  const name = document.createElement("input");
  Object.assign(name, { name: "attack", value: new URL(at("/")).searchParams.get("attack") });
  form.append(name, field);
  document.body.append(form);
  frame.onload = () => {
    let text = "";
    try { text = frame.contentDocument.body.innerText; } catch {}
    if (frame.contentDocument?.URL !== "about:blank") done(text);
  };
  form.submit();
});`;

const socket = (protocols: string) => `return new Promise((done) => {
  const socket = new WebSocket(at("/v1/realtime").replace("http:", "ws:"), ${protocols});
  socket.onopen = () => done("open");
  socket.onerror = () => done("");
});`;

/** They need no preflight: the browser sends them at once, so only the guard stops them. */
export const SIMPLE_ATTACKS: readonly Attack[] = [
  { name: "img", code: loaded('Object.assign(new Image(), { src: at("/v1/models") })') },
  {
    name: "img-no-referrer",
    code: loaded('Object.assign(new Image(), { referrerPolicy: "no-referrer", src: at("/v1/models") })'),
  },
  {
    name: "img-crossorigin",
    code: loaded('Object.assign(new Image(), { crossOrigin: "anonymous", src: at("/v1/models") })'),
  },
  {
    name: "script",
    code: loaded('Object.assign(document.createElement("script"), { src: at("/v1/models") })'),
  },
  {
    name: "module",
    code: loaded(
      'Object.assign(document.createElement("script"), { type: "module", src: at("/v1/models") })',
    ),
  },
  {
    name: "stylesheet",
    code: loaded(
      'Object.assign(document.createElement("link"), { rel: "stylesheet", href: at("/v1/models") })',
    ),
  },
  {
    name: "preload",
    code: loaded(
      'Object.assign(document.createElement("link"), { rel: "preload", as: "fetch", href: at("/v1/models") })',
    ),
  },
  {
    name: "video",
    code: `return new Promise((done) => {
      const video = document.createElement("video");
      video.onerror = () => done("");
      video.src = at("/v1/models");
    });`,
  },
  {
    name: "object",
    code: loaded('Object.assign(document.createElement("object"), { data: at("/v1/models") })'),
  },
  {
    name: "iframe",
    code: loaded('Object.assign(document.createElement("iframe"), { src: at("/v1/models") })'),
  },
  { name: "fetch-cors", code: read('{ mode: "cors" }') },
  { name: "fetch-no-cors", code: read('{ mode: "no-cors" }') },
  { name: "fetch-credentials", code: read('{ mode: "no-cors", credentials: "include" }') },
  { name: "fetch-no-referrer", code: read('{ mode: "no-cors", referrerPolicy: "no-referrer" }') },
  { name: "fetch-post-text", code: read('{ method: "POST", mode: "no-cors", body: "{}" }') },
  { name: "fetch-post-cors", code: read('{ method: "POST", body: "{}" }') },
  { name: "fetch-head", code: read('{ method: "HEAD", mode: "no-cors" }') },
  {
    name: "fetch-healthz",
    code: `return (await fetch(at("/healthz", ""))).text();`,
  },
  {
    name: "xhr",
    code: `return new Promise((done) => {
      const asking = new XMLHttpRequest();
      asking.open("POST", at("/v1/chat/completions"));
      asking.onloadend = () => done(asking.responseText);
      asking.send("{}");
    });`,
  },
  { name: "beacon", code: `navigator.sendBeacon(at("/v1/chat/completions"), "{}"); return "";` },
  {
    name: "event-source",
    code: `return new Promise((done) => {
      const source = new EventSource(at("/v1/models"));
      source.onopen = () => done("open");
      source.onmessage = (event) => done(event.data);
      source.onerror = () => { source.close(); done(""); };
    });`,
  },
  { name: "websocket", code: socket("[]") },
  { name: "websocket-protocols", code: socket('["realtime", "openai-insecure-api-key." + token]') },
  { name: "form-post", code: form("post", "text/plain") },
  { name: "form-get", code: form("get", "application/x-www-form-urlencoded") },
  {
    name: "ping",
    code: `const a = document.createElement("a");
    Object.assign(a, { href: "#here", ping: at("/v1/chat/completions") });
    document.body.append(a);
    a.click();
    return "";`,
  },
  {
    name: "redirected",
    code: `const answer = await fetch("/redirect?to=" + encodeURIComponent(at("/v1/models")), { method: "POST", mode: "no-cors", body: "{}" });
    return answer.type === "opaque" ? "" : answer.text();`,
  },
  {
    name: "sandboxed-no-cors",
    code: framed(
      'frame.sandbox = "allow-scripts";',
      `"await fetch('" + at("/v1/models") + "', { mode: 'no-cors' })"`,
    ),
  },
  {
    name: "sandboxed-post",
    code: framed(
      'frame.sandbox = "allow-scripts";',
      `"return (await fetch('" + at("/v1/models") + "', { method: 'POST', body: '{}' })).text()"`,
    ),
  },
  {
    name: "sandboxed-websocket",
    code: framed(
      'frame.sandbox = "allow-scripts";',
      `"return new Promise((d) => { const s = new WebSocket('" + at("/v1/realtime").replace("http:", "ws:") + "'); s.onopen = () => d('open'); s.onerror = () => d(''); })"`,
    ),
  },
  {
    name: "worker",
    code: `return new Promise((done) => {
      const text = "fetch('" + at("/v1/models") + "', { mode: 'no-cors' }).finally(() => postMessage(''))";
      const worker = new Worker(URL.createObjectURL(new Blob([text])));
      worker.onmessage = (event) => done(event.data);
    });`,
  },
];

/** They carry a token in a header, or another method: the browser asks with OPTIONS before it sends them. */
export const PREFLIGHTED_ATTACKS: readonly Attack[] = [
  { name: "fetch-authorization", code: read('{ headers: { authorization: "Bearer " + token } }') },
  { name: "fetch-x-api-key", code: read('{ headers: { "x-api-key": token } }') },
  {
    name: "fetch-json",
    code: read('{ method: "POST", headers: { "content-type": "application/json" }, body: "{}" }'),
  },
  { name: "fetch-delete", code: read('{ method: "DELETE" }') },
  { name: "fetch-options", code: read('{ method: "OPTIONS" }') },
  {
    name: "xhr-authorization",
    code: `return new Promise((done) => {
      const asking = new XMLHttpRequest();
      asking.open("GET", at("/v1/models"));
      asking.setRequestHeader("authorization", "Bearer " + token);
      asking.onloadend = () => done(asking.responseText);
      asking.send();
    });`,
  },
  {
    name: "sandboxed-authorization",
    code: framed(
      'frame.sandbox = "allow-scripts";',
      `"return (await fetch('" + at("/v1/models") + "', { headers: { authorization: 'Bearer " + token + "' } })).text()"`,
    ),
  },
];

/** A script that makes all attacks at once and returns what each could read. An attack that hangs reads nothing. */
export function attackScript(attacks: readonly Attack[], target: string, token: string | null): string {
  const prefix = token === null ? "" : `/t/${token}`;
  const one = ({ name, code }: Attack) => `${JSON.stringify(name)}: (async () => {
    const token = ${JSON.stringify(token ?? "none")};
    const at = (path, prefix = ${JSON.stringify(prefix)}) => ${JSON.stringify(target)} + prefix + path + "?attack=${name}.";
    ${code}
  })()`;
  return `(async () => {
    const under = { ${attacks.map(one).join(",\n")} };
    const limit = new Promise((done) => setTimeout(done, 4000, ""));
    const all = Object.entries(under).map(async ([name, promise]) =>
      [name, await Promise.race([promise.catch(() => ""), limit])]);
    return Object.fromEntries(await Promise.all(all));
  })()`;
}

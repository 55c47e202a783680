// Makes pages lively. Everything here is a comfort: without it every page works by links and forms alone.

document.documentElement.classList.add("scripted");
const words = document.body.dataset;
const parse = (text) => new DOMParser().parseFromString(text, "text/html");

// ---- Live parts: one event stream a tab says that something changed; the page then asks for itself again and takes
// over what is different.

const lost = document.getElementById("connection");
const signedOut = document.getElementById("signed-out");
// The service breathes every 20 seconds; a connection that is silent for longer than this is gone without a word.
const SILENCE = 50000;
// A page with nothing live but its corner need not be asked for with every step of a run.
const REST = document.querySelectorAll("[data-live]").length > 1 ? 0 : 15000;
let source = null;
let shown = words.sign;
let wanted = shown;
let isRefreshing = false;
let heard = 0;

function connect() {
  if (source || shown === undefined || document.hidden || !signedOut.hidden) return;
  source = new EventSource("/live");
  heard = Date.now();
  source.addEventListener("open", () => { lost.hidden = true; heard = Date.now(); });
  source.addEventListener("breath", () => { heard = Date.now(); });
  source.addEventListener("sign", (event) => {
    lost.hidden = true;
    heard = Date.now();
    wanted = event.data;
    refresh();
  });
  source.addEventListener("error", () => {
    lost.hidden = false;
    // Closed for good: the session is over, or the service is being started again.
    if (source && source.readyState === EventSource.CLOSED) {
      disconnect();
      refresh(true);
      setTimeout(connect, 5000);
    }
  });
}

function disconnect() {
  if (source) source.close();
  source = null;
}

setInterval(() => {
  if (source && Date.now() - heard > SILENCE) {
    lost.hidden = false;
    disconnect();
    connect();
  }
}, 10000);

async function refresh(force = false) {
  if (isRefreshing || (!force && wanted === shown)) return;
  isRefreshing = true;
  let pause = REST;
  try {
    const answer = await fetch(location.href, { headers: { "x-holdfast-part": "live" }, redirect: "manual" });
    if (answer.type === "opaqueredirect") {
      // What stands in a half-written form must not be lost to a reload.
      lost.hidden = true;
      signedOut.hidden = false;
      disconnect();
      return;
    }
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = parse(await answer.text());
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = fresh.getElementById(part.id);
      if (other) update(part, other);
    }
    shown = fresh.body.dataset.sign;
  } catch {
    lost.hidden = false;
    pause = 3000;
  } finally {
    isRefreshing = false;
  }
  if (wanted !== shown) setTimeout(refresh, Math.max(pause, 200));
}

function update(part, other) {
  const log = part.querySelector("pre.output");
  const isAtEnd = log && log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  patch(part, other);
  const after = part.querySelector("pre.output[data-tail]");
  if (after && (isAtEnd || !log)) after.scrollTop = after.scrollHeight;
}

// Makes `old` like `fresh`, and leaves alone what is alike: the focus, a selection, what a reader ticked or unfolded and
// what a screen reader is saying stay.
function patch(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(document.adoptNode(fresh));
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) return;
  // Tokens of forms are masked anew on every page; the one that is there still holds.
  if (old.name === "csrf") return;
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    const isReaders = name === "open" && old.nodeName === "DETAILS";
    if (!fresh.hasAttribute(name) && !isReaders) old.removeAttribute(name);
  }
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  after.forEach((child, place) => (before[place] ? patch(before[place], child) : old.append(document.adoptNode(child))));
  before.slice(after.length).forEach((child) => child.remove());
}

document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
addEventListener("pagehide", disconnect);
addEventListener("pageshow", connect);
connect();
for (const log of document.querySelectorAll("pre.output[data-tail]")) log.scrollTop = log.scrollHeight;

// ---- Forms: parts that depend on a choice, and previews of what follows from what is typed.

// Choices between semicolons: one of them is enough. One in a part that is hidden itself does not count.
function applies(form, choice) {
  const [name, values] = choice.split("=");
  const field = form.elements[name];
  return field && !field.disabled && values.split(",").includes(field.value);
}

function showParts(form) {
  for (const part of form.querySelectorAll("[data-when]")) {
    const isShown = part.dataset.when.split(";").some((choice) => applies(form, choice));
    part.hidden = !isShown;
    // What nobody sees is not sent, and must not keep the rest from being sent.
    for (const element of part.querySelectorAll("input, select, textarea")) element.disabled = !isShown;
  }
}

const previews = new Map();

async function showPreview(form, preview) {
  previews.get(preview)?.abort();
  const control = new AbortController();
  previews.set(preview, control);
  const fields = new URLSearchParams();
  for (const name of preview.dataset.fields.split(" ")) {
    const field = form.elements[name];
    if (field && !field.disabled) fields.set(name, field.value);
  }
  try {
    const answer = await fetch(`${preview.dataset.preview}?${fields}`, { signal: control.signal });
    if (answer.ok) preview.replaceChildren(...parse(await answer.text()).body.childNodes);
  } catch {
    // A newer one is on its way, or the service is away, which the line at the top says.
  }
}

function prepare(form) {
  showParts(form);
  let later = 0;
  const update = () => {
    showParts(form);
    clearTimeout(later);
    later = setTimeout(() => form.querySelectorAll("[data-preview]").forEach((preview) => showPreview(form, preview)), 250);
  };
  // Some assistive tools and browsers report only one of the two when an option is chosen.
  for (const event of ["input", "change"]) form.addEventListener(event, update);
}

document.querySelectorAll("form[data-form]").forEach(prepare);

// ---- Dialogs: what a form asks besides being saved is answered above it.

let asking = null;

function dialog() {
  const known = document.getElementById("dialog");
  if (known) return known;
  const made = document.createElement("dialog");
  made.id = "dialog";
  document.body.append(made);
  made.addEventListener("click", (event) => { if (event.target === made) made.close(); });
  return made;
}

function fill(...content) {
  const close = document.createElement("button");
  close.className = "plain";
  close.textContent = words.close;
  close.addEventListener("click", () => dialog().close());
  dialog().replaceChildren(...content, close);
  if (!dialog().open) dialog().showModal();
}

// Asks, says meanwhile that somebody is looking, and shows the answer.
async function ask(address, options) {
  const waiting = document.createElement("p");
  waiting.setAttribute("role", "status");
  waiting.textContent = words.looking;
  fill(waiting);
  try {
    const fresh = parse(await (await fetch(address, options)).text());
    const content = fresh.querySelector("main");
    const form = content?.querySelector("form[data-form]");
    if (form) {
      // The form itself: something in it is wrong, which stands beside it.
      dialog().close();
      document.querySelector("main").replaceWith(content);
      prepare(form);
      form.querySelector("[aria-invalid]")?.focus();
      return;
    }
    if (!content) throw new Error("no page");
    content.removeAttribute("id");
    fill(content);
    const title = content.querySelector("h1");
    if (title) {
      title.id = "dialog-title";
      title.tabIndex = -1;
      title.focus();
      dialog().setAttribute("aria-labelledby", "dialog-title");
    }
  } catch {
    waiting.textContent = lost.textContent;
    lost.hidden = false;
  }
}

document.addEventListener("submit", (event) => {
  const [form, button] = [event.target, event.submitter];
  if (button?.matches("[data-dialog-form]")) {
    event.preventDefault();
    asking = form;
    ask(form.action, { method: "POST", body: new URLSearchParams(new FormData(form, button)) });
  } else if (form.matches("dialog form[data-look]")) {
    event.preventDefault();
    if (button?.dataset.pick !== undefined) {
      for (const [name, value] of new URLSearchParams(button.dataset.pick)) {
        if (asking.elements[name]) asking.elements[name].value = value;
      }
    }
    if (button?.name === "path") {
      ask(`${button.formAction}?${new URLSearchParams(new FormData(form, button))}`);
    } else {
      dialog().close();
      asking.dispatchEvent(new Event("input", { bubbles: true }));
    }
  }
});

// ---- Small comforts.

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    const text = document.getElementById(copy.dataset.copy);
    try {
      await navigator.clipboard.writeText(text.innerText.trim());
      copy.textContent = words.copied;
    } catch {
      // Browsers give the clipboard to https alone; the reader can copy what is selected.
      getSelection().selectAllChildren(text);
    }
  }
  const all = event.target.closest("[data-all]");
  if (all) {
    for (const box of all.closest("form").querySelectorAll(`input[name="${all.dataset.all}"]`)) box.checked = all.checked;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key === "k" && (event.ctrlKey || event.metaKey)) {
    const field = document.querySelector("[data-search]");
    if (field) { event.preventDefault(); field.focus(); }
  }
  if (event.key === "Escape") document.querySelector("details.person[open]")?.removeAttribute("open");
});

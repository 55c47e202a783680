// Makes pages lively. Everything here is a comfort: without it every page works by links and forms alone.

const root = document.documentElement;
root.classList.add("scripted");

// ---- Live parts: one event stream a tab says that something changed; the page then asks for itself again and takes
// over those parts that are different.

const connection = document.getElementById("connection");
let source = null;
let shown = document.body.dataset.sign;
let refreshing = null;
// The service breathes every 20 seconds; a connection that is silent for longer than this is gone without a word.
const SILENCE = 50000;
let heard = 0;

function connect() {
  if (source || shown === undefined || document.hidden) return;
  source = new EventSource("/live");
  heard = Date.now();
  source.addEventListener("open", () => { connection.hidden = true; heard = Date.now(); });
  source.addEventListener("breath", () => { heard = Date.now(); });
  source.addEventListener("sign", (event) => {
    connection.hidden = true;
    heard = Date.now();
    if (event.data !== shown) refresh(event.data);
  });
  source.addEventListener("error", () => {
    connection.hidden = false;
    // Closed for good, as when the service is being restarted behind a proxy: begin again.
    if (source && source.readyState === EventSource.CLOSED) {
      disconnect();
      setTimeout(connect, 5000);
    }
  });
}

setInterval(() => {
  if (source && Date.now() - heard > SILENCE) {
    connection.hidden = false;
    disconnect();
    connect();
  }
}, 10000);

function disconnect() {
  if (source) source.close();
  source = null;
}

async function refresh(sign) {
  if (refreshing) { refreshing = sign; return; }
  refreshing = sign;
  try {
    const answer = await fetch(location.href, { headers: { "x-holdfast-part": "live" } });
    if (answer.redirected && new URL(answer.url).pathname === "/sign-in") { location.reload(); return; }
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = fresh.getElementById(part.id);
      if (other && other.outerHTML !== part.outerHTML) replace(part, other);
    }
    shown = fresh.body.dataset.sign;
  } catch {
    connection.hidden = false;
  } finally {
    const newest = refreshing;
    refreshing = null;
    if (newest !== sign && newest !== shown) refresh(newest);
  }
}

// The reader keeps the focus, what they unfolded, what they ticked, and the end of a log if they were there.
function replace(part, other) {
  const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
  const open = [...part.querySelectorAll("details[open][id]")].map((element) => element.id);
  const ticked = [...part.querySelectorAll("input[type=checkbox]:checked")].map((element) => element.value);
  const log = part.querySelector("pre.output");
  const atEnd = !log || log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  const scrolled = log ? log.scrollTop : 0;
  const fresh = document.adoptNode(other);
  part.replaceWith(fresh);
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  for (const box of fresh.querySelectorAll("input[type=checkbox]")) box.checked = ticked.includes(box.value);
  const newLog = fresh.querySelector("pre.output");
  if (newLog) newLog.scrollTop = atEnd ? newLog.scrollHeight : scrolled;
  if (focused) document.getElementById(focused)?.focus();
}

document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
addEventListener("pagehide", disconnect);
addEventListener("pageshow", connect);
connect();
for (const log of document.querySelectorAll("pre.output[data-tail]")) log.scrollTop = log.scrollHeight;

// ---- Forms: groups that depend on a choice, and previews of what follows from what is typed.

function showGroups(form) {
  for (const group of form.querySelectorAll("[data-when]")) {
    const [name, values] = group.dataset.when.split("=");
    const field = form.elements[name];
    const applies = field !== undefined && values.split(",").includes(field.value);
    group.hidden = !applies;
    // What is hidden must not keep the form from being sent.
    for (const element of group.querySelectorAll("[required], [data-required]")) {
      element.toggleAttribute("data-required", true);
      element.required = applies;
    }
  }
}

const waiting = new Map();

async function showPreview(form, preview) {
  waiting.get(preview)?.abort();
  const control = new AbortController();
  waiting.set(preview, control);
  const fields = new URLSearchParams(new FormData(form));
  for (const name of ["csrf", "encryption_password", "heartbeat_url"]) fields.delete(name);
  try {
    const answer = await fetch(`${preview.dataset.preview}?${fields}`, { signal: control.signal });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    preview.replaceChildren(...fresh.body.childNodes);
  } catch {
    // A newer one is on its way, or the service is away, which the line at the top says.
  }
}

for (const form of document.querySelectorAll("form[data-form]")) {
  showGroups(form);
  let later = 0;
  form.addEventListener("input", () => {
    showGroups(form);
    clearTimeout(later);
    later = setTimeout(() => form.querySelectorAll("[data-preview]").forEach((preview) => showPreview(form, preview)), 250);
  });
}


// ---- Dialogs: a page, or the answer to a form, shown above this one.

function showDialog(fresh, form) {
  const content = fresh.querySelector("main");
  if (!content) return;
  let dialog = document.getElementById("dialog");
  if (!dialog) {
    dialog = document.createElement("dialog");
    dialog.id = "dialog";
    document.body.append(dialog);
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }
  content.removeAttribute("id");
  const close = document.createElement("button");
  close.className = "plain";
  close.textContent = document.body.dataset.close;
  close.addEventListener("click", () => dialog.close());
  dialog.replaceChildren(content, close);
  const title = content.querySelector("h1");
  if (title) { title.id = "dialog-title"; dialog.setAttribute("aria-labelledby", "dialog-title"); }
  // Links in it lead on within the dialog, or take what was chosen back to the form.
  for (const link of content.querySelectorAll("a[data-pick]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      for (const [name, value] of new URLSearchParams(link.dataset.pick)) {
        if (form.elements[name]) form.elements[name].value = value;
      }
      dialog.close();
      form.dispatchEvent(new Event("input", { bubbles: true }));
    });
  }
  for (const link of content.querySelectorAll("a[data-on]")) {
    link.addEventListener("click", async (event) => {
      event.preventDefault();
      content.setAttribute("aria-busy", "true");
      const answer = await fetch(link.href);
      showDialog(new DOMParser().parseFromString(await answer.text(), "text/html"), form);
    });
  }
  if (!dialog.open) dialog.showModal();
}

document.addEventListener("submit", async (event) => {
  const button = event.submitter;
  if (!button || !button.matches("[data-dialog-form]")) return;
  event.preventDefault();
  const form = event.target;
  const fields = new FormData(form, button);
  button.disabled = true;
  try {
    const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(fields) });
    showDialog(new DOMParser().parseFromString(await answer.text(), "text/html"), form);
  } catch {
    connection.hidden = false;
  } finally {
    button.disabled = false;
  }
});

// ---- Small comforts.

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    await navigator.clipboard.writeText(document.getElementById(copy.dataset.copy).textContent.trim());
    copy.textContent = document.body.dataset.copied;
  }
  const all = event.target.closest("[data-all]");
  if (all) {
    for (const box of all.closest("form").querySelectorAll(`input[name="${all.dataset.all}"]`)) box.checked = all.checked;
  }
});

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, textarea, select");
  if ((event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !isTyping)) {
    const field = document.querySelector("[data-search]");
    if (field) { event.preventDefault(); field.focus(); }
  }
  if (event.key === "Escape") document.querySelector("details.person[open]")?.removeAttribute("open");
});

// The page of disqued, in a browser with a script: what moves, charts, actions.
//
//   server-sent events --> parts of the page, by id           /api/events?page=...
//   history, points    --> a chart                            /api/history?...
//   a form             --> JSON to the API --> what came of it, said aloud
//
// Every form says what it does (data-action): where it goes, what of the body is fixed, and the words of the command,
// so that the lines of redis-cli and curl follow what is typed.

import uPlot from "./uPlot.esm.js";

const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const one = (selector, within = document) => within.querySelector(selector);
const body = document.body;
document.documentElement.classList.add("scripted");

// ---- what is said aloud

const told = one("#told");

function tell(text, isBad = false) {
  told.textContent = text;
  told.classList.toggle("bad", isBad);
  told.classList.add("shown");
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => told.classList.remove("shown"), 8000);
}

/** What came of the last action with many jobs: it stays until the next one, unlike what is told. */
function note(text) {
  const place = one("#outcome");
  if (place) place.textContent = text;
}

const before = sessionStorage.getItem("told"); // told on the page that was here before it was loaded again
if (before) {
  tell(before);
  note(before);
}
sessionStorage.removeItem("told");

// ---- lines to copy, as disqued/web/lines.py writes them

const plain = /^[A-Za-z0-9_@%+=:,./-]+$/;
const unseen = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\u00a0]/u;
const quoted = (text) => (plain.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'");

/** Bytes of a value of JSON: text, a number, or {base64}. */
function bytesOf(value) {
  if (value !== null && typeof value === "object") {
    return Uint8Array.from(atob(value.base64), (letter) => letter.charCodeAt(0));
  }
  return new TextEncoder().encode(String(value));
}

function redisQuoted(value) {
  // One by one: a call takes so many arguments and no more.
  const bytes = Array.from(bytesOf(value));
  const text = bytes.map((byte) => String.fromCharCode(byte)).join("");
  if (plain.test(text)) return text;
  const escape = (byte) =>
    byte >= 32 && byte < 127 && byte !== 34 && byte !== 92
      ? String.fromCharCode(byte)
      : "\\x" + byte.toString(16).padStart(2, "0");
  return '"' + bytes.map(escape).join("") + '"';
}

function redisLine(words) {
  const start = `redis-cli -p ${body.dataset.redisPort}`;
  if (words.every((word) => typeof word !== "object" && !unseen.test(String(word)))) {
    return [start, ...words.map((word) => quoted(String(word)))].join(" ");
  }
  return `printf '%s\\n' ${quoted(words.map(redisQuoted).join(" "))} | ${start}`;
}

function curlLine(path, value) {
  const token = "withToken" in body.dataset ? ' -H "Authorization: Bearer $TOKEN"' : "";
  const text = JSON.stringify(value).replace(/[\u007f-\uffff]/g, (letter) =>
    "\\u" + letter.charCodeAt(0).toString(16).padStart(4, "0"),
  );
  return `curl${token} -H 'Content-Type: application/json' -d ${quoted(text)} ${quoted(body.dataset.base + path)}`;
}

// ---- forms

const listed = (input) => input.value.split(/\s+/).filter(Boolean);

/** The names and values in a field of words like name=value. */
const paired = (input) =>
  listed(input).map((word) => {
    const [name, ...rest] = word.split("=");
    return [name, rest.join("=")];
  });

/** What a field stands for in JSON; undefined where the request has no such field. */
function valueOf(input) {
  const { kind } = input.dataset;
  if (kind === "flag") return input.checked || undefined;
  if (kind === "pairs") {
    const found = paired(input).map(([name, value]) => ({ name, value }));
    return found.length ? found : undefined;
  }
  if (kind === "list") return listed(input);
  if (input.value === "") return "optional" in input.dataset ? undefined : "";
  const form = { number: /^[0-9]+$/, seconds: /^([0-9]+\.?[0-9]*|\.[0-9]+)$/ }[kind];
  return form?.test(input.value) ? Number(input.value) : input.value;
}

/** What a field stands for in the command. */
function wordsOf(input) {
  const { kind, word } = input.dataset;
  if (kind === "flag") return input.checked ? [word] : [];
  if (kind === "pairs") return paired(input).flatMap((pair) => [word, ...pair]);
  if (kind === "list") return listed(input);
  if (input.value === "") return "optional" in input.dataset ? [] : [""];
  return word ? [word, input.value] : [input.value];
}

/** The box above the others says what they are: all picked, none, or some; a bar leads to what can be done with them. */
function sumUp() {
  const [bar, count] = [one("#picked"), picked().length];
  if (bar) {
    bar.hidden = !count;
    one("a", bar).textContent = `Selected: ${count}. Go to the actions`;
  }
  const [box, boxes] = [one("#all"), all("#found input[name=pick]")];
  if (!box) return;
  box.checked = boxes.length > 0 && boxes.every((each) => each.checked);
  box.indeterminate = !box.checked && boxes.some((each) => each.checked);
}

const pickedBoxes = () => all("#found input[name=pick]:checked");
const picked = () => pickedBoxes().map((box) => box.value);

/** What a form asks for: the JSON body, and the words of the command. */
function asked(form) {
  const action = JSON.parse(form.dataset.action);
  const value = { ...action.fixed };
  if (form.closest("#selected")) {
    if ("filter" in value) value.filter = { ...value.filter, ids: picked() };
    else value.ids = picked();
  }
  for (const input of form.elements) {
    const found = input.name ? valueOf(input) : undefined;
    if (found === undefined) continue;
    const [name, part] = input.name.split(".");
    value[name] = part ? { ...value[name], [part]: found } : found;
  }
  const words = action.words.flatMap((word) => {
    if (typeof word !== "object" || !("input" in word)) return [word];
    if (word.input === "ids") return value.ids ?? [];
    return wordsOf(form.elements[word.input]);
  });
  return { path: action.path, value, words };
}

function writeLines(form) {
  const { path, value, words } = asked(form);
  const redis = one("[data-line=redis]", form);
  if (redis && words.length) redis.textContent = redisLine(words);
  one("[data-line=curl]", form).textContent = curlLine(path, value);
}

async function post(path, value) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Disqued": "1" },
    body: JSON.stringify(value),
  });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.detail ?? `the server answered ${answer.status}`);
  return found;
}

/** Ask within the form; resolves to whether the answer is yes. */
function confirmed(form, question) {
  one(".sure", form)?.remove();
  const box = document.createElement("div");
  box.className = "sure";
  box.setAttribute("role", "group");
  const text = document.createElement("p");
  text.textContent = question;
  text.id = `sure-${Math.random().toString(36).slice(2)}`;
  box.setAttribute("aria-labelledby", text.id);
  const label = one(".does button", form).textContent;
  const yes = document.createElement("button");
  yes.type = "button";
  yes.className = "yes";
  yes.textContent = `Yes, ${label.charAt(0).toLowerCase()}${label.slice(1)}`;
  const no = document.createElement("button");
  no.type = "button";
  no.textContent = "No";
  box.append(text, yes, no);
  one(".does", form).after(box);
  const isDanger = one(".does button", form).classList.contains("danger");
  yes.classList.toggle("danger", isDanger);
  // A second press of Enter must not end what nobody has read about yet.
  (isDanger ? no : yes).focus();
  return new Promise((resolve) => {
    const end = (answer) => {
      box.remove();
      one(".does button", form).focus();
      resolve(answer);
    };
    yes.addEventListener("click", () => end(true));
    no.addEventListener("click", () => end(false));
    box.addEventListener("keydown", (event) => event.key === "Escape" && end(false));
  });
}

const outcome = (found) => found.text ?? found.done ?? found.id ?? found.changed ?? found.pause ?? found.reply ?? "";

/** Whether what stands in the fields of the search is not what was searched for. */
function isUnsearched() {
  return [...(one("form.find")?.elements ?? [])].some((field) => {
    if (field.tagName !== "SELECT") return "defaultValue" in field && field.value !== field.defaultValue;
    const before = [...field.options].find((option) => option.defaultSelected) ?? field.options[0];
    return before !== field.selectedOptions[0];
  });
}

/** States of commands by the words of the page. */
const WORDS = { queued: "ready", acked: "done" };

/** What a filter means, for people. */
function described(filter) {
  const text = filter.body_contains;
  const conditions = [["queue", filter.queue], ["last reason contains", filter.reason], ["failed since", filter.since]].filter(([, value]) => value !== undefined);
  const named = conditions.map(([what, value]) => `${what} ${typeof value === "string" ? `“${value}”` : "in binary"}`);
  if (!filter.state) return named.join(", ") || "all queues";
  return [
    ...named,
    `state ${filter.state.length > 2 ? "any" : filter.state.map((state) => WORDS[state] ?? state).join(" or ")}`,
    text === undefined ? "any body" : `body contains ${typeof text === "string" ? `“${text}”` : "binary data"}`,
    ...(filter.older_than_s ? [`older than ${filter.older_than_s} s`] : []),
  ].join(", ");
}

/** Whose jobs are picked, as a question says it. */
function queuesPicked() {
  const names = [...new Set(pickedBoxes().map((box) => box.dataset.queue))];
  return names.length === 1 ? `queue “${names[0]}”` : `${names.length} queues`;
}

/** How many there are that an action is about, as they are counted before it is asked for. */
async function counted(path) {
  const answer = await fetch(path);
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.detail ?? `the server answered ${answer.status}`);
  return found.len;
}

/** Do what a form does: ask first where that is due.  Resolves to what came back; null when the answer was no. */
async function done(form) {
  const { path, value } = asked(form);
  const ids = form.closest("#selected") && (value.ids ?? value.filter.ids);
  if (ids && !ids.length) throw new Error("no jobs selected");
  const count = ids ? `Selected: ${ids.length}, ${queuesPicked()}. ` : "";
  if ("filter" in value) {
    if (!ids && isUnsearched()) {
      throw new Error(`the search form has changed: press ${one("form.find button").textContent} first to see which jobs match`);
    }
    const dry = await post(path, { ...value, dry_run: true });
    const without = (dry.incomplete ?? []).join(" ");
    if (!dry.matched) throw new Error([ids ? "it applies to no selected job" : "no jobs match", without.replace(/\.$/, "")].filter(Boolean).join(". "));
    const matches = `${dry.matched} ${dry.matched === 1 ? "job matches" : "jobs match"}`;
    const to = value.to === undefined ? "" : ` to ${value.to}`;
    const meant = ids ? "" : ` (${described(value.filter)})`;
    const where = form.closest("#bulk") && !path.endsWith("/purge") ? " on this node" : "";
    const parts = [`${count}${matches}${where}${meant}.`, form.dataset.confirm, without, `${one(".does button", form).textContent}${to}?`];
    const question = parts.filter(Boolean).join(" ");
    return (await confirmed(form, question)) ? post(path, { ...value, token: dry.token }) : null;
  }
  if ("previews" in form.dataset) {
    const { reply } = await post(path, { ...value, dry_run: true });
    const times = reply.map((at) => new Date(at * 1000).toISOString().replace("T", " ").slice(0, 19));
    const question = times.length ? `Next runs: ${times.join(", ")} UTC.` : "It would never run.";
    return (await confirmed(form, `${question} ${one(".does button", form).textContent}?`)) ? post(path, value) : null;
  }
  const here = form.dataset.counted ? `Events on this node: ${await counted(form.dataset.counted)}. ` : count;
  if (form.dataset.confirm && !(await confirmed(form, here + form.dataset.confirm))) return null;
  return post(path, value);
}

async function act(form) {
  const result = one(".result", form);
  const button = one(".does button", form);
  if (button.hasAttribute("aria-busy")) return;
  result.textContent = "";
  button.setAttribute("aria-busy", "true");
  try {
    const found = await done(form);
    if (found === null) return;
    all(".result").forEach((each) => (each.textContent = ""));
    tell(form.dataset.done.replace("{result}", outcome(found)));
    const failed = found.failed?.length ? `${found.failed.length} failed. First error: ${found.failed[0].detail}` : "";
    result.textContent = failed;
    note([told.textContent, failed].filter(Boolean).join(" "));
    if ("ends" in form.dataset && String(outcome(found)) !== "cancelling") ended(one("#told").textContent);
    else await reread().catch((error) => (result.textContent = `Done, but the page could not be refreshed: ${error.message}.`));
  } catch (error) {
    note("");
    result.textContent = `Failed: ${error.message}.`;
  } finally {
    button.removeAttribute("aria-busy");
  }
}

/** The job of this page is done or gone: there is nothing more to do with it.  Without a text the news say so. */
function ended(text = "") {
  if (text) one("#why").textContent = `${text} Reload the page to see its current state.`;
  all("form.action button").forEach((button) => (button.disabled = true));
}

async function reread() {
  // What stands in the address is what the table shows: the page itself is asked again, and its table taken.
  const answer = await fetch(location.href.split("#")[0]);
  if (!answer.ok) return;
  if (one("[data-missing]")) {
    sessionStorage.setItem("told", one("#outcome")?.textContent || told.textContent);
    return location.reload();
  }
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const selector of ["#found tbody", "#found-count", "#looked", "#pauses", "#paused", "#schedule-now", "#runs", "#coming", "#groups", "#throttles", "#policy tbody", ".timeline", "#why", "#node", ".facts", "h1"]) {
    const [old, now] = [one(selector), one(selector, fresh)];
    if (old && now) swap(old, now.innerHTML);
  }
  for (const setting of all("article.setting")) {
    const value = one(`#${CSS.escape(setting.id)} .value`, fresh);
    if (value) one(".value", setting).textContent = value.textContent;
  }
  all(".acts[id]").forEach((acts) => offer(acts, one(`#${acts.id}`, fresh)));
  all("form.action button").forEach((button) => (button.disabled = false));
  sumUp();
  all("form.action").forEach(writeLines);
}

/** Add the forms that apply now and remove those that no longer do; what is typed into the others stays. */
function offer(acts, fresh) {
  const button = (form) => one(".does button", form);
  const forms = fresh ? all("form.action", fresh) : [];
  const ids = new Set(forms.map((form) => button(form).id));
  const had = acts.contains(document.activeElement);
  all("form.action", acts).forEach((form) => ids.has(button(form).id) || form.remove());
  forms.forEach((form) => document.getElementById(button(form).id) ?? acts.append(form));
  if (had && !acts.contains(document.activeElement)) one("#main").focus();
}

// ---- parts that are sent again

/** Put new content into an element, and leave the focus where it was. */
function swap(element, html) {
  const active = element.contains(document.activeElement) ? document.activeElement : null;
  const key = active && (active.id ? `#${CSS.escape(active.id)}` : active.getAttribute("href") && `a[href="${CSS.escape(active.getAttribute("href"))}"]`);
  const { scrollTop, scrollLeft } = element;
  element.innerHTML = html;
  Object.assign(element, { scrollTop, scrollLeft });
  if (active) ((key && one(key, element)) || one("#main")).focus();
}

/** Bring the content of an element up to date and keep what is the same: focus, selection and clicks live on. */
function renew(element, html) {
  const fresh = element.cloneNode(false);
  fresh.innerHTML = html;
  const active = document.activeElement;
  morph(element, fresh);
  // What was moved to another place has lost the focus.
  if (active !== document.activeElement && active.isConnected) active.focus();
}

function morph(old, fresh) {
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const keyed = new Map([...old.children].filter((child) => child.dataset.key).map((child) => [child.dataset.key, child]));
  let at = old.firstChild;
  for (const now of [...fresh.childNodes]) {
    const known = now.dataset?.key ? keyed.get(now.dataset.key) : at;
    if (!known || known.nodeName !== now.nodeName || (known.dataset?.key ?? "") !== (now.dataset?.key ?? "")) {
      old.insertBefore(now, at);
      continue;
    }
    if (known === at) at = at.nextSibling;
    else old.insertBefore(known, at);
    if (known.isEqualNode(now)) continue;
    if (known.nodeType === Node.ELEMENT_NODE) morph(known, now);
    else known.nodeValue = now.nodeValue;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** Hear of news while the page is seen: a browser has six connections to a host, and this takes one of them. */
function listen(terms) {
  const pulse = one("#pulse");
  const path = `/api/events?${terms}`;
  let source = null;
  let again = null;
  const say = (state, title) => {
    if (!pulse) return;
    pulse.hidden = false;
    pulse.dataset.state = state;
    pulse.title = title;
    pulse.setAttribute("aria-label", title);
  };
  const ways = () => one("[data-ways]")?.dataset.ways; // which actions a page offers, where that changes by itself
  const show = (event) => {
    const news = JSON.parse(event.data);
    const offered = ways();
    for (const [id, html] of Object.entries(news.html ?? {})) {
      const element = document.getElementById(id);
      if (element) renew(element, html);
    }
    if (news.html) sumUp();
    if (news.point) chart?.add(news.point);
    if (offered && ways() === undefined) ended();
    else if (ways() !== offered) reread().catch(() => {}); // the next news or a reload brings them
  };
  const close = () => {
    clearTimeout(again);
    again = null;
    source?.close();
    source = null;
  };
  const open = () => {
    close();
    if (document.hidden) return;
    const mine = new EventSource(path);
    source = mine;
    mine.addEventListener("open", () => say("live", "Live: the page updates by itself"));
    mine.addEventListener("message", show);
    mine.addEventListener("error", () => {
      say("lost", "Not live: connection lost, reconnecting");
      // It tries again by itself, unless it was refused.
      if (mine === source && mine.readyState === EventSource.CLOSED) refused();
    });
  };
  /** Learn why, and try again later, unless only a person can help. */
  const refused = async () => {
    source = null;
    const asking = new AbortController();
    const answer = await fetch(path, { signal: asking.signal }).catch(() => null);
    const status = answer?.status;
    const wait = Number(answer?.headers.get("Retry-After")) || 5;
    asking.abort();
    if (status === 401 || status === 403) {
      say("lost", "Not live: session expired");
      tell("Your session has expired and this page no longer updates. Log in again.", true);
    } else if (!source && !document.hidden) {
      again = setTimeout(open, status === 200 ? 0 : wait * 1000);
    }
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());
  open();
}

// ---- charts

const RATES = [["In/s", "rate", "in"], ["Out/s", "rate", "out"], ["Acknowledged/s", "rate", "acked"]];
const POINT = ["time", "backlog", "in", "out", "acked"]; // as an event has them
const COLORS = ["--one", "--two", "--three", "--four"];
const LEAST = { y: 5, rate: 1 }; // that an axis reaches at least
const LEAST_S = 300; // seconds that a chart shows at least
const MARKS = 4; // spikes that are marked
const UNITS_S = { m: 60, h: 3600, d: 86400 };

const seconds = (range) => parseInt(range, 10) * UNITS_S[range.at(-1)];
const figure = (value) => (value == null ? "–" : Number(value.toFixed(1)).toLocaleString("en").replaceAll(",", "\u202f"));
const short = (value) => Intl.NumberFormat("en", { notation: "compact" }).format(value);
const clock = (at, from = 11, to = 19) => new Date(at * 1000).toISOString().slice(from, to);

/** Times below a chart, in UTC, as fine as its grid. */
function clockTimes(_, splits, __, ___, step) {
  const [from, to] = step >= 86400 ? [5, 10] : step >= 60 ? [11, 16] : [11, 19];
  return splits.map((at) => clock(at, from, to));
}

/** Where an axis ends so that a few spikes do not flatten all the rest; Infinity where nothing is cut off. */
function capOf(columns) {
  const values = columns.flat().filter((value) => value > 0).sort((one, other) => one - other);
  const usual = values[Math.floor(values.length * 0.98)];
  return values.length >= 50 && values.at(-1) > 3 * usual ? 1.5 * usual : Infinity;
}

let chart = null;

class Chart {
  constructor(element) {
    this.element = element;
    this.columns = [[element.dataset.backlog, "y", "backlog"], ...RATES];
    this.range = sessionStorage.getItem("range") ?? "1h";
    this.data = [[], ...this.columns.map(() => [])];
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.plot && this.draw());
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(element);
    this.load();
  }

  size() {
    return { width: Math.max(200, this.element.clientWidth), height: 240 };
  }

  async load(range = this.range) {
    this.range = range;
    this.loadedAt = Date.now();
    sessionStorage.setItem("range", range);
    all("[data-range]").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.range === range)));
    const { history } = this.element.dataset;
    const path = `${history}${history?.includes("?") ? "&" : "?"}range=${range}${this.isFine() ? "&step=1s" : ""}`;
    if (history) one("#chart-data").href = path;
    const answer = history ? await fetch(path) : null;
    const found = answer?.ok ? await answer.json() : { time: [] };
    if (range !== this.range) return;
    this.data = [found.time, ...this.columns.map(([, , name]) => found[name] ?? [])];
    this.measure();
    this.draw();
  }

  /** Whether a point stands for each second. */
  isFine() {
    return seconds(this.range) <= 3600;
  }

  add(point) {
    if (!this.plot) return;
    if (!this.isFine()) {
      if (Date.now() - this.loadedAt > 60_000) this.load();
      return;
    }
    const times = this.data[0];
    if (times.length && point[0] <= times.at(-1)) return;
    ["time", ...this.columns.map(([, , name]) => name)].forEach((name, at) => this.data[at].push(point[POINT.indexOf(name)] ?? null));
    while (times.length && times[0] < point[0] - seconds(this.range)) this.data.forEach((column) => column.shift());
    this.measure();
    this.plot.setData(this.data);
    if (this.plot.cursor.idx == null) this.plot.setLegend({ idx: null });
  }

  /** Find out where the axes end, and which spikes reach beyond: the highest point of each, highest first. */
  measure() {
    const [times, ...values] = this.data;
    const on = (scale) => values.filter((_, at) => this.columns[at][1] === scale);
    this.caps = { y: capOf(on("y")), rate: capOf(on("rate")) };
    this.spikes = [];
    this.columns.forEach(([label, scale], series) => {
      let top = null;
      values[series].forEach((value, at) => {
        if (!(value > this.caps[scale])) top = null;
        else if (!top) this.spikes.push((top = { label, series, value, at: times[at] }));
        else if (value > top.value) Object.assign(top, { value, at: times[at] });
      });
    });
    this.spikes.sort((one, other) => other.value - one.value);
    const said = this.spikes.slice(0, MARKS).map(({ label, value, at }) => `${label} ${figure(value)} at ${clock(at, 0, 19).replace("T", " ")}`);
    one("#chart-note").textContent = said.length ? `Clipped: ${said.join("; ")}${this.spikes.length > said.length ? "; and more" : ""}.` : "";
  }

  /** Write the figures of the highest spikes where the axes cut them off. */
  mark({ ctx, bbox, valToPos }, color) {
    const ratio = devicePixelRatio;
    const taken = [];
    ctx.save();
    ctx.font = `600 ${11 * ratio}px system-ui`;
    ctx.textAlign = "center";
    ctx.textBaseline = "top";
    for (const { series, value, at } of this.spikes) {
      const x = valToPos(at, "x", true);
      if (taken.length === MARKS || x < bbox.left || taken.some((other) => Math.abs(other - x) < 60 * ratio)) continue;
      taken.push(x);
      const half = 30 * ratio;
      const place = [`▲ ${short(value)}`, Math.min(Math.max(x, bbox.left + half), bbox.left + bbox.width - half), bbox.top + 2 * ratio];
      ctx.strokeStyle = color("--card");
      ctx.lineWidth = 5 * ratio;
      ctx.strokeText(...place);
      ctx.fillStyle = color(COLORS[series]);
      ctx.fillText(...place);
    }
    ctx.restore();
  }

  draw() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: "12px system-ui" };
    const values = (_, splits) => splits.map(short);
    const upright = { labelFont: "12px system-ui", labelSize: 18, size: 46, values };
    const to = (scale) => ({ range: (_, __, high) => [0, Math.max(LEAST[scale], Math.min(high ?? 0, this.caps[scale])) * 1.1] });
    // While no point has the cursor the legend shows the newest.
    const newest = (plot, at, series) => (at == null ? plot.data[series].at(-1) : plot.data[series][at]);
    this.plot?.destroy();
    this.plot = new uPlot(
      {
        ...this.size(),
        cursor: { drag: { x: false, y: false } },
        tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
        scales: { x: { range: (_, low, high) => [Math.min(low ?? 0, (high ?? 0) - LEAST_S), high ?? 1] }, y: to("y"), rate: to("rate") },
        axes: [
          { ...axis, values: clockTimes, space: 80 },
          { ...axis, ...upright, scale: "y", label: this.columns[0][0] },
          { ...axis, ...upright, scale: "rate", side: 1, grid: { show: false }, label: "Jobs per second" },
        ],
        hooks: { draw: [(plot) => this.mark(plot, color)] },
        series: [
          { label: "Time", value: (plot, _, __, at) => { const time = newest(plot, at, 0); return time == null ? "–" : clock(time, 0, 19).replace("T", " "); } },
          ...this.columns.map(([label, scale], index) => ({
            label, scale, stroke: color(COLORS[index]), width: scale === "y" ? 2 : 1.5,
            fill: index ? undefined : color("--one-wash"), points: { show: false },
            value: (plot, _, series, at) => figure(newest(plot, at, series)),
          })),
        ],
      },
      this.data,
      this.element,
    );
  }
}

// ---- the page comes to life

for (const form of all("form.action")) {
  writeLines(form);
}
// By delegation: parts of the page are replaced while it is open.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form.action")) return;
  event.preventDefault();
  act(event.target);
});
document.addEventListener("input", (event) => {
  const form = event.target.closest("form.action");
  if (form) writeLines(form);
});
document.addEventListener("change", (event) => {
  if (event.target.id === "all") all("#found input[name=pick]").forEach((box) => (box.checked = event.target.checked));
  sumUp();
  if (event.target.matches("#found input")) all("#selected form.action").forEach(writeLines);
});
document.addEventListener("click", async (event) => {
  const copy = event.target.closest(".copy");
  if (copy) {
    const from = copy.dataset.of ? document.getElementById(copy.dataset.of) : one("code", copy.parentElement);
    try {
      await navigator.clipboard.writeText(from.textContent);
      tell("Copied.");
    } catch {
      getSelection().selectAllChildren(from);
      tell("Selected. Copy it with the keyboard.");
    }
  }
  const range = event.target.closest("[data-range]");
  if (range) chart.load(range.dataset.range);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.closest("form.action")?.requestSubmit();
});

const place = one("#chart");
if (place) chart = new Chart(place);
const live = one("[data-events]");
if (live) listen(live.dataset.events);

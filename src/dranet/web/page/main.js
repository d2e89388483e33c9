// The whole page: the header, the controls, the keyboard, and the stream of changes.

function pick(what) {
  state.picked = what;
  const name = what.node || nodeOfHolder(what.holder);
  if (name) view.active = name;
  refreshNodes();
  if (name) reveal(name);
  drawPods();
  drawPicked();
  showTab("picked");
  openSheet(true);
  writeLink();
}

// On a narrow screen the details are a sheet over the machines; elsewhere the class changes nothing.
const openSheet = (open) => document.querySelector("aside").classList.toggle("open", open);

function selectNothing() {
  state.picked = null;
  writeLink();
  drawPicked();
  showTab("pods");
  openSheet(false);
}

function showTab(name) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const on = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", on);
    tab.tabIndex = on ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !on;
  }
  drawHistory();
  drawTable();
}

function drawHeader() {
  $("title").textContent = state.title;
  document.title = `DRANET · ${state.title}`;
  const sums = [...state.nodes.values()].map(summary);
  const add = (key) => sums.reduce((total, sum) => total + sum[key], 0);
  const misplaced = [...state.holders.values()].filter((holder) => holder.misplaced).length;
  const tainted = sums.filter((sum) => sum.states.has("tainted")).length;
  // Each number with the state that it counts; "" clears the filter.
  const totals = [["machines", state.nodes.size, ""], ["GPUs in use", `${add("usedGpus")}/${add("gpus")}`, "in use"], ["NICs in use", `${add("usedNics")}/${add("nics")}`, "in use"],
    ["pods misplaced", misplaced ? `✖ ${misplaced}` : "0", "misplaced"], ["machines tainted", tainted ? `⚠ ${tainted}` : "0", "tainted"]];
  keepFocus($("totals"), () => $("totals").replaceChildren(...totals.map(([name, value, only]) => el("div", {},
    el("dd", { class: only === "misplaced" && misplaced ? "bad" : null }, totalButton(name, value, only)), el("dt", {}, name)))));
  drawNotice();
}

function totalButton(name, value, only) {
  const title = only ? `Show only machines that are ${only}` : "Show all machines";
  return el("button", { type: "button", title, "data-group": name, "aria-pressed": only ? String(state.only.has(only)) : null, onclick: () => {
    if (only) state.only.delete(only) || state.only.add(only);
    else state.only.clear();
    drawStates();
    drawSoon(drawHeader, refreshNodes);
  } }, String(value));
}

function drawNotice() {
  const words = { ResourceSlice: "resource slices", ResourceClaim: "claims", Pod: "pods", DeviceClass: "device classes", ResourceClaimTemplate: "claim templates", Node: "nodes" };
  const listed = (kinds) => kinds.map((kind) => words[kind]).join(", ");
  const said = [];
  if (state.waiting.length) said.push(`Not loaded yet: ${listed(state.waiting)}. The API server is slow, or you may not list them.`);
  if (state.left) said.push(`Loading: ${count(state.left, "machine or pod", "machines and pods")} left. The numbers are incomplete.`);
  if (state.stale) {
    const what = state.stale.kinds.length === Object.keys(words).length ? "The data is" : `Not up to date: ${listed(state.stale.kinds)},`;
    said.push(`${what} as of ${moment(state.stale.since)}; retrying. ${state.stale.reason}`);
  }
  $("notice").hidden = !said.length;
  if ($("notice").textContent !== said.join(" ")) $("notice").textContent = said.join(" ");
}

const moment = (text) => new Date(text).toLocaleTimeString();

function drawLegend() {
  const distances = Object.entries(DISTANCES).map(([name, { word }]) => el("span", {}, badge(name), word));
  const box = (kind, word) => el("span", {}, svg("svg", { width: 22, height: 14 }, svg("g", { class: `device ${kind}` }, svg("rect", { class: "body", x: 1, y: 1, width: 20, height: 12, rx: 3 }))), word);
  $("legend").replaceChildren(...distances, box("free", "free"), box("in-use who-0", "in use, one tint per pod"), box("tainted", "tainted"), box("elsewhere", "elsewhere"),
    el("span", {}, "cut corner: GPU"), el("span", {}, "round: NIC"));
}

function drawStates() {
  const shown = { ...STATES, misplaced: "✖", incomplete: "!" };
  $("states").replaceChildren(...Object.entries(shown).map(([name, glyph]) => el("button", { type: "button", "aria-pressed": String(state.only.has(name)),
    onclick: () => { state.only.delete(name) || state.only.add(name); keepFocus($("states"), drawStates); drawSoon(drawHeader, refreshNodes); } }, `${glyph} ${name}`)));
}

function drawAll() {
  drawHeader();
  drawPods();
  drawChoices();
  if (state.picked) drawPicked();
  drawTable();
  refreshNodes();
  followLink();
}

function say(word, rest, lost = false) {
  $("status").className = lost ? "lost" : "";
  $("status").title = rest;
  $("status").replaceChildren(el("b", {}, word), rest ? ` ${rest}` : "");
}

function sayState(rest = "") {
  if (state.stale) say("○ stale", `since ${moment(state.stale.since)}`, true);
  else say(state.live ? "● live" : "○ recorded", rest);
}

function listen() {
  const source = new EventSource("/events");
  source.addEventListener("world", (event) => {
    takeWorld(JSON.parse(event.data));
    sayState();
    drawAll();
    requestAnimationFrame(() => setTimeout(() => performance.mark("machines-painted"))); // after the frame is on screen
    document.documentElement.dataset.ready = "yes";
  });
  source.addEventListener("change", (event) => {
    const change = JSON.parse(event.data);
    const said = takeChange(change);
    sayState(said && `${new Date().toLocaleTimeString()} ${said}`);
    drawSoon(drawHeader, refreshNodes, drawPods, drawChoices, drawHistory, drawTable, ...(concernsPicked(change) ? [drawPicked] : []));
    if (!state.picked) drawSoon(followLink);
    setTimeout(() => { for (const name of namesIn(change)) state.fresh.delete(name); }, 2400);
  });
  source.addEventListener("error", () => say("○ not connected", "the data may be stale; retrying", true));
}

// Several requests before the next frame become one redraw, each in a task of its own, so that input events are handled
// in between.
const toDraw = new Set();

function drawSoon(...what) {
  if (!toDraw.size) requestAnimationFrame(drawNext);
  for (const one of what) toDraw.add(one);
}

function drawNext() {
  const [next] = toDraw;
  toDraw.delete(next);
  if (toDraw.size) setTimeout(drawNext);
  next();
}

function concernsPicked(change) {
  if (!state.picked) return false;
  const { holder, node, job } = state.picked;
  if (job) return (change.holders || []).some((one) => jobKey(one) === job) || Boolean(change.gone_holders);
  const names = [...(change.nodes || []).map((one) => one.name), ...(change.gone_nodes || [])];
  const keys = [...(change.holders || []).map((one) => one.key), ...(change.gone_holders || [])];
  return names.includes(node) || keys.includes(holder) || (node && (change.holders || []).some((one) => one.node === node));
}

function wire() {
  $("search").addEventListener("input", (event) => { state.find = event.target.value; drawSoon(refreshNodes, drawPods, drawTable); });
  for (const name of ["namespace", "job"]) $(name).addEventListener("change", (event) => { state[name] = event.target.value; drawSoon(refreshNodes, drawPods, drawTable); });
  $("group").addEventListener("change", (event) => { state.group = event.target.value; zoomTo(null); });
  $("size").addEventListener("change", (event) => { state.size = event.target.value; refreshNodes(); });
  $("nodes").addEventListener("scroll", () => requestAnimationFrame(paint), { passive: true });
  new ResizeObserver(() => refreshNodes()).observe($("nodes"));
  $("rows").addEventListener("click", (event) => {
    const fold = event.target.closest("[data-group]");
    if (fold) { state.closed.delete(fold.dataset.group) || state.closed.add(fold.dataset.group); refreshNodes(); }
    const made = event.target.closest(".machine");
    const device = event.target.closest(".device");
    if (made && made.classList.contains("tile")) return zoomTo(state.zoom.group, made.dataset.node);
    if (made) pick(device ? { node: made.dataset.node, device: Number(device.dataset.at) } : { node: made.dataset.node });
  });
  $("rows").addEventListener("keydown", (event) => {
    const name = event.target.closest?.(".machine")?.dataset.node;
    if (name && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); if (event.target.classList.contains("tile")) zoomTo(state.zoom.group, name); else pick({ node: name }); } else if (name) walk(event);
  });
  wireMap();
  document.querySelector("[role=tablist]").addEventListener("keydown", moveTab);
  for (const tab of document.querySelectorAll("[role=tab]")) tab.addEventListener("click", () => { showTab(tab.id.slice(4)); openSheet(true); });
  $("close").addEventListener("click", () => openSheet(false));
  window.addEventListener("hashchange", () => { if (location.hash.slice(1)) followLink(); else selectNothing(); });
  document.addEventListener("keydown", shortcuts);
  wireTheme();
  wireDrop();
}

function moveTab(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const tabs = [...document.querySelectorAll("[role=tab]")].filter((tab) => !tab.hidden);
  const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
  showTab(next.id.slice(4));
  next.focus();
}

function shortcuts(event) {
  const typing = event.target.closest?.("input, textarea, select");
  if (event.key === "/" && !typing) { event.preventDefault(); $("search").focus(); }
  if (event.key === "Escape" && (!typing || event.target === $("search"))) {
    if (zoomOut()) return;
    state.find = $("search").value = "";
    selectNothing();
    drawAll();
  }
}

function wireTheme() {
  const themes = ["auto", "light", "dark"];
  $("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const next = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % 3];
    root.dataset.theme = next;
    $("theme").textContent = `Theme: ${next}`;
    drawMap();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMap);
}

function wireDrop() {
  if (state.answers) return;
  const carries = (event) => event.dataTransfer?.types.includes("Files");
  const take = async (file) => { $("manifest").value = await file.text(); await tryManifest(file.name); };
  document.addEventListener("dragover", (event) => { if (carries(event)) { event.preventDefault(); $("drop").hidden = false; } });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("drop").hidden = true; });
  document.addEventListener("drop", (event) => {
    $("drop").hidden = true;
    if (carries(event)) { event.preventDefault(); take(event.dataTransfer.files[0]); }
  });
  $("file").addEventListener("change", (event) => { if (event.target.files[0]) take(event.target.files[0]); event.target.value = ""; });
  $("try-now").addEventListener("click", () => tryManifest());
}

function start() {
  document.body.append(svg("svg", { width: 0, height: 0, "aria-hidden": "true" }, svg("defs", {},
    svg("pattern", { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("line", { class: "hatch", x1: 0, y1: 0, x2: 0, y2: 7 })))));
  const inside = $("world").textContent.trim();
  if (inside) {
    takeWorld(JSON.parse(inside));
    say("○ recorded", state.taken);
    $("tab-try").hidden = $("tab-history").hidden = true;
    document.documentElement.dataset.ready = "yes";
  }
  drawLegend();
  drawStates();
  drawAll();
  drawPicked();
  wire();
  if (!inside) listen();
}

start();

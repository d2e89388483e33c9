"use strict";
// What the page knows, and small helpers. Everything that comes from the cluster is shown through text nodes, never as HTML.

const DISTANCES = {
  PIX: { glyph: "●", word: "one PCIe switch" },
  PXB: { glyph: "◆", word: "several PCIe switches" },
  PHB: { glyph: "■", word: "one host bridge" },
  NODE: { glyph: "▲", word: "two host bridges of a NUMA node" },
  SYS: { glyph: "✖", word: "across NUMA nodes" },
  UNKNOWN: { glyph: "?", word: "unknown" },
};
const RANK = Object.fromEntries(Object.keys(DISTANCES).map((name, i) => [name, i]));
const STATES = { free: "○", "in use": "■", tainted: "⚠", elsewhere: "↗" };
const SHOWN_PODS = 200;
const READ_AHEAD_MS = 10; // at a time, so that typing stays responsive

const state = {
  title: "", live: false, taken: "", answers: null, number: -1, waiting: [], left: 0, stale: null,
  layouts: new Map(), nodes: new Map(), holders: new Map(), onNode: new Map(), summaries: new Map(),
  namespaces: new Map(), jobs: new Map(), // how many pods of each
  sorted: null, // the machines by name, until one comes or goes
  find: "", only: new Set(), namespace: "", job: "", closed: new Set(), group: "auto", size: "auto",
  zoom: { group: null, node: null }, // what fills the screen: the fleet, one group of it, or one machine
  picked: null, // {holder: key} | {job: key} | {node: name} | {node: name, device: place}
  plan: null, // what the last tried manifest would become
  fresh: new Set(),
};

const $ = (id) => document.getElementById(id);
const byName = new Intl.Collator("en", { numeric: true }).compare;
// The same for names of Kubernetes' objects. A collator looks at every letter again each time two are compared; this is made
// once, and tens of thousands are compared with every key pressed.
const inOrder = (named) => (named.order ??= named.key.replace(/\d+/g, (digits) => digits.padStart(12, "0")));
const byKey = (a, b) => (inOrder(a) < inOrder(b) ? -1 : inOrder(a) > inOrder(b) ? 1 : 0);

function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

function badge(distance, misplaced = false, extra = "") {
  const { glyph, word } = DISTANCES[distance];
  return el("span", { class: `badge ${distance}`, title: `${distance}: ${word}` }, `${glyph} ${distance}`, misplaced ? " misplaced" : extra);
}

// Redraw a part of the page without taking the focus from what stands there under the same name.
function keepFocus(place, redraw) {
  const name = (made) => made.dataset.node || made.dataset.holder || made.dataset.group || made.textContent;
  const focused = place.contains(document.activeElement) && document.activeElement !== place ? name(document.activeElement) : null;
  redraw();
  if (focused === null) return;
  [...place.querySelectorAll("button, [tabindex]")].find((made) => name(made) === focused)?.focus({ preventScroll: true });
}

// Changes.

function takeWorld(world) {
  for (const map of [state.layouts, state.nodes, state.holders, state.onNode, state.summaries, state.namespaces, state.jobs]) map.clear();
  state.sorted = null;
  Object.assign(state, { title: world.title, live: world.live, number: world.number, waiting: world.waiting, left: world.left || 0, stale: world.stale });
  Object.assign(state, { taken: world.taken || "", answers: world.answers || null });
  merge(world);
  if (!state.left) readAhead();
}

function takeChange(change) {
  if (change.number <= state.number) return "";
  const said = describe(change);
  state.number = change.number;
  if (change.waiting) state.waiting = change.waiting;
  if ("stale" in change) state.stale = change.stale;
  if ("left" in change) state.left = change.left;
  merge(change);
  if (change.left === 0) readAhead();
  for (const name of namesIn(change)) state.fresh.add(name);
  return said;
}

// The machines a change is about.
const namesIn = (change) => [...(change.nodes || []).map((node) => node.name), ...(change.holders || []).map((holder) => holder.node)];

function merge(part) {
  for (const [key, layout] of Object.entries(part.layouts || {})) state.layouts.set(key, layout);
  for (const node of part.nodes || []) {
    if (!state.nodes.has(node.name)) state.sorted = null;
    state.nodes.set(node.name, node);
    state.summaries.delete(node.name);
  }
  for (const name of part.gone_nodes || []) {
    state.nodes.delete(name);
    state.sorted = null;
  }
  for (const holder of part.holders || []) {
    forget(holder.key);
    named(holder);
    state.holders.set(holder.key, holder);
    if (!state.onNode.has(holder.node)) state.onNode.set(holder.node, new Set());
    state.onNode.get(holder.node).add(holder.key);
    state.summaries.delete(holder.node);
    tally(holder, 1);
  }
  for (const key of part.gone_holders || []) forget(key);
}

// Keys are "namespace/pod", "claim namespace/name" and "plan namespace/pod".
function named(holder) {
  const [, kind, namespace, name] = holder.key.match(/^(?:(claim|plan) )?([^/]*)\/(.*)$/s);
  return Object.assign(holder, { kind: kind || "pod", namespace, name });
}

const jobKey = (holder) => holder.job && (holder.ofJob ??= `${holder.namespace}/${holder.job}`);

function tally(holder, step) {
  for (const [counts, key] of [[state.namespaces, holder.namespace], [state.jobs, jobKey(holder)]]) {
    if (!key) continue;
    const now = (counts.get(key) || 0) + step;
    if (now) counts.set(key, now);
    else counts.delete(key);
  }
}

function forget(key) {
  const old = state.holders.get(key);
  if (old) state.onNode.get(old.node)?.delete(key);
  if (old) state.summaries.delete(old.node);
  if (old) tally(old, -1);
  state.holders.delete(key);
}

function describe(change) {
  const said = [];
  for (const holder of change.holders || []) {
    const held = holder.claims.reduce((sum, claim) => sum + claim.devices.length, 0);
    said.push(`${holder.key} ${holder.node ? `on ${holder.node}` : "waits"}: ${holder.phase}, ${count(held, "device")}`);
  }
  for (const key of change.gone_holders || []) said.push(`${key} is gone`);
  for (const name of change.gone_nodes || []) said.push(`${name} is gone`);
  if (!said.length) for (const node of change.nodes || []) said.push(`${node.name} changed`);
  return said.length > 3 ? `${said.slice(0, 3).join(" · ")} · and ${said.length - 3} more` : said.join(" · ");
}

// Looking at one node.

function holdersOn(name) {
  return heldOn(name).sort(byKey);
}

// In any order: comparing names takes longer than all the rest.
const heldOn = (name) => Array.from(state.onNode.get(name) || [], (key) => state.holders.get(key));

function plannedOn(name) {
  if (!state.plan) return [];
  state.plan.onNode ??= Map.groupBy(state.plan.pods, (pod) => pod.node);
  return state.plan.onNode.get(name) || [];
}

// Device by device what is not plainly free: its state, who holds it, its taints.
function marksOf(node) {
  const marks = new Map();
  for (const key of state.onNode.get(node.name) || []) {
    const holder = state.holders.get(key);
    for (const claim of holder.claims) for (const { at, admin } of claim.devices) {
      if (at === undefined || admin) continue;
      marks.set(at, held(marks.get(at), `${holder.namespace}/${claim.name}`, key));
    }
  }
  for (const { at, taints } of node.tainted || []) marks.set(at, { state: "tainted", ...marks.get(at), taints });
  for (const at of node.elsewhere || []) if (!marks.get(at).by) marks.get(at).state = "elsewhere";
  return marks;
}

// Several claims can share a NIC, and several pods a claim.
function held(before, claim, key) {
  const claims = [...new Set([...(before?.claims || []), claim])].sort();
  return { state: "in use", claims, claim: claims.join(", "), by: [...(before?.by || []), key].sort() };
}

function summary(node) {
  if (!state.summaries.has(node.name)) state.summaries.set(node.name, summed(node));
  return state.summaries.get(node.name);
}

function summed(node) {
  const sum = { gpus: 0, nics: 0, usedGpus: 0, usedNics: 0, states: new Set(), misplaced: false, worst: "", marks: marksOf(node) };
  state.layouts.get(node.layout).devices.forEach((device, at) => {
    const mark = sum.marks.get(at);
    sum[device.kind === "gpu" ? "gpus" : "nics"] += 1;
    if (mark?.by) sum[device.kind === "gpu" ? "usedGpus" : "usedNics"] += 1;
    sum.states.add(mark ? mark.state : "free");
    if (mark?.taints && mark.state !== "elsewhere") sum.states.add("tainted");
  });
  for (const key of state.onNode.get(node.name) || []) {
    const holder = state.holders.get(key);
    if (holder.worst && (!sum.worst || RANK[holder.worst] > RANK[sum.worst])) sum.worst = holder.worst;
    if (holder.misplaced) sum.misplaced = true;
  }
  if (sum.misplaced) sum.states.add("misplaced");
  if (node.problem || node.unpublished) sum.states.add("incomplete");
  return sum;
}

function matches(node, words) {
  if (state.only.size) {
    const { states } = summary(node);
    if (![...state.only].some((wanted) => states.has(wanted))) return false;
  }
  if ((state.namespace || state.job) && !hasChosenPod(node)) return false;
  return words.every(({ word, layouts }) => layouts.has(node.layout) || wordsOf(node).includes(word));
}

function hasChosenPod(node) {
  for (const key of state.onNode.get(node.name) || []) if (chosenPod(state.holders.get(key))) return true;
  return false;
}

// Of a machine and its pods. Made once, and before anybody types if there is time: every key pressed looks at all of them.
function wordsOf(node) {
  const sum = summary(node);
  return (sum.words ??= [`${node.name}\n${node.block || ""}`.toLowerCase(), ...heldOn(node.name).map(holderWords)].join("\n"));
}

function readAhead() {
  const nodes = state.nodes.values();
  const read = (idle) => {
    const end = performance.now() + Math.min(READ_AHEAD_MS, idle.timeRemaining());
    for (const node of nodes) {
      wordsOf(node);
      heldOn(node.name).forEach(inOrder);
      if (performance.now() > end) return window.requestIdleCallback(read);
    }
  };
  window.requestIdleCallback?.(read); // a browser without it reads when it is asked
}

const chosenPod = (holder) => (!state.namespace || holder.namespace === state.namespace) && (!state.job || jobKey(holder) === state.job);
const deviceWords = (device) => [device.label, device.title, device.name, device.address, device.interface || ""].join(" ");
const holderWords = (holder) => (holder.words ??= wordsOfHolder(holder).join("\n").toLowerCase());

// Devices by name only where no machine publishes them; of the others their layout tells.
function wordsOfHolder({ key, node, phase, job, claims }) {
  return [key, node, phase, job || "", ...claims.flatMap((claim) => [claim.name, ...claim.devices.map((device) => device.name || "")])];
}

const wordsToFind = () => state.find.toLowerCase().split(/\s+/).filter(Boolean);

// The same, each word with the kinds of machines that have it: of kinds there are few.
const lookedFor = () => wordsToFind().map((word) => ({ word, layouts: layoutsWith(word) }));

function layoutsWith(word) {
  const found = [...state.layouts].filter(([, layout]) => {
    layout.words ??= [layout.title, ...layout.devices.map(deviceWords)].join("\n").toLowerCase();
    return layout.words.includes(word);
  });
  return new Set(found.map(([key]) => key));
}

// Answers from the server, or from this file where it is an export.

async function ask(path, parameter, value) {
  if (state.answers) {
    return state.answers[`${path}?${value}`] || { missing: "Not in this export; use dranet serve." };
  }
  const answer = await fetch(`${path}?${parameter}=${encodeURIComponent(value)}`);
  return answer.ok ? answer.json() : { missing: (await answer.text()).trim() };
}

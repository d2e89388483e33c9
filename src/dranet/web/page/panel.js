// The right side: the pods, what was selected, and what a manifest would become.

function drawPods() {
  const words = lookedFor();
  const wanted = [...state.holders.values()].filter((holder) => chosenPod(holder) && words.every((one) => podHas(holder, one)));
  const worstFirst = (a, b) => Boolean(b.misplaced) - Boolean(a.misplaced) || !b.node - !a.node || byKey(a, b);
  const list = el("ul", { class: "items" }, firstOf(wanted, SHOWN_PODS, worstFirst).map((holder) => el("li", {}, holderButton(holder))));
  const more = wanted.length - SHOWN_PODS;
  replace("pods", list,
    more > 0 ? el("p", { class: "quiet" }, `and ${more} more: search to narrow them down`) : null,
    wanted.length ? null : el("p", { class: "quiet" }, state.holders.size ? "No pod matches the search." : `No pod requests a device.${state.answers ? "" : " Try a manifest to see where its pods would land."}`));
  $("tab-pods").textContent = `Pods ${state.holders.size}`;
}

function podHas(holder, { word, layouts }) {
  if (holderWords(holder).includes(word)) return true;
  const { layout } = state.nodes.get(holder.node) || {};
  if (!layouts.has(layout)) return false;
  const { devices } = state.layouts.get(layout);
  const has = (device) => (device.words ??= deviceWords(device).toLowerCase()).includes(word);
  return holder.claims.some((claim) => claim.devices.some(({ at }) => devices[at] && has(devices[at])));
}

// The first few in order. Sorting tens of thousands by name for the sake of these would be felt.
function firstOf(items, many, compare) {
  const found = [];
  for (const item of items) {
    if (found.length === many && compare(item, found[many - 1]) >= 0) continue;
    let [low, high] = [0, found.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (compare(item, found[middle]) < 0) high = middle;
      else low = middle + 1;
    }
    found.splice(low, 0, item);
    if (found.length > many) found.pop();
  }
  return found;
}

function holderButton(holder) {
  const name = holder.kind === "claim" ? `claim ${holder.name}` : holder.name;
  return el("button", { type: "button", class: `item${state.picked?.holder === holder.key ? " picked" : ""}`, "data-holder": holder.key,
    onclick: () => pick({ holder: holder.key }) },
  el("span", {}, el("b", {}, name)), holder.worst ? badge(holder.worst, holder.misplaced) : el("span", { class: "quiet" }, holder.phase),
  el("span", { class: "quiet" }, `${holder.namespace} · ${holder.node || "no node"}`), el("span", { class: "quiet" }, holder.worst ? holder.phase : ""));
}

function drawPicked() {
  const picked = state.picked;
  const holder = picked?.holder && (state.holders.get(picked.holder) || state.plan?.pods.find((pod) => pod.key === picked.holder));
  if (holder) return drawHolder(holder);
  if (picked?.job) return drawJob(picked.job);
  const node = state.nodes.get(picked?.node);
  if (node && picked.device !== undefined) return drawDevicePanel(node, picked.device);
  if (node) return drawNodePanel(node);
  const gone = picked ? `${picked.holder || picked.node} no longer exists.` : "Click a machine, a device or a pod.";
  return replace("picked", el("p", { class: "quiet" }, gone));
}

function drawHolder(holder) {
  const devices = state.layouts.get(state.nodes.get(holder.node)?.layout)?.devices || [];
  replace("picked",
    el("h2", {}, holder.kind === "claim" ? `claim ${holder.name}` : holder.name),
    el("p", {}, el("span", { class: "quiet" }, `${holder.kind} in ${holder.namespace}, ${holder.phase}, on `), holder.node ? nodeLink(holder.node) : "no node yet"),
    holder.job ? el("p", {}, el("span", { class: "quiet" }, "of "), el("button", { type: "button", class: "link", onclick: () => pick({ job: jobKey(holder) }) }, holder.job)) : null,
    holder.pairs.length ? [el("h3", {}, "Alignment"), bandwidth(holder), pairTable(holder, devices)] : null,
    holder.claims.map((claim) => [el("h3", {}, "Claim ", el("b", {}, claim.name)), deviceTable(holder, claim, devices),
      (claim.trouble || []).map((text) => el("p", { class: "bad" }, `⚠ ${text}`))]),
    holder.claims.length ? null : el("p", { class: "quiet" }, "Its claims do not exist yet."),
    holder.kind === "pod" && holder.node ? trafficOf(holder.node, (nic) => holder.claims.some((claim) => nic.claim === `${holder.namespace}/${claim.name}`)) : null,
    holder.kind === "plan" ? el("p", { class: "quiet" }, "Planned, not applied.") : el("h3", {}, "Explain"),
    holder.kind === "plan" ? null : answerInto("/explain", "holder", holder.key, (answer) => el("pre", { id: "explain" }, answer.text)),
    holder.kind === "plan" ? null : holderCommands(holder));
}

function nodeLink(name) {
  return el("button", { type: "button", class: "link", onclick: () => { pick({ node: name }); } }, name);
}

function bandwidth(holder) {
  if (holder.busbw === null || holder.busbw === undefined) return el("p", { class: "quiet" }, `No bandwidth figure: ${holder.why || "these devices are unknown"}.`);
  const share = holder.of_best === null ? "" : `, ${Math.round(holder.of_best * 100)} % of the best for these devices`;
  const bar = el("div", { class: `bar${holder.of_best !== null && holder.of_best < 0.9 ? " poor" : ""}`, "aria-hidden": "true" }, el("div"));
  bar.firstChild.style.width = `${Math.round((holder.of_best ?? 1) * 100)}%`;
  return [el("p", {}, el("b", {}, `about ${holder.busbw} GB/s`), ` bus bandwidth${share}`), bar,
    holder.measured ? el("p", {}, el("b", {}, `${holder.measured} GB/s`), ` measured, ${Math.round((holder.measured / holder.busbw) * 100)} % of the expected value`) : null,
    el("p", { class: "quiet" }, holder.assumes),
    holder.uncertain ? el("p", { class: "quiet" }, "The device plugin may assign other GPUs: this is the worst case.") : null];
}

function pairTable(holder, devices) {
  const rows = holder.pairs.map((pair) => el("tr", {}, el("td", {}, label(devices[pair.gpu])), el("td", {}, label(devices[pair.nic])),
    el("td", {}, badge(pair.distance)), el("td", { class: pair.direct === false ? "bad" : "quiet" }, how(pair))));
  return el("table", {}, head("GPU", "NIC", "Distance", "Path"), el("tbody", {}, rows));
}

const how = (pair) => ({ true: "direct", false: "✖ through host memory" })[pair.direct] || "unknown";
const label = (device) => (device ? `${device.label} ${device.title}` : "?");
const head = (...titles) => el("thead", {}, el("tr", {}, titles.map((title) => el("th", { scope: "col" }, title))));

function deviceTable(holder, claim, devices) {
  if (!claim.devices.length) return el("p", { class: "quiet" }, "not allocated");
  const rows = claim.devices.map((one) => {
    const device = devices[one.at];
    const name = device ? el("button", { type: "button", class: "link", onclick: () => pick({ node: holder.node, device: one.at }) }, label(device)) : `${one.name} (not published)`;
    return el("tr", {}, el("td", {}, one.share ? `${one.request} (${one.share})` : one.request), el("td", {}, name), el("td", { class: "mono" }, device ? device.address || device.name : ""),
      el("td", {}, device ? `NUMA ${device.numa ?? "?"}` : ""));
  });
  return el("table", {}, head("Request", "Device", "Address", "Place"), el("tbody", {}, rows));
}

function drawNodePanel(node) {
  const layout = state.layouts.get(node.layout);
  const sum = summary(node);
  const pods = holdersOn(node.name);
  replace("picked",
    el("h2", {}, node.name), el("p", { class: "quiet" }, [layout.title, node.block].filter(Boolean).join(" · ") || "machine"),
    node.problem ? el("p", { class: "warn" }, `⚠ ${node.problem}: the scheduler does not use it`) : null,
    (node.unpublished || []).map((one) => el("p", { class: "warn" }, `⚠ ${one.name} is allocated to claim ${one.claim} but not published`)),
    el("h3", {}, "Pods"), pods.length ? el("ul", { class: "items" }, pods.map((holder) => el("li", {}, holderButton(holder)))) : el("p", { class: "quiet" }, "none"),
    trafficOf(node.name),
    el("h3", {}, "Distance of every GPU and NIC"), matrix(layout),
    el("h3", {}, "Devices"), el("table", {}, head("Device", "Address", "NUMA", "State"),
      el("tbody", {}, layout.devices.map((device, at) => deviceRow(node, device, at, sum.marks.get(at))))),
    nodeCommands(node));
}

function deviceRow(node, device, at, mark) {
  const kind = mark ? mark.state : "free";
  const taints = mark?.taints && kind === "in use" ? " ⚠ tainted" : "";
  return el("tr", {}, el("td", {}, el("button", { type: "button", class: "link", onclick: () => pick({ node: node.name, device: at }) }, label(device))),
    el("td", { class: "mono" }, device.address || device.name), el("td", {}, device.numa ?? "?"),
    el("td", {}, `${STATES[kind]} ${kind}${taints}`));
}

function matrix(layout) {
  const gpus = layout.devices.filter((device) => device.kind === "gpu");
  const nics = layout.devices.filter((device) => device.kind === "nic");
  if (!gpus.length || !nics.length) return el("p", { class: "quiet" }, "This machine has no pair of GPU and NIC.");
  const titles = [el("td", {}), ...nics.map((nic) => el("th", { scope: "col", title: nic.title }, nic.label === "NET" ? nic.title : nic.label))];
  const rows = gpus.map((gpu, g) => el("tr", {}, el("th", { scope: "row" }, gpu.label),
    nics.map((nic, n) => el("td", { class: layout.near[g][n], title: `${gpu.label} to ${nic.title}` }, `${DISTANCES[layout.near[g][n]].glyph} ${layout.near[g][n]}`))));
  const links = gpus[0].nvlinks ? el("p", { class: "quiet" }, `GPUs are connected by ${gpus[0].nvlinks} NVLinks.`) : null;
  return [el("div", { class: "wide" }, el("table", { class: "matrix" }, el("thead", {}, el("tr", {}, titles)), el("tbody", {}, rows))), links];
}

function drawDevicePanel(node, at) {
  const device = state.layouts.get(node.layout).devices[at];
  if (!device) return drawNodePanel(node);
  const mark = summary(node).marks.get(at);
  const kind = mark ? mark.state : "free";
  const facts = [["State", `${STATES[kind]} ${kind}`], ["Driver", device.driver], ["Device", device.name], ["PCI address", device.address || "not published"],
    ["NUMA node", device.numa ?? "unknown"], ["PCIe root", device.root || "hidden"]];
  if (device.kind === "nic") facts.push(["Interface", device.interface || "none on the host"], ["Speed", device.gbit ? `${device.gbit} Gb/s` : "not published"]);
  if (mark?.claim) facts.push(["Claim", mark.claim]);
  for (const taint of mark?.taints || []) facts.push(["Taint", `⚠ ${taint}`]);
  return replace("picked", el("h2", {}, label(device)), el("p", {}, el("span", { class: "quiet" }, "on "), nodeLink(node.name)), factTable(facts),
    (mark?.by || []).filter((key) => state.holders.has(key)).map((key) => el("div", {}, el("h3", {}, "Held by"), holderButton(state.holders.get(key)))),
    mark?.by && device.kind === "nic" ? trafficOf(node.name, (nic) => nic.device === device.name) : null,
    el("h3", {}, "Published"), answerInto("/node", "name", node.name, (answer) => factTable(Object.entries(answer.devices[`${device.driver}/${device.name}`] || {}))));
}

function factTable(facts) {
  return el("table", {}, el("tbody", {}, facts.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "mono" }, String(value))))));
}

// A place that is filled when the answer comes; until then it shows the answer of before, if there was one.
const answered = new Map();

function answerInto(path, parameter, value, show) {
  const question = `${path}?${value}`;
  const place = el("div", {}, answered.has(question) ? show(answered.get(question)) : el("p", { class: "quiet" }, "asking …"));
  const fill = (answer) => {
    if (!answer.missing) answered.set(question, answer);
    place.replaceChildren(answer.missing ? el("p", { class: "quiet" }, answer.missing) : show(answer));
  };
  ask(path, parameter, value).then(fill, () => fill({ missing: "The server does not respond." }));
  return place;
}

function replace(id, ...children) {
  keepFocus($(id), () => $(id).replaceChildren(...children.flat(3).filter(Boolean)));
}

// Trying a manifest.

// The plan comes first: on a large cluster lint takes longer.
async function tryManifest(file = "manifest") {
  showTab("try");
  const [plan, lint] = [el("div", {}, el("p", { class: "quiet" }, "planning …")), el("div")];
  replace("tried", plan, lint);
  const body = $("manifest").value;
  state.plan = await post("/plan", file, body, plan, (found) => planned(found));
  refreshNodes();
  if (state.plan?.pods.length) reveal(state.plan.pods[0].node);
  lint.replaceChildren(el("p", { class: "quiet" }, "checking …"));
  await post("/lint", file, body, lint, (found) => findings(found.findings));
}

async function post(path, file, body, place, show) {
  try {
    const answer = await fetch(`${path}?file=${encodeURIComponent(file)}`, { method: "POST", headers: { "Content-Type": "application/yaml" }, body });
    if (!answer.ok) throw new Error(await answer.text());
    const found = await answer.json();
    place.replaceChildren(...show(found).filter(Boolean));
    return found;
  } catch (error) {
    place.replaceChildren(el("p", { class: "bad" }, `✖ ${error.message}`));
    return null;
  }
}

function planned({ pods, unschedulable, jobs, rails }) {
  pods.forEach(named);
  return [el("h3", {}, `Plan: ${count(pods.length, "pod")} placed${unschedulable.length ? `, ${unschedulable.length} not` : ""}`),
    ...unschedulable.map((pod) => el("div", { class: "finding error" }, el("b", {}, `✖ ${pod.name}: `), pod.reason,
      pod.explanation ? el("pre", { class: "explanation" }, pod.explanation) : null)),
    el("ul", { class: "items" }, pods.map((pod) => el("li", {}, holderButton(pod)))),
    ...jobs.map((job) => el("p", {}, `${job.workload}: ${job.text}${job.certain ? "" : "; the worst case: the device plugin may assign nearer GPUs"}`,
      ...job.places.map((line) => el("span", { class: "quiet" }, el("br"), line)))),
    ...rails.map((job) => el("p", { class: job.reachable === false ? "bad" : "" }, `${job.reachable === false ? "✖ " : ""}${job.text}`))];
}

function findings(list) {
  const glyph = { error: "✖", warning: "⚠", info: "ℹ" };
  const shown = list.map((one) => el("div", { class: `finding ${one.severity}` },
    el("b", {}, `${glyph[one.severity]} ${one.severity}`), el("span", { class: "quiet" }, ` line ${one.line}, column ${one.column} · ${one.rule}`),
    el("div", {}, one.message), one.fix ? el("pre", {}, one.fix) : null));
  return [el("h3", {}, `Lint: ${count(list.length, "finding")}`), ...shown, list.length ? null : el("p", { class: "good" }, "✔ no findings")];
}

// The last hour, from the server's memory.

const SHOWN_HAPPENINGS = 200;
const KINDS_OF_NEWS = { placed: "＋", left: "－", fault: "⚠", well: "✔", other: "·" };
let historyTimer = null;

// Fetched while the tab is open, not with every change.
function drawHistory() {
  if ($("history").hidden || historyTimer) return;
  historyTimer = setTimeout(() => { historyTimer = null; }, 2000);
  ask("/history", "of", "all").then((answer) => (answer.missing ? replace("history", el("p", { class: "quiet" }, answer.missing)) : showHistory(answer)),
    () => replace("history", el("p", { class: "quiet" }, "The server does not answer.")));
}

function showHistory({ since, happenings, minutes, dropped }) {
  const words = wordsToFind();
  const found = happenings.filter((one) => words.every((word) => `${one.about} ${one.text}`.toLowerCase().includes(word)));
  const more = found.length - SHOWN_HAPPENINGS;
  replace("history",
    el("h2", {}, "The last hour"), el("p", { class: "quiet" }, since ? `recorded since ${moment(since)}` : "The first scan of the cluster is not complete."),
    hourChart(minutes),
    el("ul", { class: "items news" }, found.slice(0, SHOWN_HAPPENINGS).map(happening)),
    more > 0 ? el("p", { class: "quiet" }, `and ${more} more: search to narrow them down`) : null,
    dropped ? el("p", { class: "quiet" }, `${dropped} older entries of this hour were dropped (limit reached)`) : null,
    happenings.length ? null : el("p", { class: "quiet" }, "No changes yet."));
}

function happening({ at, kind, about, text }) {
  const known = state.nodes.has(about) ? { node: about } : state.holders.has(about) ? { holder: about } : null;
  return el("li", { class: kind === "fault" ? "warn" : null }, el("span", { class: "quiet" }, `${moment(at)} ${KINDS_OF_NEWS[kind] || "·"} `),
    known ? el("button", { type: "button", class: "link", onclick: () => pick(known) }, about) : about, ` ${text}`);
}

// A bar for each minute: placed pods upwards, deleted pods downwards, a mark for a fault.
function hourChart(minutes) {
  const by = new Map(minutes.map((one) => [Math.round(new Date(one.at) / 60000), one]));
  const now = Math.floor(Date.now() / 60000);
  const most = Math.max(1, ...minutes.map((one) => Math.max(one.placed || 0, one.left || 0)));
  const total = (kind) => minutes.reduce((sum, one) => sum + (one[kind] || 0), 0);
  const made = svg("svg", { class: "hour", viewBox: "0 0 300 84", role: "img", "aria-label": `Pods per minute: at most ${most}; in the hour ${total("placed")} placed, ${total("left")} deleted, ${count(total("fault"), "fault")}` });
  made.append(svg("line", { class: "axis", x1: 0, x2: 300, y1: 40, y2: 40 }));
  for (let i = 0; i < 60; i++) {
    const one = by.get(now - 59 + i);
    if (!one) continue;
    const [up, down] = [(one.placed || 0) * 34 / most, (one.left || 0) * 34 / most];
    made.append(svg("rect", { class: "placed", x: i * 5, y: 40 - up, width: 4, height: up }), svg("rect", { class: "left", x: i * 5, y: 40, width: 4, height: down }));
    if (one.fault) made.append(svg("text", { x: i * 5 - 3, y: 83 }, "⚠"));
  }
  return [made, el("p", { class: "quiet" }, `▲ ${total("placed")} placed · ▼ ${total("left")} deleted · ⚠ ${count(total("fault"), "fault")}; the highest bar is ${count(most, "pod")} per minute`)];
}

// A job: its pods by block and rail, the expected and the measured bandwidth.

const SHOWN_BLOCKS = 50;
const podsOf = (key) => [...state.holders.values()].filter((holder) => jobKey(holder) === key);

function drawJob(key) {
  const [namespace, job] = key.split(/\/(.*)/s);
  const pods = podsOf(key);
  const only = state.job === key;
  const toggle = () => { state.job = only ? "" : key; drawChoices(); $("job").value = state.job; refreshNodes(); drawPods(); drawPicked(); };
  replace("picked",
    el("h2", {}, job), el("p", { class: "quiet" }, `job in ${namespace}, ${count(pods.length, "pod")}`),
    el("button", { type: "button", "aria-pressed": String(only), onclick: toggle }, "Show only its machines"),
    answerInto("/job", "name", key, jobFigures),
    jobCommands(namespace, job),
    el("h3", {}, "Pods"), el("ul", { class: "items" }, firstOf(pods, SHOWN_PODS, byKey).map((holder) => el("li", {}, holderButton(holder)))));
}

function jobFigures(answer) {
  return el("div", { id: "job-figures" }, el("h3", {}, "Bandwidth"), el("p", {}, `expected: ${answer.expected}`),
    el("p", { class: answer.measured ? "" : "quiet" }, answer.measured ? `measured: ${answer.measured} GB/s (reported by its pods)` : "measured: not reported by any pod"),
    el("h3", {}, "Blocks and rails"), blockTable(answer),
    answer.places.map((line) => el("p", {}, line)), answer.rails_text ? el("p", { class: answer.rails_text.includes("different rails") ? "warn" : "" }, answer.rails_text) : null,
    answer.waiting ? el("p", { class: "warn" }, `⚠ ${count(answer.waiting, "pod")} without a node`) : null);
}

function blockTable({ blocks, rails }) {
  const named = rails.map((rail) => (rail ? `rail ${rail}` : "no rail"));
  const rows = blocks.slice(0, SHOWN_BLOCKS).map((one) => el("tr", {}, el("th", { scope: "row" }, one.block || "block unknown"), el("td", {}, `${one.pods} on ${count(one.nodes, "machine")}`),
    rails.map((rail) => el("td", {}, one.rails[rail] ? String(one.rails[rail]) : "–"))));
  const more = blocks.length - SHOWN_BLOCKS;
  return [el("div", { class: "wide" }, el("table", { class: "matrix" }, head("Block", "Pods", ...named), el("tbody", {}, rows))),
    el("p", { class: "quiet" }, `NICs of the job by block and rail.${more > 0 ? ` ${more} more blocks are not listed.` : ""}`)];
}

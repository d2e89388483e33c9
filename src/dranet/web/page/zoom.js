// From the fleet to one of its groups, to a machine, to a device, and back; and the selected namespace or job.

const CHOICES = 300; // entries of a list to choose from: those with most pods; the rest is found by searching

const inZoom = (node) => (state.zoom.node ? node.name === state.zoom.node : state.zoom.group === null || groupOf(node) === state.zoom.group);

function zoomTo(group, node = null) {
  state.zoom = { group, node };
  if (node) return pick({ node });
  state.picked = null;
  refreshNodes();
  return drawPicked();
}

// One step back; false if the whole fleet is on the screen.
function zoomOut() {
  const { group, node } = state.zoom;
  if (node === null && group === null) return false;
  zoomTo(node === null ? null : group);
  if (node) reveal(node);
  return true;
}

function drawCrumbs(found) {
  const { group, node } = state.zoom;
  const device = node && state.picked?.node === node ? state.picked.device : undefined;
  const steps = [["fleet", () => zoomTo(null)]];
  if (group !== null) steps.push([group, () => zoomTo(group)]);
  if (node) steps.push([node, () => zoomTo(group, node)]);
  if (device !== undefined) steps.push([state.layouts.get(state.nodes.get(node)?.layout)?.devices[device]?.label || "device", () => {}]);
  const last = steps.length - 1;
  const parts = steps.flatMap(([name, go], i) => [i ? "›" : null, i === last ? el("b", { "aria-current": "location" }, name) : el("button", { type: "button", class: "link", onclick: go }, name)]);
  $("crumbs").hidden = !last && state.nodes.size <= TILED;
  $("crumbs").replaceChildren(...parts.filter(Boolean), el("span", { class: "quiet" }, node ? "" : count(found, "machine")));
}

function drawChoices() {
  for (const [name, counts, all] of [["namespace", state.namespaces, "all"], ["job", state.jobs, "all"]]) {
    const shown = [...counts].sort((a, b) => b[1] - a[1]).slice(0, CHOICES).map(([key]) => key);
    if (state[name] && !shown.includes(state[name])) shown.push(state[name]);
    const wanted = ["", ...shown.sort(byName)];
    const place = $(name);
    if (wanted.join("\n") === [...place.options].map((one) => one.value).join("\n")) continue;
    place.replaceChildren(...wanted.map((key) => el("option", { value: key }, key || all)));
    place.value = state[name];
  }
}

/**
 * <fleet-map>: every GPU of the fleet as a tile, on one canvas.
 *
 * Property `view`: {label, blocks, colour: "state"|"busy"|"queue", queues, queueOf(holder), nameOf(holder), selected: a node's name, marked: Set of
 * `node/index` or null, height}. Events: `pick` with {node, gpu}, by click or Enter.
 * Arrow keys move a cursor that a live region reads; the table of the fleet says the same for who does not see the map.
 */

import { html, nothing, render } from "../lit.js";
import { BRIDGED, WRITTEN, bridges, hit, layout, neighbour } from "../pure/fleetlayout.js";
import { percent, plural, product } from "../pure/format.js";
import { STATES } from "../pure/tiles.js";
import { busyColour, palette, queueColour } from "./palette.js";
import { fitted, paintTile, writeTile } from "./tile.js";

class FleetMap extends HTMLElement {
  shown = null;
  map = null;
  cursor = null;
  over = null;

  connectedCallback() {
    render(this.template(), this);
    this.canvas = this.querySelector("canvas");
    this.tip = this.querySelector(".tip");
    this.said = this.querySelector(".said");
    this.resizes = new ResizeObserver(() => this.placed());
    this.resizes.observe(this);
    if (this.shown) this.placed();
  }

  disconnectedCallback() {
    this.resizes.disconnect();
  }

  template() {
    return html`<canvas tabindex="0" role="application" aria-roledescription="map"
        @pointermove=${this.moved} @pointerleave=${() => this.hover(null)} @click=${this.clicked} @keydown=${this.pressed}
        @focus=${() => this.focused(true)} @blur=${() => this.focused(false)}></canvas>
      <div class="tip" hidden></div><p class="said sr" aria-live="polite"></p>`;
  }

  set view(view) {
    const same = this.shown && this.shown.blocks === view.blocks && this.shown.height === view.height;
    this.shown = view;
    if (!this.canvas) return;
    this.canvas.setAttribute("aria-label", `${view.label}. Arrow keys move from GPU to GPU, Enter opens. The table has the same.`);
    if (same && this.map) this.paint();
    else this.placed();
  }

  placed() {
    const width = Math.floor(this.clientWidth);
    if (!width || !this.shown) return;
    this.map = layout(this.shown.blocks, width, this.shown.height ?? 560);
    if (this.cursor && !this.map.cells[this.cursor.cell]) this.cursor = null;
    const scale = window.devicePixelRatio || 1;
    const height = Math.max(60, this.map.height);
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    this.canvas.style.height = `${height}px`;
    this.paint();
  }

  paint() {
    const brush = this.canvas.getContext("2d");
    const scale = window.devicePixelRatio || 1;
    const colours = palette();
    brush.setTransform(scale, 0, 0, scale, 0, 0);
    brush.clearRect(0, 0, this.canvas.width, this.canvas.height);
    brush.fillStyle = colours.raised;
    brush.beginPath();
    for (const box of this.map.boxes) brush.roundRect(box.x, box.y, box.w, box.h, 7);
    brush.fill();
    for (const label of this.map.labels) {
      const block = label.kind === "block";
      brush.font = block ? `600 13px ${colours.font}` : `11px ${colours.font}`;
      brush.fillStyle = block ? colours.ink : colours.muted;
      brush.fillText(fitted(brush, label.text, label.most ?? Infinity), label.x, label.y);
    }
    this.map.cells.forEach((cell) => this.paintCell(brush, cell, colours));
    for (const place of [this.over, this.focusedNow ? this.cursor : null]) {
      if (place && this.map.cells[place.cell]) this.ring(brush, place, colours);
    }
  }

  paintCell(brush, cell, colours) {
    const { node } = cell;
    const { marked, selected } = this.shown;
    if (node.name === selected) {
      brush.strokeStyle = colours.focus;
      brush.lineWidth = 2;
      brush.strokeRect(cell.x - 2.5, cell.y - 2.5, cell.w + 5, cell.h + 5);
    }
    if (this.map.tile >= BRIDGED) this.bridge(brush, cell, colours);
    node.gpus.forEach((gpu, at) => {
      const tile = cell.tiles[at];
      const dim = marked !== null && !marked.has(`${node.name}/${gpu.index}`);
      brush.globalAlpha = dim ? 0.22 : 1;
      paintTile(brush, tile.x, tile.y, this.map.tile, { gpu, state: gpu.state, fill: this.fill(gpu), colours });
      if (this.map.tile >= WRITTEN) writeTile(brush, tile.x, tile.y, this.map.tile, linesOf(gpu, this.shown.nameOf), colours);
    });
    brush.globalAlpha = 1;
  }

  /** NVLinks between neighbours, seen in the gap between their tiles. */
  bridge(brush, cell, colours) {
    const half = this.map.tile / 2;
    brush.strokeStyle = colours.mark;
    brush.lineWidth = Math.max(3, this.map.tile / 5);
    brush.beginPath();
    for (const [one, other] of bridges(cell.node, this.map.cols)) {
      const [a, b] = [cell.tiles[one], cell.tiles[other]];
      const away = half + this.map.gap / 2;
      const [x, y] = [Math.sign(b.x - a.x), Math.sign(b.y - a.y)];
      const middle = [a.x + half + x * away, a.y + half + y * away];
      const reach = this.map.gap / 2;
      brush.moveTo(middle[0] - x * reach, middle[1] - y * reach);
      brush.lineTo(middle[0] + x * reach, middle[1] + y * reach);
    }
    brush.stroke();
  }

  /** The colour of what is held, where it is not the state's own. */
  fill(gpu) {
    if (!gpu.holders.length) return null;
    if (this.shown.marked) return palette().mark;
    if (this.shown.colour === "busy") return gpu.busy === null ? palette().muted : busyColour(gpu.busy);
    if (this.shown.colour === "queue") return queueColour(this.shown.queues, this.shown.queueOf(gpu.holders[0]));
    return null;
  }

  ring(brush, place, colours) {
    const cell = this.map.cells[place.cell];
    brush.strokeStyle = colours.focus;
    brush.lineWidth = 1.5;
    brush.strokeRect(cell.x - 2.5, cell.y - 2.5, cell.w + 5, cell.h + 5);
    const tile = cell.tiles[place.gpu];
    if (!tile) return;
    brush.lineWidth = 2.5;
    brush.strokeRect(tile.x - 1, tile.y - 1, this.map.tile + 2, this.map.tile + 2);
  }

  moved = (event) => {
    const found = this.map && hit(this.map, event.offsetX, event.offsetY);
    if (found?.cell !== this.over?.cell || found?.gpu !== this.over?.gpu) this.hover(found);
  };

  hover(place) {
    this.over = place;
    this.canvas.classList.toggle("on", Boolean(place));
    if (this.map) this.paint();
    this.tell(place);
  }

  tell(place) {
    this.tip.hidden = !place;
    if (!place) return;
    const cell = this.map.cells[place.cell];
    render(tipOf(cell.node, cell.node.gpus[place.gpu]), this.tip);
    const left = Math.min(cell.x + cell.w + 12, this.clientWidth - this.tip.offsetWidth - 4);
    this.tip.style.transform = `translate(${Math.max(0, left)}px, ${cell.y + cell.h + 10}px)`;
  }

  clicked = (event) => {
    const found = this.map && hit(this.map, event.offsetX, event.offsetY);
    if (!found) return;
    this.cursor = found;
    this.pick(found);
  };

  pick(place) {
    const { node } = this.map.cells[place.cell];
    this.dispatchEvent(new CustomEvent("pick", { detail: { node, gpu: node.gpus[place.gpu] ?? null } }));
  }

  pressed = (event) => {
    if (event.key === "Enter" && this.cursor) this.pick(this.cursor);
    if (event.key === "Escape") this.tell(null);
    if (!event.key.startsWith("Arrow") && event.key !== "Home" && event.key !== "End") return;
    event.preventDefault();
    this.cursor = neighbour(this.map, this.cursor, event.key);
    this.follow();
  };

  focused(on) {
    this.focusedNow = on;
    if (on && !this.cursor) this.cursor = neighbour(this.map, null, "");
    if (on && this.canvas.matches(":focus-visible")) this.follow();
    else if (this.map) this.paint();
    if (!on) this.tell(null);
  }

  follow() {
    this.paint();
    if (!this.cursor) return;
    const { node } = this.map.cells[this.cursor.cell];
    this.tell(this.cursor);
    this.said.textContent = spoken(node, node.gpus[this.cursor.gpu]);
  }
}

customElements.define("fleet-map", FleetMap);

/** A GPU in one sentence, for a live region. */
export function spoken(node, gpu) {
  const place = [node.block, node.rack].filter(Boolean).join(", ");
  if (!gpu) return `${node.name}, ${place}: no GPU`;
  const held = gpu.holders.map((holder) => holder.name).join(", ");
  const busy = measuredOf(gpu, (share) => `${percent(share)} busy`).map((each) => `, ${each}`).join("");
  return `${node.name} GPU ${gpu.index}, ${place}: ${STATES[gpu.state].label}${held ? `, held by ${held}` : ""}${busy}`;
}

/** How busy and how warm it is, as far as that is measured. */
function measuredOf(gpu, busy) {
  return [gpu.busy === null ? "" : busy(gpu.busy), gpu.temperatureC === null ? "" : `${gpu.temperatureC} °C`].filter(Boolean);
}

/** What stands on a large tile: which GPU, its parts or what it is, who holds it, and how it does. */
function linesOf(gpu, nameOf) {
  const holders = gpu.parts.filter((part) => part.holder).map((part) => `${part.label} ${nameOf(part.holder)}`);
  const whole = gpu.parts.length ? holders : gpu.holders.map(nameOf);
  const measured = measuredOf(gpu, percent);
  return [`GPU ${gpu.index}`, ...(whole.length ? whole : [STATES[gpu.state].label]), ...(measured.length ? [measured.join(" · ")] : [])];
}

function tipOf(node, gpu) {
  const holders = gpu?.holders ?? [];
  return html`<b>${node.name}</b> <span class="muted">${[node.block, node.rack].filter(Boolean).join(" · ")}</span>
    ${gpu ? html`<p>GPU ${gpu.index} · ${product(gpu.product)} · ${STATES[gpu.state].label}</p>` : html`<p>No GPU</p>`}
    ${holders.slice(0, 3).map((holder) => html`<p class="holder">${holder.name}</p>`)}
    ${holders.length > 3 ? html`<p class="muted">and ${plural(holders.length - 3, "other")}</p>` : nothing}
    ${gpu && measuredOf(gpu, percent).length ? html`<p>${measuredOf(gpu, (share) => `${percent(share)} busy`).join(" · ")}</p>` : nothing}
    ${gpu?.reasons.length ? html`<p class="why">${gpu.reasons.join(", ")}</p>` : nothing}`;
}

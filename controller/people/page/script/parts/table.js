/**
 * <virtual-table>: a table of which only the rows in sight are in the document. Rows are one height.
 *
 * Properties: `rows`, `columns` ({id, label, css, cell(row), sort}), `keyOf(row)`, `selected` (a key), `order` ({by, down}), `label`.
 * Events: `open` with the row, by click on it or Enter; `order` with {by, down}, by a column's head.
 * One row at most is a stop of the Tab key; arrows, Page Up, Page Down, Home and End move it.
 */

import { html, nothing, render, repeat } from "../lit.js";
import { moved, scrolledTo, visible } from "../pure/window.js";

const ROW_PX = 52;

class VirtualTable extends HTMLElement {
  rows = [];
  columns = [];
  keyOf = (row) => row.key;
  selected = "";
  order = null;
  label = "";
  at = -1;

  connectedCallback() {
    this.tabIndex = -1;
    this.addEventListener("scroll", () => this.draw(), { passive: true });
    this.resizes = new ResizeObserver(() => this.draw());
    this.resizes.observe(this);
  }

  disconnectedCallback() {
    this.resizes.disconnect();
  }

  /** Set what is shown and draw it. As one property, so that it is drawn once. */
  set view(view) {
    Object.assign(this, view);
    this.at = Math.min(this.at, this.rows.length - 1);
    this.draw();
  }

  draw() {
    const { first, end } = visible(this.scrollTop, this.clientHeight || 600, ROW_PX, this.rows.length);
    render(this.template(this.rows.slice(first, end), first), this);
    // Heights are set as properties: the page's policy allows no style attributes.
    this.querySelector(".above").style.height = `${first * ROW_PX}px`;
    this.querySelector(".below").style.height = `${(this.rows.length - end) * ROW_PX}px`;
  }

  template(rows, first) {
    const stop = Math.max(0, this.at);
    return html`<table role="grid" aria-label=${this.label} aria-rowcount=${this.rows.length + 1} @keydown=${this.pressed}>
      <colgroup>${this.columns.map((column) => html`<col class=${`w-${column.css ?? "m"} ${column.less ? "less" : ""}`}>`)}</colgroup>
      <thead><tr aria-rowindex="1">${this.columns.map((column) => this.head(column))}</tr></thead>
      <tbody><tr class="above" aria-hidden="true"></tr>${repeat(rows, this.keyOf, (row, index) => this.row(row, first + index, stop))}<tr class="below" aria-hidden="true"></tr></tbody>
    </table>`;
  }

  head(column) {
    const css = `${column.css === "n" ? "number" : ""} ${column.less ? "less" : ""}`;
    if (!column.sort) return html`<th scope="col" class=${css}>${column.label}</th>`;
    const on = this.order?.by === column.id;
    const sorted = on ? (this.order.down ? "descending" : "ascending") : "none";
    return html`<th scope="col" class=${css} aria-sort=${sorted}><button type="button" @click=${() => this.sorted(column)}>${column.label}<i aria-hidden="true">${on ? (this.order.down ? "▾" : "▴") : ""}</i></button></th>`;
  }

  sorted(column) {
    const down = this.order?.by === column.id ? !this.order.down : Boolean(column.down);
    this.dispatchEvent(new CustomEvent("order", { detail: { by: column.id, down } }));
  }

  row(row, index, stop) {
    const key = this.keyOf(row);
    return html`<tr aria-rowindex=${index + 2} data-at=${index} tabindex=${index === stop ? "0" : "-1"}
      aria-selected=${this.selected ? String(key === this.selected) : nothing} @click=${(event) => this.clicked(event, row, index)}>
      ${this.columns.map((column) => html`<td class=${`${column.css === "n" ? "number" : ""} ${column.less ? "less" : ""}`}>${column.cell(row)}</td>`)}</tr>`;
  }

  clicked(event, row, index) {
    this.at = index;
    if (event.target.closest("a, button")) return;
    this.opened(row);
  }

  opened(row) {
    this.dispatchEvent(new CustomEvent("open", { detail: row }));
  }

  pressed = (event) => {
    if (event.target.closest("thead, a, button")) return;
    if (event.key === "Enter" && this.rows[Math.max(0, this.at)]) {
      this.opened(this.rows[Math.max(0, this.at)]);
      return;
    }
    const to = moved(event.key, this.at, this.rows.length, Math.max(1, Math.floor(this.clientHeight / ROW_PX) - 1));
    if (to === this.at) return;
    event.preventDefault();
    this.at = to;
    this.scrollTop = scrolledTo(to, this.scrollTop, this.clientHeight - 2 * ROW_PX, ROW_PX);
    this.draw();
    this.querySelector(`tr[data-at="${to}"]`)?.focus({ preventScroll: true });
  };
}

customElements.define("virtual-table", VirtualTable);

/** Rows in the order of a column's `sort`, which gives a number or a text; those without come last. */
export function sortedRows(rows, columns, order) {
  const column = order && columns.find((each) => each.id === order.by);
  if (!column?.sort) return rows;
  const sign = order.down ? -1 : 1;
  const valued = rows.map((row) => [column.sort(row), row]);
  valued.sort(([a], [b]) => {
    if (a === b) return 0;
    if (a === null || a === undefined) return 1;
    if (b === null || b === undefined) return -1;
    return a < b ? -sign : sign;
  });
  return valued.map(([, row]) => row);
}

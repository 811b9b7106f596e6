/**
 * Where each GPU of a fleet is drawn: blocks of racks of nodes of tiles. Pure; lengths in CSS pixels.
 *
 * Every node has the same cell, so that tiles stand in lines over the whole map. Tiles are as large as fits the height
 * that is given, and never smaller than can be told apart: a fleet that is too large for the view scrolls.
 */

const SIZES = [132, 104, 82, 64, 48, 38, 30, 26, 22, 18, 15, 13, 11, 9, 8, 7, 6];
/** From this size on there is room between tiles for the NVLinks. */
export const BRIDGED = 15;
/** From this size on a tile says who holds its GPU, and how it does. */
export const WRITTEN = 82;
/** From this width on a node's name stands above its tiles. */
const NAMED_WIDTH = 90;
const NODE_HEAD = 16;
const PAD = 8;
const BLOCK_HEAD = 26;
const RACK_HEAD = 17;

/** Nodes by block and rack, each in the natural order of its name (`rack-2` before `rack-10`). */
export function grouped(nodes) {
  const blocks = new Map();
  for (const node of nodes) {
    const racks = blocks.get(node.block) ?? blocks.set(node.block, new Map()).get(node.block);
    (racks.get(node.rack) ?? racks.set(node.rack, []).get(node.rack)).push(node);
  }
  return inOrder(blocks).map(([block, racks]) => ({
    name: block,
    racks: inOrder(racks).map(([rack, members]) => ({
      name: rack,
      nodes: members.sort((a, b) => ORDER.compare(a.name, b.name)),
    })),
  }));
}

const ORDER = new Intl.Collator("en", { numeric: true });

function inOrder(map) {
  return [...map].sort(([a], [b]) => ORDER.compare(a, b));
}

/**
 * The map of grouped nodes in a view of `widthPx`, as high as `heightPx` where it can be.
 *
 * @returns {{tile: number, width: number, height: number, cells: Cell[], labels: object[], boxes: object[]}} where a
 *   cell is {node, x, y, w, h, tiles: [{x, y}]}, its tiles in the order of the node's GPUs.
 */
export function layout(blocks, widthPx, heightPx) {
  const most = Math.max(1, ...blocks.flatMap((block) => block.racks.flatMap((rack) => rack.nodes.map((n) => n.gpus.length))));
  const shape = { cols: most <= 4 ? most : Math.ceil(most / 2), rows: most <= 4 ? 1 : 2 };
  let made = null;
  for (const tile of SIZES) {
    made = placed(blocks, widthPx, tile, shape);
    if (made.height <= heightPx && made.width <= widthPx) break;
  }
  return made;
}

function placed(blocks, widthPx, tile, shape) {
  const gap = tile >= BRIDGED ? 4 : tile >= 13 ? 2 : 1;
  const between = Math.max(3, Math.round(tile / 3));
  const width = shape.cols * (tile + gap) - gap;
  const head = width >= NAMED_WIDTH && tile > 30 ? NODE_HEAD : 0;
  const cell = { w: width, h: shape.rows * (tile + gap) - gap + head };
  const out = { tile, gap, head, cols: shape.cols, width: 0, height: 0, cells: [], labels: [], boxes: [] };
  let y = 0;
  for (const block of blocks) {
    const named = block.name !== "";
    if (named) out.labels.push({ text: block.name, x: 0, y: y + BLOCK_HEAD - 9, kind: "block" });
    y += named ? BLOCK_HEAD : 0;
    let x = 0;
    let lineHeight = 0;
    for (const rack of block.racks) {
      const size = rackSize(rack.nodes.length, cell, between, widthPx, tile);
      if (x > 0 && x + size.w > widthPx) {
        x = 0;
        y += lineHeight + PAD;
        lineHeight = 0;
      }
      putRack(out, rack, size, cell, between, shape, x, y);
      x += size.w + PAD;
      lineHeight = Math.max(lineHeight, size.h);
      out.width = Math.max(out.width, x - PAD);
    }
    y += lineHeight + PAD * 1.5;
  }
  out.height = Math.max(0, Math.ceil(y));
  return out;
}

/** A rack is about three times as wide as high, its last line full where it can be, and never wider than the view. */
function rackSize(nodes, cell, between, widthPx, tile) {
  const step = cell.w + between;
  const most = Math.max(1, Math.floor((widthPx - 2 * PAD + between) / step));
  const wanted = Math.ceil(Math.sqrt((nodes * 3 * (cell.h + between)) / step));
  const full = [wanted, wanted + 1, wanted - 1].find((cols) => cols > 0 && nodes % cols === 0) ?? wanted;
  const named = Math.ceil((tile >= 9 ? 72 : 48) / step);
  const cols = Math.max(1, Math.min(most, nodes, Math.max(full, named)));
  const rows = Math.ceil(nodes / cols);
  return { cols, w: cols * step - between + 2 * PAD, h: rows * (cell.h + between) - between + PAD + RACK_HEAD };
}

function putRack(out, rack, size, cell, between, shape, x, y) {
  out.boxes.push({ x, y, w: size.w, h: size.h });
  out.labels.push({ text: rack.name, x: x + PAD, y: y + 12, kind: "rack", most: size.w - 2 * PAD });
  rack.nodes.forEach((node, at) => {
    const left = x + PAD + (at % size.cols) * (cell.w + between);
    const top = y + RACK_HEAD + Math.floor(at / size.cols) * (cell.h + between);
    const tiles = node.gpus.map((_, index) => ({
      x: left + (index % shape.cols) * (out.tile + out.gap),
      y: top + out.head + Math.floor(index / shape.cols) * (out.tile + out.gap),
    }));
    if (out.head) out.labels.push({ text: node.name, x: left, y: top + 11, kind: "node", most: cell.w });
    out.cells.push({ node, x: left, y: top, w: cell.w, h: cell.h, tiles });
  });
}

/** Pairs of a node's tiles that stand beside or below each other and have NVLinks: places in the order of its GPUs. */
export function bridges(node, cols) {
  const group = new Map();
  node.linkGroups.forEach((each, at) => {
    if (each.kind.startsWith("NV")) for (const index of each.gpus) group.set(index, at);
  });
  const found = [];
  node.gpus.forEach((gpu, at) => {
    const mine = group.get(gpu.index);
    if (mine === undefined) return;
    for (const next of [(at + 1) % cols ? at + 1 : -1, at + cols]) {
      if (next > 0 && next < node.gpus.length && group.get(node.gpus[next].index) === mine) found.push([at, next]);
    }
  });
  return found;
}

/** The cell and GPU under a point, or null. Between two tiles of a node it is the node's nearest tile. */
export function hit(map, x, y) {
  for (let at = 0; at < map.cells.length; at += 1) {
    const cell = map.cells[at];
    if (x < cell.x - 1 || y < cell.y - 1 || x > cell.x + cell.w + 1 || y > cell.y + cell.h + 1) continue;
    let best = -1;
    let least = Infinity;
    cell.tiles.forEach((tile, index) => {
      const far = Math.abs(x - tile.x - map.tile / 2) + Math.abs(y - tile.y - map.tile / 2);
      if (far < least) [best, least] = [index, far];
    });
    return { cell: at, gpu: best };
  }
  return null;
}

/** Where an arrow key leads from a place on the map: through a node's GPUs, and to the nearest node above or below. */
export function neighbour(map, place, key) {
  if (!map.cells.length) return null;
  if (!place) return { cell: 0, gpu: 0 };
  const cell = map.cells[place.cell];
  if (key === "Home") return { cell: 0, gpu: 0 };
  if (key === "End") return last(map, map.cells.length - 1);
  if (key === "ArrowRight") {
    if (place.gpu + 1 < cell.tiles.length) return { cell: place.cell, gpu: place.gpu + 1 };
    return place.cell + 1 < map.cells.length ? { cell: place.cell + 1, gpu: 0 } : place;
  }
  if (key === "ArrowLeft") {
    if (place.gpu > 0) return { cell: place.cell, gpu: place.gpu - 1 };
    return place.cell > 0 ? last(map, place.cell - 1) : place;
  }
  const found = key === "ArrowDown" || key === "ArrowUp" ? nearest(map, place, key === "ArrowDown" ? 1 : -1) : -1;
  return found < 0 ? place : { cell: found, gpu: Math.min(place.gpu, Math.max(0, map.cells[found].tiles.length - 1)) };
}

function last(map, at) {
  return { cell: at, gpu: Math.max(0, map.cells[at].tiles.length - 1) };
}

function nearest(map, place, sign) {
  const from = map.cells[place.cell];
  let best = -1;
  let least = Infinity;
  map.cells.forEach((cell, at) => {
    const down = (cell.y - from.y) * sign;
    if (down <= 1) return;
    const far = down * 4 + Math.abs(cell.x - from.x);
    if (far < least) [best, least] = [at, far];
  });
  return best;
}

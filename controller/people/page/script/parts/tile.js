/** One GPU on a canvas. Each state has a shape of its own beside its colour. */

/** Paint a tile of `size` pixels. `fill`: the colour of what is held, null for the state's own. */
export function paintTile(brush, x, y, size, { gpu, state, fill, colours }) {
  const solid = fill ?? colours[state];
  if (state === "free") outline(brush, x, y, size, colours.free);
  else if (state === "off") off(brush, x, y, size, colours);
  else if (state === "fault") fault(brush, x, y, size, colours);
  else if (state === "watched") watched(brush, x, y, size, colours);
  else if (gpu.parts.length > 1 && size >= 9) parts(brush, x, y, size, gpu.parts, solid, colours);
  else {
    brush.fillStyle = solid;
    brush.fillRect(x, y, size, size);
  }
  if (state === "idle" && size >= 8) stripe(brush, x, y, size, colours.surface);
}

function outline(brush, x, y, size, colour) {
  brush.strokeStyle = colour;
  brush.lineWidth = 1;
  brush.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
}

function off(brush, x, y, size, colours) {
  outline(brush, x, y, size, colours.off);
  line(brush, x, y + size, x + size, y, colours.off, 1);
}

function fault(brush, x, y, size, colours) {
  brush.fillStyle = colours.fault;
  brush.fillRect(x, y, size, size);
  const inset = Math.max(1.5, size * 0.26);
  const width = Math.max(1, size / 9);
  line(brush, x + inset, y + inset, x + size - inset, y + size - inset, colours.surface, width);
  line(brush, x + size - inset, y + inset, x + inset, y + size - inset, colours.surface, width);
}

function watched(brush, x, y, size, colours) {
  brush.strokeStyle = colours.watched;
  brush.lineWidth = 2;
  brush.strokeRect(x + 1, y + 1, size - 2, size - 2);
  brush.fillStyle = colours.watched;
  brush.fillRect(x + size * 0.35, y + size * 0.35, size * 0.3, size * 0.3);
}

function stripe(brush, x, y, size, colour) {
  line(brush, x + size * 0.15, y + size * 0.85, x + size * 0.85, y + size * 0.15, colour, Math.max(1, size / 8));
}

/** The parts of a shared or cut GPU side by side, each as wide as its share. */
function parts(brush, x, y, size, all, colour, colours) {
  const whole = Math.max(1, all.reduce((sum, part) => sum + part.share, 0));
  outline(brush, x, y, size, colours.free);
  let left = x;
  for (const part of all) {
    const width = (part.share / whole) * size;
    if (part.holder) {
      brush.fillStyle = colour;
      brush.fillRect(left, y, Math.max(1, width - 0.75), size);
    }
    left += width;
    if (left < x + size - 0.5) line(brush, left - 0.4, y, left - 0.4, y + size, colours.raised, 0.8);
  }
}

function line(brush, x1, y1, x2, y2, colour, width) {
  brush.strokeStyle = colour;
  brush.lineWidth = width;
  brush.beginPath();
  brush.moveTo(x1, y1);
  brush.lineTo(x2, y2);
  brush.stroke();
}

const LINE_HEIGHT = 14;

/** Write lines on a tile, the first in bold, on a ground of their own; those that find no room are left out. */
export function writeTile(brush, x, y, size, lines, colours) {
  const room = Math.floor((size - 16) / LINE_HEIGHT);
  const shown = lines.length > room ? [...lines.slice(0, room - 1), `and ${lines.length - room + 1} more`] : lines;
  brush.fillStyle = colours.surface;
  brush.fillRect(x + 2, y + 8, size - 4, size - 10);
  shown.forEach((text, at) => {
    brush.font = `${at ? 400 : 650} 11px ${colours.font}`;
    brush.fillStyle = at ? colours.muted : colours.ink;
    brush.fillText(fitted(brush, text, size - 12), x + 6, y + 20 + at * LINE_HEIGHT);
  });
}

/** A text cut to a width, with an ellipsis where something is left out. */
export function fitted(brush, text, most) {
  if (brush.measureText(text).width <= most) return text;
  let end = text.length;
  while (end > 1 && brush.measureText(`${text.slice(0, end)}…`).width > most) end -= 1;
  return `${text.slice(0, end)}…`;
}

/** The links of one node as a drawing: GPUs on a circle, NVLinks as lines between them. Pure. */

/** How many NVLinks a kind of link is, as `NV18`; 0 for PCIe. */
export function nvlinks(kind) {
  const found = /^NV(\d+)$/.exec(kind);
  return found ? Number(found[1]) : 0;
}

/** Of a drawing `size` wide and high: places of the GPUs, and lines of NVLinks between them. */
export function fabric(gpus, links, size) {
  const middle = size / 2;
  const radius = middle - 30;
  const places = gpus.map((gpu, at) => {
    const angle = (2 * Math.PI * at) / Math.max(1, gpus.length) - Math.PI / 2 + (gpus.length % 2 ? 0 : Math.PI / gpus.length);
    return { index: gpu.index, x: middle + radius * Math.cos(angle), y: middle + radius * Math.sin(angle) };
  });
  const of = new Map(places.map((place) => [place.index, place]));
  const lines = links
    .filter((link) => nvlinks(link.kind) > 0 && of.has(link.a) && of.has(link.b))
    .map((link) => ({ from: of.get(link.a), to: of.get(link.b), nvlinks: nvlinks(link.kind) }));
  return { places, lines };
}

const DISTANCES = { PSB: "on one board", PIX: "by one PCIe switch", PXB: "by several PCIe switches", PHB: "by one CPU", NODE: "within one NUMA node", SYS: "across CPUs" };

/** A kind of link in words. */
export function linkWords(kind) {
  const count = nvlinks(kind);
  if (count) return `${count} ${count === 1 ? "NVLink" : "NVLinks"}`;
  return DISTANCES[kind] ? `PCIe ${DISTANCES[kind]}` : kind;
}

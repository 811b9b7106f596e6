/** Series of numbers over time as paths of a drawing. Pure. */

/**
 * @param {{name: string, points: [number, number][]}[]} series points are [seconds since 1970, value]; values that are
 *   no numbers are gaps
 * @returns {{lines: {name: string, d: string, area: string}[], ticks: object[], times: object[], top: number}}
 */
export function chart(series, width, height) {
  const points = series.flatMap((one) => one.points.filter(([, value]) => Number.isFinite(value)));
  if (!points.length) return { lines: [], ticks: [], times: [], top: 0 };
  const times = points.map(([at]) => at);
  const [from, to] = [Math.min(...times), Math.max(...times)];
  const top = niceTop(Math.max(...points.map(([, value]) => value)));
  const x = (at) => (to > from ? ((at - from) / (to - from)) * width : width);
  const y = (value) => height - (value / top) * height;
  const lines = series.map((one) => ({ name: one.name, ...paths(one.points, x, y, height) }));
  const ticks = [0, 0.5, 1].map((share) => ({ value: top * share, y: y(top * share) }));
  const marks = to > from ? [0, 0.25, 0.5, 0.75, 1].map((share) => ({ at: from + (to - from) * share, x: share * width })) : [];
  return { lines, ticks, times: marks, top };
}

function paths(points, x, y, height) {
  let d = "";
  let area = "";
  let run = [];
  const close = () => {
    if (!run.length) return;
    const line = run.map(([px, py], at) => `${at ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`).join("");
    d += line;
    area += `${line}L${run.at(-1)[0].toFixed(1)} ${height}L${run[0][0].toFixed(1)} ${height}Z`;
    run = [];
  };
  for (const [at, value] of points) {
    if (Number.isFinite(value)) run.push([x(at), y(value)]);
    else close();
  }
  close();
  return { d, area };
}

/** The next of 1, 2, 4, 5, 8, 10 times a power of ten, so that the axis has short numbers. */
export function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 4, 5, 8, 10].find((each) => value <= each * power);
  return step * power;
}

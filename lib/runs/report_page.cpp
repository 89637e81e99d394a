#include "lib/runs/report_page.h"

namespace vlmtune {

const std::string_view kReportStyle = R"css(:root {
  --page: #f7f8fa; --card: #ffffff; --ink: #1d2430; --soft: #667085; --line: #e4e7ec; --grid: #eef0f3;
  --one: #2563eb; --two: #d9580d; color-scheme: light dark;
}
@media (prefers-color-scheme: dark) {
  :root { --page: #12151b; --card: #1a1f28; --ink: #e6e9ef; --soft: #98a2b3; --line: #2b323e; --grid: #242b36;
          --one: #6ea8fe; --two: #ffa266; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 40px; }
h1 { font-size: 24px; margin: 0 0 16px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 32px 0 12px; }
.figures { display: flex; flex-wrap: wrap; gap: 12px; margin: 0 0 16px; }
.figure, .chart, details, figure { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.figure { padding: 10px 14px; flex: 0 1 auto; min-width: 112px; }
.figure dt { color: var(--soft); font-size: 12.5px; }
.figure dd { margin: 0; font-size: 18px; font-weight: 600; font-variant-numeric: tabular-nums; }
#charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 14px; }
.chart { padding: 12px 14px 6px; position: relative; }
.chart:first-child { grid-column: 1 / -1; }
.chart header { display: flex; align-items: baseline; gap: 14px; flex-wrap: wrap; }
.chart h3 { font-size: 14px; margin: 0; }
.chart header span { color: var(--soft); font-size: 12.5px; white-space: nowrap; }
.chart i { display: inline-block; width: 14px; height: 3px; border-radius: 2px; vertical-align: middle; margin-right: 5px; }
svg { display: block; width: 100%; height: auto; touch-action: pan-y; }
svg text { fill: var(--soft); font-size: 11.5px; font-variant-numeric: tabular-nums; }
.grid { stroke: var(--grid); } .axis { stroke: var(--line); }
.cursor { stroke: var(--soft); stroke-dasharray: 3 3; }
.tip { position: absolute; pointer-events: none; background: var(--card); border: 1px solid var(--line); border-radius: 8px;
       padding: 5px 9px; font-size: 12.5px; white-space: nowrap; box-shadow: 0 3px 12px rgb(0 0 0 / 14%);
       font-variant-numeric: tabular-nums; display: none; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(205px, 1fr)); gap: 14px; }
figure { margin: 0; overflow: hidden; }
figure img { display: block; width: 100%; aspect-ratio: 1; object-fit: contain; background: var(--grid); }
figcaption { padding: 8px 12px 10px; font-size: 13.5px; }
figcaption p { margin: 0 0 4px; overflow-wrap: anywhere; }
.truth { color: var(--soft); }
.truth span { font-size: 11px; border: 1px solid var(--line); border-radius: 4px; padding: 0 4px; }
details { margin-top: 28px; padding: 10px 14px; }
summary { cursor: pointer; font-weight: 600; }
pre { overflow-x: auto; font-size: 12.5px; line-height: 1.45; margin: 10px 0 4px; }
footer { color: var(--soft); font-size: 12.5px; margin-top: 24px; }
@media (max-width: 760px) { #charts { grid-template-columns: minmax(0, 1fr); } }
)css";

const std::string_view kReportScript = R"js(
const kNs = 'http://www.w3.org/2000/svg';
const colours = ['var(--one)', 'var(--two)'];

function make(name, attributes, parent) {
  const element = document.createElementNS(kNs, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (parent) parent.appendChild(element);
  return element;
}

// About `count` round numbers (1, 2 or 5 times a power of ten) that lie in [low, high].
function ticks(low, high, count) {
  const rough = (high - low) / count, power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(size => size >= rough * 0.999);
  const list = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) list.push(i * step);
  return list;
}

function text(value, unit) {
  if (unit === 'B') {
    const units = ['B', 'kB', 'MB', 'GB', 'TB'];
    let power = 0;
    while (Math.abs(value) >= 999.5 && power < 4) { value /= 1000; ++power; }
    return Number(value.toPrecision(3)) + ' ' + units[power];
  }
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-2 || size >= 1e6)) return value.toExponential(2).replace(/\.?0+e/, 'e').replace('e+', 'e');
  return String(Number(value.toPrecision(4)));
}

// Mean of the neighbouring steps, to show the trend of a noisy curve.
function smoothed(points) {
  const reach = Math.max(2, Math.round(points.length / 50));
  return points.map(([step], i) => {
    const near = points.slice(Math.max(0, i - reach), i + reach + 1).map(point => point[1]).filter(value => value !== null);
    return [step, near.length ? near.reduce((sum, value) => sum + value, 0) / near.length : null];
  });
}

function path(points, x, y) {
  let line = '', pen = false;
  for (const [step, value] of points) {
    if (value === null) { pen = false; continue; }
    line += (pen ? 'L' : 'M') + x(step).toFixed(1) + ' ' + y(value).toFixed(1);
    pen = true;
  }
  return line;
}

function bounds(chart) {
  const values = chart.series.flatMap(series => series.points.map(point => point[1])).filter(value => value !== null);
  if (!values.length) return [0, 1];
  const sorted = [...values].sort((a, b) => a - b);
  let low = chart.from_zero ? 0 : sorted[0], high = sorted[sorted.length - 1];
  if (high - low < 1e-12 * Math.max(1, Math.abs(high))) {
    const room = Math.abs(high) * 0.1 || 1;
    low = chart.from_zero ? 0 : low - room;
    high += room;
  }
  const room = (high - low) * 0.06;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

function draw(chart, card) {
  const wide = card.matches(':first-child') && card.clientWidth > 760;
  const width = Math.max(300, card.clientWidth - 28), height = wide ? 300 : 220;
  const left = 62, right = 12, top = 10, bottom = 36;
  const steps = chart.series.flatMap(series => series.points.map(point => point[0]));
  let first = steps.reduce((a, b) => Math.min(a, b)), last = steps.reduce((a, b) => Math.max(a, b));
  if (first === last) { first -= 1; last += 1; }
  const [low, high] = bounds(chart);
  const x = step => left + (step - first) / (last - first) * (width - left - right);
  const y = value => height - bottom - (value - low) / (high - low) * (height - top - bottom);
  const svg = make('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': chart.title});
  for (const value of ticks(low, high, wide ? 6 : 5)) {
    make('line', {class: 'grid', x1: left, x2: width - right, y1: y(value), y2: y(value)}, svg);
    make('text', {x: left - 8, y: y(value) + 4, 'text-anchor': 'end'}, svg).textContent = text(value, chart.unit);
  }
  for (const step of ticks(first, last, Math.floor(width / 90)).filter(Number.isInteger)) {
    make('line', {class: 'axis', x1: x(step), x2: x(step), y1: height - bottom, y2: height - bottom + 4}, svg);
    make('text', {x: x(step), y: height - bottom + 17, 'text-anchor': 'middle'}, svg).textContent = step;
  }
  make('line', {class: 'axis', x1: left, x2: width - right, y1: height - bottom, y2: height - bottom}, svg);
  make('text', {x: (left + width - right) / 2, y: height - 4, 'text-anchor': 'middle'}, svg).textContent = 'optimizer step';
  chart.series.forEach((series, i) => {
    const style = {fill: 'none', stroke: colours[i], 'stroke-width': 1.8, 'stroke-linejoin': 'round'};
    const noisy = chart.smooth && i === 0;
    make('path', {...style, d: path(series.points, x, y), opacity: noisy ? 0.3 : 1, 'stroke-width': noisy ? 1.2 : 1.8}, svg);
    if (noisy) make('path', {...style, d: path(smoothed(series.points), x, y), 'stroke-width': 2.2}, svg);
    if (series.marks || series.points.length < 3)
      for (const [step, value] of series.points)
        if (value !== null) make('circle', {cx: x(step), cy: y(value), r: 3.2, fill: colours[i]}, svg);
  });
  hover(chart, card, svg, {x, first, last, left, right, width, top, bottom: height - bottom});
  card.querySelector('svg')?.remove();
  card.appendChild(svg);
}

function hover(chart, card, svg, box) {
  const cursor = make('line', {class: 'cursor', y1: box.top, y2: box.bottom, visibility: 'hidden'}, svg);
  const tip = card.querySelector('.tip');
  const hide = () => { tip.style.display = 'none'; cursor.setAttribute('visibility', 'hidden'); };
  svg.addEventListener('pointerleave', hide);
  svg.addEventListener('pointermove', event => {
    const frame = svg.getBoundingClientRect();
    const at = (event.clientX - frame.left) / frame.width * box.width;
    const wanted = box.first + (at - box.left) / (box.width - box.left - box.right) * (box.last - box.first);
    const nearest = points => points.reduce((a, b) => Math.abs(b[0] - wanted) < Math.abs(a[0] - wanted) ? b : a);
    const step = nearest(chart.series[0].points)[0];
    tip.textContent = '';
    tip.append(`step ${step}`);
    chart.series.forEach((series, i) => {
      const [where, value] = nearest(series.points);
      const line = document.createElement('div');
      const mark = document.createElement('i');
      mark.style.background = colours[i];
      const place = where === step ? '' : ` (step ${where})`;
      line.append(mark, `${series.name} ${value === null ? 'not a number' : text(value, chart.unit)}${place}`);
      tip.append(line);
    });
    cursor.setAttribute('x1', box.x(step));
    cursor.setAttribute('x2', box.x(step));
    cursor.setAttribute('visibility', 'visible');
    tip.style.display = 'block';
    const pixel = box.x(step) / box.width * frame.width + 14;
    tip.style.left = (pixel + tip.offsetWidth + 12 > frame.width ? pixel - tip.offsetWidth - 8 : pixel + 12) + 'px';
    tip.style.top = '44px';
  });
}

const holder = document.getElementById('charts');
const cards = holder ? charts.map(chart => {
  const card = document.createElement('section');
  card.className = 'chart';
  const header = document.createElement('header'), name = document.createElement('h3');
  name.textContent = chart.title + (chart.unit && chart.unit !== 'B' ? `, ${chart.unit}` : '');
  header.append(name);
  if (chart.series.length > 1 || chart.smooth) chart.series.forEach((series, i) => {
    const key = document.createElement('span'), mark = document.createElement('i');
    mark.style.background = colours[i];
    key.append(mark, series.name + (chart.smooth && i === 0 ? ' (bold: trend)' : ''));
    header.append(key);
  });
  const tip = document.createElement('div');
  tip.className = 'tip';
  card.append(header, tip);
  holder.append(card);
  return card;
}) : [];
const redraw = () => charts.forEach((chart, i) => draw(chart, cards[i]));
redraw();
addEventListener('resize', redraw);
)js";

}  // namespace vlmtune

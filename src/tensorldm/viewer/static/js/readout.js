// Numbers and ellipsoids at the crosshair, for what is shown and for the reference.

import { getJson } from './api.js';
import { camera, drawEllipsoid } from './ellipsoid.js';
import { onTheme } from './theme.js';

const WAIT_MS = 40;
const table = document.getElementById('numbers');
const row = document.getElementById('ellipsoids');
const where = document.getElementById('where');
const ROWS = [
  ['FA', (n) => n.fa.toFixed(3)],
  ['MD', (n) => n.md.toFixed(3)],
  ['v1 to reference', (n) => (n.angle === null ? '–' : `${n.angle.toFixed(1)}°`)],
  ['λ1', (n) => n.eigenvalues[0].toFixed(3), 'apart'],
  ['λ2', (n) => n.eigenvalues[1].toFixed(3)],
  ['λ3', (n) => n.eigenvalues[2].toFixed(3)],
  ['v1 (R, A, S)', (n) => n.vectors[0].map((x) => x.toFixed(2)).join(' ')],
  ...['xx', 'yy', 'zz', 'xy', 'xz', 'yz'].map((name, index) => [`D${name}`, (n) => n.tensor[name].toFixed(3), index === 0 ? 'apart' : '']),
];

let timer = 0;
let latest = 0;
let last = [];

// Asks for the numbers at a point, at most every few milliseconds; answers that come late are dropped.
export function readAt(columns, world, onError) {
  window.clearTimeout(timer);
  timer = window.setTimeout(async () => {
    latest += 1;
    const mine = latest;
    const [x, y, z] = world;
    try {
      const keys = columns.map((column) => column.key).join(',');
      const numbers = await getJson(`api/at?keys=${keys}&x=${x}&y=${y}&z=${z}`);
      if (mine === latest) display(columns, numbers, world);
    } catch (error) {
      onError(error);
    }
  }, WAIT_MS);
}

export function clearReadout() {
  window.clearTimeout(timer);
  latest += 1;
  display([], [], null);
}

function display(columns, numbers, world) {
  where.textContent = world ? `${world.map((x) => x.toFixed(0)).join(', ')} mm` : '';
  last = columns.map((column) => ({ ...column, numbers: numbers.find((each) => each.key === column.key && each.inside) }));
  document.getElementById('crosshair').hidden = last.length === 0;
  fillTable();
  fillEllipsoids();
}

function cell(kind, text, title = text) {
  return Object.assign(document.createElement(kind), { textContent: text, title });
}

function fillTable() {
  const head = document.createElement('thead');
  head.append(document.createElement('tr'));
  head.firstChild.append(cell('th', ''), ...last.map((column) => cell('th', column.title)));
  const body = document.createElement('tbody');
  for (const [name, value, style] of ROWS) {
    const line = document.createElement('tr');
    if (style) line.className = style;
    const narrow = last.length > 1 && name.startsWith('v1 (');
    line.append(cell('th', name), ...last.map(({ numbers }) => cell('td', numbers ? value(numbers) : '–')));
    if (!narrow) body.append(line);
  }
  table.replaceChildren(head, body);
}

function fillEllipsoids() {
  if (row.children.length !== last.length) row.replaceChildren(...last.map(makeFigure));
  last.forEach(({ title }, index) => { row.children[index].querySelector('figcaption').textContent = title; });
  redraw();
}

function makeFigure() {
  const figure = document.createElement('figure');
  const canvas = document.createElement('canvas');
  canvas.setAttribute('aria-label', 'Ellipsoid of the tensor');
  canvas.setAttribute('role', 'img');
  canvas.addEventListener('pointerdown', (event) => canvas.setPointerCapture(event.pointerId));
  canvas.addEventListener('pointermove', (event) => {
    if (event.buttons === 0) return;
    camera.azimuth -= event.movementX;
    camera.elevation = Math.min(Math.max(camera.elevation + event.movementY, -90), 90);
    redraw();
  });
  figure.append(canvas, document.createElement('figcaption'));
  return figure;
}

function redraw() {
  const largest = Math.max(0.5, ...last.flatMap(({ numbers }) => (numbers ? numbers.eigenvalues[0] : [])));
  const colour = getComputedStyle(document.body).getPropertyValue('--soft');
  last.forEach(({ numbers }, index) => drawEllipsoid(row.children[index].querySelector('canvas'), numbers, largest, colour));
}

onTheme(redraw);
window.addEventListener('resize', redraw);

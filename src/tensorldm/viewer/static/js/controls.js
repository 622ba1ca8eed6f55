// Lists and buttons: they show the wish, and change it.

import { change, find, onChange, overlayMaps, sharedMaps, tractsOf, wish, world } from './state.js';

const by = (id) => document.getElementById(id);
const option = (value, text) => Object.assign(document.createElement('option'), { value, textContent: text });

// What tells it from the others comes first: lists cut long names at the end.
export function name(shown) {
  const several = new Set(world.scene.shown.map((each) => each.subject)).size > 1;
  const title = several && shown.subject ? `${shown.subject} · ${shown.method}` : shown.method;
  const full = shown.place ? `${shown.place} · ${title}` : title;
  return shown.isReference ? `${full} (reference)` : full;
}

function fillSides() {
  const all = world.scene.shown;
  by('left').replaceChildren(...all.map((each) => option(each.key, name(each))));
  by('right').replaceChildren(option('', '—'), ...all.filter((each) => each.key !== wish.left).map((each) => option(each.key, name(each))));
  by('left').value = wish.left ?? '';
  by('right').value = wish.right ?? '';
  by('left').disabled = all.length === 0;
  by('right').disabled = all.length < 2;
}

function fillMaps() {
  const lists = [['map', sharedMaps(), []], ['overlay', overlayMaps(), [option('', '—')]]];
  for (const [id, maps, first] of lists) {
    const groups = new Map();
    for (const map of maps) {
      const layer = world.scene.layers[map];
      if (!groups.has(layer.group)) groups.set(layer.group, Object.assign(document.createElement('optgroup'), { label: layer.group }));
      groups.get(layer.group).append(option(map, layer.title));
    }
    by(id).replaceChildren(...first, ...groups.values());
  }
  by('map').value = wish.map;
  by('overlay').value = wish.overlay ?? '';
  by('overlay').disabled = wish.lines;
  by('opacity').disabled = wish.lines || !wish.overlay;
}

function fillTracts() {
  const tracts = wish.left ? [...new Set([...tractsOf(wish.left), ...(wish.right ? tractsOf(wish.right) : [])])] : [];
  by('tracts-section').hidden = tracts.length === 0;
  by('tracts').replaceChildren(...tracts.map((tract) => {
    const label = document.createElement('label');
    const box = Object.assign(document.createElement('input'), { type: 'checkbox', checked: wish.tracts.includes(tract.key) });
    box.dataset.tract = tract.key;
    box.addEventListener('change', () => change({ tracts: box.checked ? [...wish.tracts, tract.key] : wish.tracts.filter((key) => key !== tract.key) }));
    const owner = wish.right && tract.owner ? ` · ${name(find(tract.owner))}` : '';
    label.append(box, tract.title + owner);
    return label;
  }));
}

function follow() {
  const maps = sharedMaps();
  if (!maps.includes(wish.map)) wish.map = maps[0] ?? 'fa';
  if (!overlayMaps().includes(wish.overlay)) wish.overlay = null;
  fillSides();
  fillMaps();
  fillTracts();
  for (const id of ['lines', 'voxels', 'radiological']) by(id).checked = wish[id];
  for (const button of document.querySelectorAll('[data-view]')) button.setAttribute('aria-pressed', String(button.dataset.view === wish.view));
  by('empty').hidden = world.scene.shown.length > 0;
  by('settings').inert = world.scene.shown.length === 0;
}

export function connectControls() {
  by('left').addEventListener('change', (event) => change({ left: event.target.value, right: wish.right === event.target.value ? null : wish.right }));
  by('right').addEventListener('change', (event) => change({ right: event.target.value || null }));
  by('map').addEventListener('change', (event) => change({ map: event.target.value }));
  by('overlay').addEventListener('change', (event) => change({ overlay: event.target.value || null }));
  by('opacity').addEventListener('input', (event) => change({ opacity: Number(event.target.value) / 100 }));
  for (const id of ['lines', 'voxels', 'radiological']) by(id).addEventListener('change', (event) => change({ [id]: event.target.checked }));
  for (const button of document.querySelectorAll('[data-view]')) button.addEventListener('click', () => change({ view: button.dataset.view }));
  freeKeysAfterMouse();
  onChange(follow);
}

// A list that was opened with the mouse would keep the keyboard for itself.
function freeKeysAfterMouse() {
  let byMouse = false;
  document.addEventListener('pointerdown', () => { byMouse = true; }, { capture: true });
  document.addEventListener('keydown', () => { byMouse = false; }, { capture: true });
  for (const list of document.querySelectorAll('select, input[type="range"]')) list.addEventListener('change', () => byMouse && list.blur());
}

export function referenceOf(key) {
  return find(find(key)?.reference ?? null);
}

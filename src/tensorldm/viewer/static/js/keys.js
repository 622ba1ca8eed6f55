// Everything by keyboard. Letters are caught before NiiVue, which has its own, sees them.

import { change, overlayMaps, sharedMaps, tractsOf, wish, world } from './state.js';
import { VIEWS } from './stage.js';
import { toggleTheme } from './theme.js';

const STEPS = { ArrowLeft: [-1, 0, 0], ArrowRight: [1, 0, 0], ArrowUp: [0, 1, 0], ArrowDown: [0, -1, 0], PageUp: [0, 0, 1], PageDown: [0, 0, -1] };
const NUMBERED = ['fa', 'md', 'colour_fa', 'ad', 'rd', 's0'];
const FIVE = 5;

function next(list, current, step = 1) {
  if (list.length === 0) return current;
  return list[(list.indexOf(current) + step + list.length) % list.length];
}

function toggleTracts() {
  const here = [...tractsOf(wish.left), ...(wish.right ? tractsOf(wish.right) : [])].map((tract) => tract.key);
  change({ tracts: wish.tracts.length > 0 ? [] : [...new Set(here)] });
}

const others = () => [null, ...world.scene.shown.map((each) => each.key).filter((key) => key !== wish.left)];

const ACTIONS = {
  ',': () => change({ map: next(sharedMaps(), wish.map, -1) }),
  '.': () => change({ map: next(sharedMaps(), wish.map) }),
  o: () => change({ overlay: next([null, ...overlayMaps()], wish.overlay) }),
  l: () => change({ lines: !wish.lines }),
  t: toggleTracts,
  v: () => change({ view: next(Object.keys(VIEWS), wish.view) }),
  b: () => change({ right: next(others(), wish.right) }),
  x: () => wish.right && change({ left: wish.right, right: wish.left }),
  i: () => change({ voxels: !wish.voxels }),
  r: () => change({ radiological: !wish.radiological }),
  d: toggleTheme,
};

// A list or slider keeps the keys that it understands itself.
function isForControl(event) {
  const { target } = event;
  return target instanceof HTMLSelectElement || target instanceof HTMLTextAreaElement
    || (target instanceof HTMLInputElement && target.type !== 'checkbox');
}

export function connectKeys({ move, openJob, openHelp }) {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]') || isForControl(event)) return;
    const action = { ...ACTIONS, n: openJob, '?': openHelp }[event.key];
    const digit = NUMBERED[Number(event.key) - 1];
    if (STEPS[event.key]) move(...STEPS[event.key].map((x) => x * (event.shiftKey ? FIVE : 1)));
    else if (digit && sharedMaps().includes(digit)) change({ map: digit });
    else if (action) action();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }, { capture: true });
}

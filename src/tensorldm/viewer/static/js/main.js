// Starts the page: scene, stages, controls, keys, job.

import { getJson } from './api.js';
import { connectControls, name, referenceOf } from './controls.js';
import { connectJob, openJob, resumeJob } from './job.js';
import { connectKeys } from './keys.js';
import { attempt, say } from './message.js';
import { clearReadout, readAt } from './readout.js';
import { Stage, yoke } from './stage.js';
import { adopt, find, onChange, tractsOf, wish, world } from './state.js';
import { toggleTheme } from './theme.js';

const stages = {};

function columns() {
  const keys = [wish.left, wish.right, referenceOf(wish.left)?.key].filter(Boolean);
  return [...new Set(keys)].map((key) => ({ key, title: name(find(key)) }));
}

function onMove(stage, point) {
  // Both stages report a move; the left one speaks for both.
  if (stage === stages.left && wish.left) readAt(columns(), point, say);
}

async function makeStage(side) {
  if (stages[side]) return stages[side];
  if (!document.createElement('canvas').getContext('webgl2')) {
    throw new Error('This browser draws no WebGL 2. Use a current Firefox, Chrome, Edge or Safari, with graphics acceleration allowed.');
  }
  const figure = document.getElementById(`stage-${side}`);
  figure.hidden = false;
  const stage = new Stage(figure, onMove);
  stages[side] = stage;
  await stage.attach();
  if (stages.left && stages.right) yoke(stages.left, stages.right);
  return stage;
}

async function fillStage(side) {
  const shown = find(wish[side]);
  document.getElementById(`stage-${side}`).hidden = side === 'right' && !shown;
  if (!shown) return;
  const stage = await makeStage(side);
  const { scene } = world;
  const mine = tractsOf(shown.key).map((tract) => tract.key);
  const over = wish.lines ? 'v1 lines' : shown.maps.includes(wish.overlay) && scene.layers[wish.overlay].title;
  stage.describe(name(shown), scene.layers[wish.map], over);
  await stage.show(scene, { ...wish, key: shown.key, tracts: wish.tracts.filter((key) => mine.includes(key)) });
}

async function fill() {
  await fillStage('left');
  await fillStage('right');
  if (wish.right) stages.left.lead();
  if (!wish.left) clearReadout();
}

let running = Promise.resolve();
let queued = false;

// One at a time, and what was wished meanwhile at once: a slider is faster than a graphics card.
function follow() {
  document.body.dataset.busy = 'yes';
  if (queued) return;
  queued = true;
  running = running.then(async () => {
    queued = false;
    await attempt(fill);
    if (!queued) delete document.body.dataset.busy;
  });
}

export async function refresh(preferred = null) {
  adopt(await getJson('api/scene'), preferred);
}

function connectDialogs() {
  const help = document.getElementById('help');
  const openHelp = () => help.showModal();
  document.getElementById('open-help').addEventListener('click', openHelp);
  document.getElementById('close-help').addEventListener('click', () => help.close());
  document.getElementById('theme').addEventListener('click', toggleTheme);
  return openHelp;
}

async function start() {
  connectControls();
  onChange(follow);
  connectJob(refresh);
  connectKeys({ move: (...step) => stages.left?.move(...step), openJob, openHelp: connectDialogs() });
  await attempt(async () => {
    await refresh();
    document.getElementById('version').textContent = `tensorldm ${world.scene.version}`;
    await resumeJob();
  });
}

start();

// The main job in the page: files in, checks and warnings, progress, result, zip.

import { getJson, post, settled, upload } from './api.js';
import { askForFiles, kindOf } from './dropping.js';

const POLL_MS = 400;
const by = (id) => document.getElementById(id);
const dialog = by('job');
const KINDS = { image: 'series', bval: 'b-values', bvec: 'directions', mask: 'mask' };
let done = () => {};
let busy = false;

export function openJob() {
  if (!dialog.open) dialog.showModal();
}

function item(kind, ...content) {
  const element = document.createElement(kind);
  element.append(...content);
  return element;
}

function complain(text) {
  by('job-message').textContent = text;
  by('job-message').hidden = !text;
  if (text.includes('Go on all the same')) by('force-row').hidden = false;
}

function warn(sentences) {
  by('job-warnings').replaceChildren(...sentences.map((text) => item('p', `⚠ ${text}`)));
  by('job-warnings').hidden = sentences.length === 0;
}

function listFiles(files) {
  by('received').replaceChildren(...Object.entries(files).map(([kind, name]) => item('li', item('b', KINDS[kind]), ` ${name}`)));
}

function listFacts(found) {
  by('facts').hidden = !found;
  if (!found) return;
  const [x, y, z, n] = found.shape;
  const facts = {
    Series: `${x} × ${y} × ${z} voxels of ${found.voxelSize.join(' × ')} mm, ${n ?? 1} volumes`,
    Uses: `volumes ${found.volumes.join(', ')} at b = ${found.shell} s/mm²; ${found.angles.map((a, i) => `${'xyz'[i]} ${a}°`).join(', ')} from the axes`,
    Brain: found.mask ? 'from your mask' : 'will be found in the b=0 image',
    Method: found.method,
  };
  by('facts').replaceChildren(...Object.entries(facts).flatMap(([term, text]) => [item('dt', term), item('dd', text)]));
}

async function check() {
  by('start').disabled = true;
  listFacts(null);
  warn([]);
  complain('');
  try {
    const found = await post(`api/job/check?force=${by('force').checked ? 1 : 0}`);
    listFacts(found);
    warn(found.warnings);
    by('start').disabled = false;
  } catch (error) {
    complain(error.message);
  }
}

async function take(files) {
  openJob();
  if (busy) return complain('A reconstruction is running. Wait for it, or cancel it first.');
  reset();
  const sorted = kindOf([...files]);
  if (sorted.problem) return complain(sorted.problem);
  try {
    for (const [kind, file] of Object.entries(sorted.kinds)) listFiles((await upload(kind, file)).files);
  } catch (error) {
    return complain(error.message);
  }
  await done();
  return check();
}

function reset() {
  for (const id of ['progress', 'outcome', 'download', 'force-row']) by(id).hidden = true;
  by('take').hidden = true;
  by('force').checked = false;
  by('start').hidden = false;
  complain('');
  warn([]);
}

async function begin() {
  complain('');
  by('outcome').hidden = true;
  try {
    await post(`api/job/start?force=${by('force').checked ? 1 : 0}`);
    await watch();
  } catch (error) {
    complain(error.message);
  }
}

function setRunning(running) {
  busy = running;
  by('cancel').hidden = !running;
  by('start').hidden = running;
  by('discard').disabled = running;
  by('progress').hidden = !running;
}

async function watch() {
  setRunning(true);
  try {
    for (;;) {
      const status = await getJson('api/job');
      by('progress').querySelector('progress').value = status.share;
      const parts = status.parts ?? [];
      by('parts').replaceChildren(...(parts.length > 0 ? parts.map((part) => item('li', part.name)) : [item('li', 'starting')]));
      if (status.state !== 'running') return await finish(status);
      await new Promise((resolve) => { window.setTimeout(resolve, POLL_MS); });
    }
  } finally {
    setRunning(false);
    by('start').hidden = !by('download').hidden;
  }
}

async function finish(status) {
  if (status.state !== 'done') {
    complain(status.state === 'cancelled' ? 'Cancelled. The files are still here; reconstruct them, or remove them.' : status.message);
    return;
  }
  by('outcome').replaceChildren(...status.lines.map((line) => item('li', line)));
  by('outcome').hidden = false;
  warn(status.warnings);
  listFacts(null);
  by('download').hidden = false;
  by('take').hidden = false;
  await done(status.key);
}

async function discard() {
  try {
    await settled();
    listFiles((await post('api/job/discard')).files);
    reset();
    listFacts(null);
    by('start').disabled = true;
    by('files').value = '';
    await done();
  } catch (error) {
    complain(error.message);
  }
}

// After a reload of the page: the job went on without it.
export async function resumeJob() {
  const status = await getJson('api/job');
  listFiles(status.files);
  if (status.state === 'running') {
    openJob();
    await watch();
  } else if (status.state === 'done') {
    await finish(status);
    by('start').hidden = true;
  } else if (Object.keys(status.files).length > 0) await check();
}

export function connectJob(refresh) {
  done = refresh;
  by('open-job').addEventListener('click', openJob);
  by('open-job-empty').addEventListener('click', openJob);
  by('close-job').addEventListener('click', () => dialog.close());
  by('start').addEventListener('click', begin);
  by('force').addEventListener('change', check);
  by('discard').addEventListener('click', discard);
  by('cancel').addEventListener('click', () => post('api/job/cancel').catch((error) => complain(error.message)));
  askForFiles(by('files'), take);
}

// One canvas with NiiVue: a map, an overlay or lines over it, tracts in it. What is shown is told whole; only what
// changed is fetched.

import { getBytes } from './api.js';
import { lineShader } from './line_shader.js';

const { Niivue, NVImage, NVMesh, MULTIPLANAR_TYPE, SHOW_RENDER } = globalThis.niivue;

export const VIEWS = { planes: 3, axial: 0, coronal: 1, sagittal: 2, render: 4 };
const KEPT_IMAGES = 12;
const CROSSHAIR_PIXELS = 1.8;
const HEAD_MM = 230; // that a view shows, about
const DIFFERENCE = 'difference';
// Below zero blue, above red, zero black and transparent.
const DIFFERENCE_MAP = { R: [120, 20, 0, 210, 255], G: [210, 90, 0, 40, 220], B: [255, 230, 0, 30, 110], A: [255, 160, 0, 160, 255], I: [0, 64, 128, 192, 255] };
const OPTIONS = {
  backColor: [0, 0, 0, 1],
  crosshairColor: [1, 0.85, 0.2, 0.9],
  crosshairWidth: 0.6,
  crosshairWidthUnit: 'mm',
  crosshairGap: 8,
  isColorbar: true,
  colorbarHeight: 0.03,
  colorbarWidth: 0.5,
  fontColor: [0.85, 0.88, 0.92, 1],
  fontSizeScaling: 0.3,
  isNearestInterpolation: true,
  show3Dcrosshair: true,
  dragAndDropEnabled: false,
  viewModeHotKey: '',
  clipPlaneHotKey: '',
  cycleClipPlaneHotKey: '',
  meshThicknessOn2D: 3,
  multiplanarShowRender: SHOW_RENDER.ALWAYS,
  multiplanarLayout: MULTIPLANAR_TYPE.GRID,
  multiplanarPadPixels: 4,
  meshXRay: 0.25,
  logLevel: 'error',
};

const inside = (fraction) => [...fraction].map((x) => Math.min(Math.max(x, 0), 1));

export class Stage {
  constructor(figure, onMove) {
    this.figure = figure;
    this.canvas = figure.querySelector('canvas');
    this.caption = figure.querySelector('figcaption');
    this.images = new Map();
    this.meshes = new Map();
    this.queue = Promise.resolve();
    this.nv = new Niivue(OPTIONS);
    this.nv.addColormap(DIFFERENCE, DIFFERENCE_MAP);
    // Through the world: NiiVue's own way goes through untilted grids, where two grids of one head do not meet.
    this.nv.doSync2d = (other) => {
      other.scene.crosshairPos = inside(other.mm2frac(this.nv.frac2mm(this.nv.scene.crosshairPos, 0, true), 0, true));
      other.scene.pan2Dxyzmm = [...this.nv.scene.pan2Dxyzmm];
    };
    this.nv.onLocationChange = ({ mm }) => onMove(this, [mm[0], mm[1], mm[2]]);
    this.shown = '';
    this.options = { view: 'planes', voxels: OPTIONS.isNearestInterpolation, radiological: false };
  }

  async attach() {
    // NiiVue passes on only what happens in the canvas that has the focus.
    for (const kind of ['wheel', 'pointerdown']) {
      this.canvas.addEventListener(kind, () => this.canvas.focus({ preventScroll: true }), { capture: true, passive: true });
    }
    await this.nv.attachToCanvas(this.canvas);
    this.nv.setSliceType(VIEWS.planes);
  }

  // Requests are handled in turn, so that a slow map never lands on top of a later one.
  show(scene, wish) {
    const turn = this.queue.then(() => this.#show(scene, wish));
    this.queue = turn.catch(() => {});
    return turn;
  }

  async #show(scene, wish) {
    const shown = scene.shown.find((each) => each.key === wish.key);
    const overlay = !wish.lines && shown.maps.includes(wish.overlay) ? wish.overlay : null;
    const description = JSON.stringify([wish.key, wish.map, overlay, wish.lines, scene.revision]);
    const isNew = description !== this.shown;
    if (isNew) {
      const volumes = [await this.#image(scene, wish.key, wish.map, 'base')];
      if (overlay) volumes.push(await this.#image(scene, wish.key, overlay, 'overlay'));
      if (wish.lines) volumes.push(await this.#image(scene, wish.key, 'lines', 'lines'));
      if (overlay) volumes[1].opacity = wish.opacity;
      this.#replace(volumes);
      this.#setShader(wish.lines ? lineShader(shown.worldToVoxel) : '');
      this.shown = description;
    }
    if (overlay && this.nv.volumes[1].opacity !== wish.opacity) this.nv.setOpacity(1, wish.opacity);
    await this.#showTracts(scene, wish.tracts);
    this.#setOptions(wish);
    if (isNew) this.nv.createOnLocationChange();
    this.nv.drawScene();
  }

  // Each of these makes NiiVue upload or draw everything again, so only what changed is told.
  #setOptions({ view, voxels, radiological }) {
    const { nv, options } = this;
    if (view !== options.view) nv.setSliceType(VIEWS[view]);
    if (voxels !== options.voxels) nv.setInterpolation(voxels);
    if (radiological !== options.radiological) nv.setRadiologicalConvention(radiological);
    this.options = { view, voxels, radiological };
    this.#setCrosshair(view);
  }

  // NiiVue draws it as a rod in millimetres; thinner than a pixel it would vanish.
  #setCrosshair(view) {
    const { nv, canvas } = this;
    const pixels = Math.min(canvas.clientWidth, canvas.clientHeight) / (view === 'planes' ? 2 : 1);
    const width = (CROSSHAIR_PIXELS * HEAD_MM) / Math.max(pixels, 100);
    if (Math.abs(width - nv.opts.crosshairWidth) < 0.05 * width) return;
    nv.opts.crosshairWidth = width;
    if (nv.crosshairs3D) nv.crosshairs3D.mm = [NaN, NaN, NaN]; // made anew when it is drawn next
  }

  #setShader(text) {
    if (text !== (this.shader ?? '')) this.nv.setCustomSliceShader(text);
    this.shader = text;
  }

  #replace(volumes) {
    const { nv } = this;
    const where = nv.volumes.length > 0 ? nv.frac2mm(nv.scene.crosshairPos, 0, true) : null;
    nv.volumes = volumes;
    nv.back = volumes[0];
    nv.overlays = volumes.slice(1);
    nv.updateGLVolume();
    if (where) nv.scene.crosshairPos = inside(nv.mm2frac(where, 0, true));
  }

  async #image(scene, key, name, role) {
    const id = `${key}/${name}/${role}/${scene.revision}`;
    if (!this.images.has(id)) {
      const buffer = await getBytes(`api/volume/${key}/${name}.nii`);
      this.images.set(id, await NVImage.loadFromUrl({ url: `${name}.nii`, name: `${name}.nii`, buffer, ...colouring(scene.layers[name], role) }));
      while (this.images.size > KEPT_IMAGES) this.images.delete(this.images.keys().next().value);
    }
    const image = this.images.get(id);
    this.images.delete(id);
    this.images.set(id, image);
    return image;
  }

  async #showTracts(scene, wanted) {
    for (const [key, mesh] of this.meshes) {
      if (!wanted.includes(key)) {
        this.nv.removeMesh(mesh);
        this.meshes.delete(key);
      }
    }
    for (const key of wanted.filter((each) => !this.meshes.has(each))) {
      const { suffix } = scene.tracts.find((each) => each.key === key);
      const name = `${key}${suffix}`;
      const buffer = await getBytes(`api/tracts/${name}`);
      const mesh = await NVMesh.loadFromUrl({ url: name, name, gl: this.nv.gl, buffer });
      this.nv.addMesh(mesh);
      this.meshes.set(key, mesh);
    }
  }

  move(x, y, z) {
    if (this.nv.volumes.length === 0) return;
    this.nv.moveCrosshairInVox(x, y, z);
    this.lead();
  }

  // The other stage goes where this one is.
  lead() {
    if (!this.other || this.other.nv.volumes.length === 0 || this.nv.volumes.length === 0) return;
    this.nv.doSync2d(this.other.nv);
    this.nv.doSync3d(this.other.nv);
    this.other.nv.drawScene();
  }

  describe(title, layer, overlay) {
    const unit = layer.unit ? `, ${layer.unit}` : '';
    const over = overlay ? ` under ${overlay}` : '';
    this.caption.replaceChildren(Object.assign(document.createElement('b'), { textContent: title }), ` ${layer.title}${unit}${over}`);
  }
}

function colouring(layer, role) {
  if (role === 'lines' || layer.kind === 'colour') return { colorbarVisible: false };
  const range = layer.high === null ? {} : { cal_min: layer.low, cal_max: layer.high };
  const diverges = layer.signed && (layer.group !== 'Tensor' || role === 'overlay');
  const plain = role === 'overlay' && layer.colours === 'gray' ? 'viridis' : layer.colours;
  return { ...range, colormap: diverges ? DIFFERENCE : plain };
}

// Moving through one moves through the other. NiiVue passes on what the mouse does; `lead` passes on the rest.
export function yoke(first, second) {
  first.other = second;
  second.other = first;
  first.nv.broadcastTo([second.nv], { '2d': true, '3d': true });
  second.nv.broadcastTo([first.nv], { '2d': true, '3d': true });
}

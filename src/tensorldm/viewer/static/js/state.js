// What the user wants to see. One object; whoever changes it calls `change`, and the page follows.

export const wish = {
  left: null,
  right: null,
  map: 'fa',
  overlay: null,
  opacity: 0.6,
  lines: false,
  tracts: [],
  view: 'planes',
  voxels: true,
  radiological: false,
};

export const world = { scene: { shown: [], tracts: [], layers: {}, revision: 0 } };

const listeners = [];

export function onChange(listener) {
  listeners.push(listener);
}

export function change(part) {
  Object.assign(wish, part);
  listeners.forEach((listener) => listener());
}

export const find = (key) => world.scene.shown.find((each) => each.key === key) ?? null;

// Maps that everything on show has, so that both sides show the same.
export function sharedMaps() {
  const sides = [find(wish.left), find(wish.right)].filter(Boolean);
  if (sides.length === 0) return [];
  return sides[0].maps.filter((map) => sides.every((side) => side.maps.includes(map)));
}

// An overlay may be had by one side only: a fit has no doubts to lay beside a model's.
export function overlayMaps() {
  const sides = [find(wish.left), find(wish.right)].filter(Boolean);
  return Object.keys(world.scene.layers).filter((map) => world.scene.layers[map].kind !== 'colour' && sides.some((side) => side.maps.includes(map)));
}

export function tractsOf(key) {
  return world.scene.tracts.filter((tract) => tract.owner === null || tract.owner === key);
}

// A new scene: what was on show stays where it still exists.
export function adopt(scene, preferred = null) {
  world.scene = { ...scene, revision: world.scene.revision + 1 };
  const keys = scene.shown.map((each) => each.key);
  const kept = keys.includes(wish.left) ? wish.left : null;
  const first = scene.shown.find((each) => each.reference) ?? scene.shown[0] ?? null;
  wish.left = (keys.includes(preferred) ? preferred : kept) ?? first?.key ?? null;
  wish.right = keys.includes(wish.right) && wish.right !== wish.left ? wish.right : null;
  change({});
}

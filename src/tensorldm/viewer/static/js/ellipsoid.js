// The tensor at the crosshair as an ellipsoid: half axes are the eigenvalues, colour is the direction of v1.

const RINGS = 18;
const SEGMENTS = 32;
const AXES = [['R', [1, 0, 0]], ['A', [0, 1, 0]], ['S', [0, 0, 1]]];

// Seen from behind and above, so that right is right and front is up, as in the slices; all ellipsoids turn together.
export const camera = { azimuth: 15, elevation: 45 };

function rotation() {
  const a = (camera.azimuth * Math.PI) / 180;
  const e = (camera.elevation * Math.PI) / 180;
  const [ca, sa, ce, se] = [Math.cos(a), Math.sin(a), Math.cos(e), Math.sin(e)];
  // Rows: to the right of the picture, up, towards the eye. At zero the eye is behind the head (-A).
  return [[ca, sa, 0], [-sa * se, ca * se, ce], [sa * ce, -ca * ce, se]];
}

const apply = (matrix, v) => matrix.map((row) => row[0] * v[0] + row[1] * v[1] + row[2] * v[2]);

function onSphere(ring, segment) {
  const polar = (Math.PI * ring) / RINGS;
  const around = (2 * Math.PI * segment) / SEGMENTS;
  return [Math.cos(polar), Math.sin(polar) * Math.cos(around), Math.sin(polar) * Math.sin(around)];
}

// Sphere to world: columns are the eigenvectors times their eigenvalues (negative ones count as none).
function surfacePoint(unit, values, vectors) {
  return [0, 1, 2].map((axis) => unit.reduce((sum, u, n) => sum + u * Math.max(values[n], 0) * vectors[n][axis], 0));
}

function normalAt(unit, values, vectors) {
  const normal = [0, 1, 2].map((axis) => unit.reduce((sum, u, n) => sum + (u / Math.max(values[n], 1e-3)) * vectors[n][axis], 0));
  const length = Math.hypot(...normal) || 1;
  return normal.map((x) => x / length);
}

function faces(values, vectors, view) {
  const list = [];
  for (let ring = 0; ring < RINGS; ring += 1) {
    for (let segment = 0; segment < SEGMENTS; segment += 1) {
      const middle = onSphere(ring + 0.5, segment + 0.5);
      const normal = apply(view, normalAt(middle, values, vectors));
      if (normal[2] <= -0.05) continue;
      const corners = [[0, 0], [1, 0], [1, 1], [0, 1]].map(([r, s]) => apply(view, surfacePoint(onSphere(ring + r, segment + s), values, vectors)));
      list.push({ corners, normal, depth: corners.reduce((sum, c) => sum + c[2], 0) });
    }
  }
  return list.sort((a, b) => a.depth - b.depth);
}

function drawAxes(context, view, reach, centre, colour, named) {
  context.strokeStyle = colour;
  context.fillStyle = colour;
  context.font = `${Math.round(centre * 0.17)}px system-ui, sans-serif`;
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.lineWidth = 1;
  for (const [name, axis] of AXES) {
    const [x, y] = apply(view, axis);
    if (named) context.fillText(name, centre + x * reach * 1.13, centre - y * reach * 1.13);
    else {
      context.beginPath();
      context.moveTo(centre - x * reach, centre + y * reach);
      context.lineTo(centre + x * reach, centre - y * reach);
      context.stroke();
    }
  }
}

// `largest` is the eigenvalue that fills the picture, shared by all ellipsoids that stand side by side.
export function drawEllipsoid(canvas, numbers, largest, axisColour) {
  const side = Math.max(Math.round(canvas.clientWidth * window.devicePixelRatio), 1);
  canvas.width = side;
  canvas.height = side;
  const context = canvas.getContext('2d');
  const centre = side / 2;
  const view = rotation();
  drawAxes(context, view, centre * 0.84, centre, axisColour, false);
  if (numbers) drawSurface(context, numbers, view, centre, (centre * 0.68) / largest);
  drawAxes(context, view, centre * 0.84, centre, axisColour, true);
}

function drawSurface(context, { eigenvalues: values, vectors }, view, centre, scale) {
  const strongest = Math.max(...vectors[0].map(Math.abs));
  const hue = vectors[0].map((x) => 60 + (195 * Math.abs(x)) / strongest);
  for (const { corners, normal } of faces(values, vectors, view)) {
    const light = 0.35 + 0.65 * Math.max(0, 0.35 * normal[0] + 0.5 * normal[1] + 0.79 * normal[2]);
    const colour = `rgb(${hue.map((c) => Math.round(c * light)).join(' ')})`;
    context.beginPath();
    corners.forEach(([x, y], n) => context[n ? 'lineTo' : 'moveTo'](centre + x * scale, centre - y * scale));
    context.closePath();
    context.fillStyle = colour;
    context.strokeStyle = colour;
    context.fill();
    context.stroke();
  }
}

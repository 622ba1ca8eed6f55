// Principal directions as lines, one per voxel, drawn by the slice shader itself: sharp at any zoom, right on any grid.
//
// The overlay texture holds FA·|v1| in scanner axes as a colour, and the signs in the three lowest bits of alpha. The
// matrix takes a direction of the world to voxel units, so that lines are right in oblique and stretched voxels.

const HALF_WIDTH = 0.1; // of a voxel's shorter side
const REACH = 0.46; // from the middle, as far as a line in the plane goes
const WEAKEST = 0.1; // FA below which there is no line, as on the server

export function lineShader(worldToVoxel) {
  const columns = [0, 1, 2].map((c) => worldToVoxel.map((row) => row[c].toFixed(6)).join(','));
  return `#version 300 es
precision highp int;
precision highp float;
uniform highp sampler3D volume;
uniform highp sampler3D overlay;
uniform int axCorSag;
uniform float overlays;
uniform float opacity;
in vec3 texPos;
out vec4 color;
const mat3 toVoxel = mat3(${columns.join(', ')});
void main() {
  vec4 background = texture(volume, texPos);
  color = vec4(background.rgb, opacity);
  if (overlays < 1.0) return;
  ivec3 size = textureSize(overlay, 0);
  vec3 position = texPos * vec3(size);
  vec3 pixel = fwidth(position); // here, where every pixel passes: next to one that has returned it is not defined
  vec4 packed = texelFetch(overlay, clamp(ivec3(floor(position)), ivec3(0), size - 1), 0);
  uint bits = uint(packed.a * 255.0 + 0.5);
  float fa = length(packed.rgb);
  if (bits < 248u || fa < ${WEAKEST.toFixed(3)}) return;
  vec3 signs = vec3(float(bits & 1u), float((bits >> 1) & 1u), float((bits >> 2) & 1u)) * 2.0 - 1.0;
  vec3 direction = normalize(packed.rgb * signs);
  // Flat in the plane of the slice: a fibre through it shrinks to a dot.
  int across = axCorSag == 0 ? 2 : (axCorSag == 1 ? 1 : 0);
  mat3 toWorld = inverse(toVoxel);
  vec3 flatVoxel = toVoxel * direction;
  flatVoxel[across] = 0.0;
  vec3 offsetVoxel = fract(position) - 0.5;
  offsetVoxel[across] = 0.0;
  // Lengths in mm, so that lines are as thick and as long in every direction; the shorter side holds the line.
  float side = min(length(toWorld[(across + 1) % 3]), length(toWorld[(across + 2) % 3]));
  vec3 flatWorld = toWorld * flatVoxel / side;
  vec3 offset = toWorld * offsetVoxel / side;
  float slant = min(length(flatWorld) * side, 1.0);
  vec3 along = slant > 1e-4 ? normalize(flatWorld) : vec3(0.0);
  float reach = ${REACH.toFixed(3)} * slant;
  float away = length(offset - clamp(dot(offset, along), -reach, reach) * along);
  pixel[across] = 0.0;
  float edge = 0.7 * length(toWorld * pixel) / side + 1e-4;
  float inside = 1.0 - smoothstep(${HALF_WIDTH.toFixed(3)} - edge, ${HALF_WIDTH.toFixed(3)} + edge, away);
  vec3 hue = packed.rgb / max(max(packed.r, packed.g), packed.b);
  color.rgb = mix(color.rgb, hue, inside);
}`;
}

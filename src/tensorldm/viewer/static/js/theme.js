// Dark or light: the system's choice until the user makes another. Images stay on black, as in every reading room.

const root = document.documentElement;
const systemIsDark = window.matchMedia('(prefers-color-scheme: dark)');
const listeners = [];

export function isDark() {
  return root.dataset.theme ? root.dataset.theme === 'dark' : systemIsDark.matches;
}

export function toggleTheme() {
  root.dataset.theme = isDark() ? 'light' : 'dark';
  listeners.forEach((listener) => listener());
}

export function onTheme(listener) {
  listeners.push(listener);
  systemIsDark.addEventListener('change', listener);
}

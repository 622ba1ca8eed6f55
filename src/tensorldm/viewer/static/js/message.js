// One line at the bottom for what went wrong; it goes when it is clicked, or when something works again.

const line = document.getElementById('message');
line.addEventListener('click', hush);

export function say(error) {
  line.textContent = error.message ?? String(error);
  line.hidden = false;
}

export function hush() {
  line.hidden = true;
}

// Runs what the user asked for, and says why where it fails.
export async function attempt(action) {
  try {
    const result = await action();
    hush();
    return result;
  } catch (error) {
    say(error);
    return undefined;
  }
}

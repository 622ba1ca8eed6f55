// The server's answers. Addresses are relative: the page's own address holds the token, and so do they.

export class Refusal extends Error {}

async function checked(response) {
  if (response.ok) return response;
  let sentence = `The server answered ${response.status}. Is it still running?`;
  try {
    sentence = (await response.json()).error ?? sentence;
  } catch { /* no sentence came along */ }
  throw new Refusal(sentence);
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refusal('The program no longer answers. Start `tensorldm view` again.');
  }
  return checked(response);
}

const reading = new Set();

function read(answer) {
  reading.add(answer);
  const over = () => reading.delete(answer);
  answer.then(over, over);
  return answer;
}

// Once nothing is being read any more: files may then go without a reader missing them.
export const settled = () => Promise.allSettled([...reading]);
export const getJson = (path) => read(ask(path).then((response) => response.json()));
export const getBytes = (path) => read(ask(path).then((response) => response.arrayBuffer()));
export const post = async (path) => (await ask(path, { method: 'POST' })).json();

export async function upload(kind, file) {
  const headers = { 'X-File-Name': encodeURIComponent(file.name).slice(0, 300) };
  return (await ask(`api/job/files/${kind}`, { method: 'POST', body: file, headers })).json();
}

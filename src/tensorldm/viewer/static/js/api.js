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

export const getJson = async (path) => (await ask(path)).json();
export const getBytes = async (path) => (await ask(path)).arrayBuffer();
export const post = async (path) => (await ask(path, { method: 'POST' })).json();

export async function upload(kind, file) {
  const headers = { 'X-File-Name': encodeURIComponent(file.name).slice(0, 300) };
  return (await ask(`api/job/files/${kind}`, { method: 'POST', body: file, headers })).json();
}

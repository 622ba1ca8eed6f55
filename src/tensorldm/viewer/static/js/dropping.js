// Which dropped file is what, by its name; the server looks at what is in it.

const ENDINGS = [['bval', /\.bvals?$/i], ['bvec', /\.bvecs?$/i], ['mask', /mask.*\.nii(\.gz)?$/i], ['image', /\.nii(\.gz)?$/i]];
const PASSED_OVER = /\.json$/i;
const WORDS = { image: 'diffusion series', bval: 'b-value files', bvec: 'b-vector files', mask: 'masks' };

export function kindOf(files) {
  const kinds = {};
  for (const file of files.filter((each) => !PASSED_OVER.test(each.name))) {
    const found = ENDINGS.find(([, pattern]) => pattern.test(file.name) || pattern.test(`.${file.name}`));
    if (!found) {
      return { problem: `${file.name}: not a file of a scan. Drop a NIfTI series (.nii.gz) with its .bval and .bvec; convert DICOM first, or give its folder to \`tensorldm reconstruct\`.` };
    }
    const [kind] = found;
    if (kinds[kind]) return { problem: `${kinds[kind].name} and ${file.name}: two ${WORDS[kind]}. Drop the files of one scan.` };
    kinds[kind] = file;
  }
  if (Object.keys(kinds).length === 0) return { problem: 'No file of a scan among these. Drop a NIfTI series with its .bval and .bvec.' };
  return { kinds };
}

// Files chosen in the dialog, or dropped anywhere on the page.
export function askForFiles(input, take) {
  input.addEventListener('change', () => input.files.length > 0 && take(input.files));
  const mark = (on) => {
    document.body.classList.toggle('over', on);
    document.getElementById('drop').classList.toggle('over', on);
  };
  document.addEventListener('dragover', (event) => { event.preventDefault(); mark(true); });
  document.addEventListener('dragleave', () => mark(false));
  document.addEventListener('drop', (event) => {
    event.preventDefault();
    mark(false);
    if (event.dataTransfer.files.length > 0) take(event.dataTransfer.files);
  });
}

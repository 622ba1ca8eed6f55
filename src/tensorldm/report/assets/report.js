"use strict";
// Enlarge: a figure's pictures over the whole window; Escape or the button closes, and focus returns.
const dialog = document.querySelector("dialog");
const stage = dialog.querySelector(".stage");
document.addEventListener("click", (event) => {
  const source = event.target.closest("button.enlarge");
  if (!source) return;
  const copy = document.createElement("div");
  copy.innerHTML = source.innerHTML;
  stage.replaceChildren(copy);
  dialog.showModal();
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog || event.target.closest(".close")) dialog.close();
});
dialog.addEventListener("close", () => stage.replaceChildren());

// Copy: the text that a button names. Pages opened from disk may lack the clipboard, so select it at least.
for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.of);
    getSelection().selectAllChildren(text);
    try {
      await navigator.clipboard.writeText(text.innerText);
    } catch {
      document.execCommand("copy");
    }
    button.textContent = "Copied";
  });
}

// Sort: a heading's button sorts its table's lines by data-value, numbers as numbers, missing ones last.
for (const button of document.querySelectorAll("th button.sort")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const body = heading.closest("table").tBodies[0];
    const falling = heading.getAttribute("aria-sort") === "ascending";
    for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const value = (line) => line.cells[heading.cellIndex].dataset.value;
    const sign = falling ? -1 : 1;
    const lines = [...body.rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const numeric = heading.dataset.kind === "number";
      return sign * (numeric ? x - y : x.localeCompare(y, "en", { numeric: true }));
    });
    body.append(...lines);
  });
}

// Choose: radio buttons show one plane, or one map, at a time; print shows all.
for (const radio of document.querySelectorAll("input[data-shows]")) {
  const show = () => {
    if (radio.checked) document.body.dataset[radio.name] = radio.dataset.shows;
  };
  radio.addEventListener("change", show);
  show();
}

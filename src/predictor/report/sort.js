"use strict";
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const header = button.closest("th");
    const body = header.closest("table").tBodies[0];
    const column = header.cellIndex;
    const down = header.getAttribute("aria-sort") === "ascending";
    for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => {
      const cell = row.cells[column];
      return "key" in cell.dataset ? Number(cell.dataset.key) : cell.textContent.trim();
    };
    const compare = (a, b) => {
      const [one, two] = [key(a), key(b)];
      if (typeof one === "number" && typeof two === "number") return one - two;
      if (typeof one !== typeof two) return typeof one === "number" ? -1 : 1;
      return one.localeCompare(two, undefined, { numeric: true });
    };
    const rows = [...body.rows].sort(compare);
    body.append(...(down ? rows.reverse() : rows));
  });
}

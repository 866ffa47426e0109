// Interaction: tooltips, sortable tables, a choice between panels, and the data of figures as CSV.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  function make(name, properties = {}, ...children) {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  }

  function drawn(inside, name, attributes, ...children) {
    const node = document.createElementNS(inside.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  // Tooltips: a mark shows its aria-label when hovered over or focused.
  const MARK = "svg [aria-label]";
  const tooltip = make("div", { id: "tooltip" });
  tooltip.setAttribute("role", "tooltip");
  document.body.append(tooltip);

  let active = null;

  function showTooltip(mark) {
    active = mark;
    tooltip.textContent = mark.getAttribute("aria-label");
    const at = (mark.querySelector("line") ?? mark).getBoundingClientRect();
    const box = tooltip.getBoundingClientRect();
    const left = at.left + at.width / 2 - box.width / 2;
    const top = at.top - box.height - 8;
    const inside = Math.max(8, Math.min(left, document.documentElement.clientWidth - box.width - 8));
    tooltip.style.transform = `translate(${inside}px, ${top > 8 ? top : at.bottom + 8}px)`;
    tooltip.classList.add("shown");
  }
  function hideTooltip() {
    active = null;
    tooltip.classList.remove("shown");
  }
  const reactions = { pointerover: showTooltip, focusin: showTooltip, pointerout: hideTooltip, focusout: hideTooltip };
  for (const [event, act] of Object.entries(reactions)) {
    document.addEventListener(event, ({ target }) => {
      const mark = target.closest(MARK);
      if (mark) act(mark);
    });
  }
  document.addEventListener("scroll", () => active && showTooltip(active), { passive: true, capture: true });

  // Tab focuses a chart; arrow keys move between its marks.
  for (const drawing of all(".plot > svg")) {
    const title = drawing.querySelector(":scope > title");
    drawing.setAttribute("aria-label", title.textContent); // otherwise browsers show it as a tooltip
    title.remove();
    const marks = all("[aria-label]", drawing);
    if (marks.length) marks[0].tabIndex = 0;
    drawing.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return hideTooltip();
      const place = marks.indexOf(event.target), last = marks.length - 1;
      const goal = { ArrowRight: place + 1, ArrowDown: place + 1, ArrowLeft: place - 1, ArrowUp: place - 1, Home: 0, End: last };
      const next = marks[Math.max(0, Math.min(goal[event.key], last))];
      if (place < 0 || !next) return;
      event.preventDefault();
      marks[place].tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }

  // Tables: a click on a header sorts, numbers in descending order first; rows without a value stay last.
  function sort(header) {
    const table = header.closest("table"), body = table.tBodies[0], column = header.cellIndex;
    const numeric = header.dataset.sort === "number";
    const before = header.getAttribute("aria-sort");
    const rising = before === "none" ? !numeric : before === "descending";
    const value = (row) => row.cells[column].dataset.value;
    const order = (a, b) => {
      const x = value(a), y = value(b);
      if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
      return (rising ? 1 : -1) * (numeric ? x - y : x.localeCompare(y));
    };
    body.append(...[...body.rows].sort(order));
    for (const other of all("th[aria-sort]", table)) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", rising ? "ascending" : "descending");
  }
  for (const header of all("th[data-sort]")) {
    const button = make("button", { type: "button", onclick: () => sort(header) }, ...header.childNodes);
    header.append(button);
    header.setAttribute("aria-sort", "none");
  }

  // Panels: one is shown at a time, chosen with radio buttons or, if there are many, in a list.
  const MANY = 8;
  let groups = 0;
  function radios(titles, legend, show) {
    const name = `choice-${groups++}`; // several figures may offer the same choice
    const label = (title, place) =>
      make("label", {}, make("input", { type: "radio", name, checked: !place, onchange: () => show(place) }), title);
    return make("fieldset", { className: "pills" }, make("legend", {}, legend), ...titles.map(label));
  }
  function list(titles, name, show) {
    const select = make("select", { onchange: () => show(select.selectedIndex) }, ...titles.map((title) => make("option", {}, title)));
    return make("p", { className: "choice" }, make("label", {}, `${name} `, select));
  }
  all(".panels").forEach((group) => {
    const shown = all(":scope > .panel", group);
    const show = (chosen) => shown.forEach((panel, place) => { panel.hidden = place !== chosen; });
    const choose = shown.length > MANY ? list : radios;
    group.prepend(choose(shown.map((panel) => panel.dataset.title), group.dataset.choice, show));
    group.classList.add("chosen");
    show(0);
  });

  // The data of a figure as CSV. Text that looks like a spreadsheet formula gets an apostrophe.
  const data = (figure) => JSON.parse(figure.querySelector("script.data").textContent);
  function cell(value) {
    if (value === null) return "";
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }
  function download(figure) {
    const { columns, rows } = data(figure);
    const text = [columns, ...rows].map((row) => row.map(cell).join(",") + "\r\n").join("");
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: `${figure.id}.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  for (const figure of all("figure")) {
    const button = make("button", { type: "button", className: "download", onclick: () => download(figure) }, "Download data (CSV)");
    button.setAttribute("aria-label", `Download the data of ${figure.id} as CSV`);
    figure.append(button);
  }

  // Clients before and after: choosing a method moves the dots and rescales the axis.
  const plain = (value, sign = "") => {
    const text = Math.abs(value).toFixed(1);
    return (value < 0 && Number(text) ? "\u2212" : value > 0 && Number(text) ? sign : "") + text;
  };
  for (const choice of all(".choice.method")) {
    const figure = choice.closest("figure"), { columns, rows } = data(figure), select = choice.querySelector("select");
    const before = columns.lastIndexOf(choice.dataset.baseline);
    const draw = () => {
      const after = columns.lastIndexOf(select.value);
      for (const pairs of all(".pairs", figure)) {
        const { low, high, marks: ticks } = JSON.parse(pairs.dataset.axes)[select.value], height = pairs.dataset.height;
        const top = (value) => (height * (high - 100 * value)) / (high - low);
        Object.assign(pairs.dataset, { low, high });
        const axis = pairs.closest(".plot").querySelector(".y-axis");
        axis.replaceChildren(...ticks.flatMap(([value, text]) => {
          const y = top(value / 100);
          return [
            drawn(axis, "line", { class: "grid", x1: 0, x2: "100%", y1: y, y2: y }),
            drawn(axis, "text", { class: "tick end", x: -8, y: y + 4 }, text),
          ];
        }));
        const marks = all("g", pairs), values = marks.map((mark) => rows[mark.dataset.row]);
        marks.forEach((mark, place) => {
          const [was, is] = [values[place][before], values[place][after]];
          mark.setAttribute("class", is < was ? "harm" : is > was ? "gain" : "same");
          const line = mark.querySelector("line"), [ring, dot] = mark.querySelectorAll("circle");
          line.setAttribute("y1", top(was));
          line.setAttribute("y2", top(is));
          ring.setAttribute("cy", top(was));
          dot.setAttribute("cy", top(is));
          const change = `${plain(100 * was)} % \u2192 ${plain(100 * is)} % (${plain(100 * (is - was), "+")})`;
          mark.setAttribute("aria-label", `${mark.dataset.name}: ${change}`);
        });
        const mean = (column) => plain((100 * values.reduce((sum, row) => sum + row[column], 0)) / values.length);
        const harmed = values.filter((row) => row[after] < row[before]).length;
        const summary = `${select.value}: ${harmed} of ${values.length} clients harmed, mean ${mean(before)}\u00a0% \u2192 ${mean(after)}\u00a0%`;
        pairs.closest(".plot").previousElementSibling.textContent = summary;
      }
    };
    select.addEventListener("change", draw);
    choice.hidden = false;
  }

  for (const command of navigator.clipboard ? all(".command") : []) {
    const text = command.textContent;
    const copy = make("button", { type: "button", className: "button" }, "Copy");
    copy.onclick = () => navigator.clipboard.writeText(text).then(() => { copy.textContent = "Copied"; });
    command.append(copy);
  }
})();

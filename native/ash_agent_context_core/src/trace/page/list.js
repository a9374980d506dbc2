// Lists: all messages are in the document, and the browser lays out what is seen; rows of one height are made as they are scrolled to.

const FIRST = 30; // messages that are in the document before the page is ready
const SLICE = 12; // milliseconds in which others are made before the browser gets to draw

function numbered(element, index, items) {
  element.setAttribute('aria-posinset', index + 1);
  element.setAttribute('aria-setsize', items.length);
  return element;
}

class List {
  constructor(element) {
    this.element = element;
    this.items = [];
    this.made = [];
  }

  show(items) {
    this.items = items;
    this.made = [];
    this.element.replaceChildren();
    this.make(Math.min(FIRST, items.length));
    this.later(this.round = {});
  }

  make(end) {
    const start = this.made.length;
    for (let index = start; index < end; index++) this.made.push(numbered(itemOf(this.items[index]), index, this.items));
    this.element.append(...this.made.slice(start));
  }

  later(round) {
    if (this.made.length >= this.items.length) return;
    setTimeout(() => {
      if (round !== this.round) return;
      const start = performance.now();
      while (this.made.length < this.items.length && performance.now() - start < SLICE) this.make(Math.min(this.made.length + 10, this.items.length));
      this.later(round);
    });
  }

  go(index) {
    this.make(Math.max(this.made.length, index + 1));
    const element = this.made[index];
    element.focus({ preventScroll: true });
    // What is above gets its height only when it has been near.
    for (let tries = 0; tries < 3; tries++) element.scrollIntoView({ block: 'start' });
  }

  // The item that has the focus, or the one at the top of the window.
  current() {
    const focused = document.activeElement.closest('.feed > .message');
    if (focused) return this.made.indexOf(focused);
    const top = document.querySelector('.bar').offsetHeight + 24;
    let [low, high] = [0, this.made.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.made[middle].getBoundingClientRect().top <= top) low = middle;
      else high = middle;
    }
    return low;
  }
}

// Rows of one height in a box that scrolls.
const ROW = 56;
class Rows {
  constructor(element, make) {
    this.inside = h('div', { class: 'rows', role: 'list' });
    this.box = h('div', { class: 'box', tabindex: '0', onscroll: () => this.draw() }, this.inside);
    this.make = make;
    element.append(this.box);
  }

  show(rows) {
    this.rows = rows;
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 5);
    const last = Math.min(this.rows.length, first + Math.ceil(this.box.clientHeight / ROW) + 10);
    this.inside.style.paddingTop = `${first * ROW}px`;
    this.inside.style.paddingBottom = `${(this.rows.length - last) * ROW}px`;
    this.inside.replaceChildren(...this.rows.slice(first, last).map((row, index) => numbered(this.make(row), first + index, this.rows)));
  }
}

'use strict';
// Shows the conversations of the script tag "data". What they hold only ever becomes text nodes and, for images, data
// URLs; the page's policy forbids anything else.
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const CUT = 1500; // characters of a text that are shown at first
  const NEAR = 800; // pixels around what is seen that are in the document
  const INLINE = 50; // messages of a sub-agent that are shown under its call
  const PRINTED = 2000; // messages that are printed

  // ---- small things

  function h(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, '');
      else if (value !== false && value != null) element.setAttribute(name, value);
    }
    element.append(...children.filter(child => child != null && child !== ''));
    return element;
  }

  const button = (label, onclick, attributes) => h('button', { type: 'button', onclick, ...attributes }, label);
  const text = ref => (typeof ref === 'number' ? data.texts[ref] : ref || '');
  const count = number => number.toLocaleString('en');
  const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? '' : 's'}`;
  const clock = at => new Date(at).toISOString().slice(0, 19).replace('T', ' ');

  function span(millis) {
    if (millis < 1000) return `${millis} ms`;
    if (millis < 60000) return `${(millis / 1000).toFixed(1)} s`;
    if (millis < 3600000) return `${Math.floor(millis / 60000)} min ${Math.floor(millis / 1000) % 60} s`;
    return `${Math.floor(millis / 3600000)} h ${Math.floor(millis / 60000) % 60} min`;
  }

  const length = ([from, to]) => Math.max(0, to - from);
  const asked = entry => (entry.asked ? length(entry.asked) : 0);

  const money = cost => `$${cost.toFixed(cost < 1 ? 4 : 2)}`;

  // Characters that would turn a text round, or that cannot be seen, get a sign.
  const HIDDEN = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g;
  const sign = letter => `\u27e6U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}\u27e7`;
  const visible = string => string.replaceAll('\r\n', '\n').replace(HIDDEN, sign);

  // ---- what there is

  const conversations = data.conversations;
  for (const [index, one] of conversations.entries()) {
    const origin = one.origin && conversations[one.origin[0]];
    one.index = index;
    one.all = origin ? origin.all.slice(0, one.origin[1]).concat(one.iterations) : one.iterations;
    one.children = [];
    // The view of now, and those that requests were made from.
    one.views = [one.view || { covers: [], seen: {}, blocks: [] }, ...(one.asked || [])];
    for (const view of one.views) view.seen = view.seen || one.views[view.as].seen;
    one.view = one.views[0];
  }
  for (const one of conversations) {
    const above = one.within ? one.within[0] : one.origin && one.origin[0];
    if (above != null) conversations[above].children.push(one);
  }

  const coverOf = (of, number) => of.view.covers.find(cover => cover.first <= number && number <= cover.last);
  const anchor = (of, iteration, entry) => `c${of.index}-i${iteration.number}-m${entry.at}`;

  // What stands in the list: messages, the system prompt, and what a model gets in the place of iterations.
  function itemsOf(of, seen) {
    const items = [];
    const system = (seen && of.view.system) || of.system;
    if (system) items.push({ kind: 'system', of, key: `c${of.index}-system`, content: system });
    let covered = null;
    for (const iteration of of.all) {
      if (seen && iteration.number > of.view.to) break;
      const cover = coverOf(of, iteration.number);
      if (seen && cover) {
        if (cover !== covered) items.push({ kind: 'cover', of, cover, key: `c${of.index}-i${cover.first}-cover` });
        covered = cover;
        continue;
      }
      let slots = 0;
      const failures = [...(iteration.failures || [])];
      const failed = failure => items.push({ kind: 'failure', of, iteration, content: failure, cover, key: `c${of.index}-i${iteration.number}-f${(iteration.failures || []).indexOf(failure)}` });
      for (const entry of iteration.says) {
        while (!seen && failures.length && entry.asked && failures[0].at <= entry.asked[1]) failed(failures.shift());
        items.push({ kind: 'message', of, iteration, entry, cover, slots, seen, key: anchor(of, iteration, entry) });
        slots += (entry.calls || []).length;
      }
      if (!seen) failures.forEach(failed);
    }
    return items;
  }

  // What a model saw where something else was said.
  function patched(said, patch) {
    if (!patch) return said;
    return said.slice(0, patch.head) + text(patch.text) + said.slice(said.length - patch.tail);
  }

  const joined = content => content.parts
    ? content.parts.filter(part => part.text != null && part.type === 'text').map(part => text(part.text)).join('\n')
    : text(content.text);

  function cleared(item, slot) {
    const rule = item.of.view.cleared;
    if (!rule) return false;
    const number = item.iteration.number;
    return number < rule.iteration || (number === rule.iteration && item.slots + slot < rule.calls);
  }

  const patchOf = (item, slot) => item.of.view.seen[`${item.iteration.number}.${item.entry.at}${slot == null ? '' : `.${slot}`}`];

  function addUsage(sum, entry) {
    const usage = entry.usage || {};
    const [input, cached, output] = [usage.input || 0, usage.cached || 0, usage.output || 0];
    sum.input += input;
    sum.cached += cached;
    sum.output += output;
    if (entry.cost != null) sum.cost = (sum.cost || 0) + entry.cost / 1e12;
    return sum;
  }

  const usageOf = entries => entries.reduce(addUsage, { input: 0, cached: 0, output: 0, cost: null });

  function usageWords(usage) {
    const words = [];
    if (usage.input) words.push(`${count(usage.input)} tokens in`);
    if (usage.cached) words.push(`${count(usage.cached)} of them from the cache`);
    if (usage.output) words.push(`${count(usage.output)} out`);
    if (usage.cost != null) words.push(money(usage.cost));
    return words.join(', ');
  }

  // ---- searching and filtering

  const state = { of: conversations.find(one => one.active) || conversations[0], seen: false, query: '', show: 'all', items: [], open: new Set() };

  const FILTERS = {
    all: ['Everything', () => true],
    user: ['User', item => item.kind === 'message' && item.entry.role === 'user'],
    assistant: ['Assistant', item => item.kind === 'message' && item.entry.role === 'assistant'],
    tools: ['Tool calls', item => item.entry && item.entry.calls],
    errors: ['Errors and interruptions', item => item.kind === 'failure' || item.entry && (item.entry.interrupted != null || (item.entry.calls || []).some(call => !['ok', 'pending', 'approved'].includes(call.status)))],
    decisions: ['Decisions', item => item.entry && (item.entry.calls || []).some(call => call.decision || call.asked != null)],
    changed: ['What a model sees otherwise', item => item.kind === 'cover' || item.cover || isChanged(item)],
  };

  function isChanged(item) {
    if (item.kind !== 'message') return false;
    return patchOf(item) || (item.entry.calls || []).some((call, slot) => call.result && (cleared(item, slot) || patchOf(item, slot)));
  }

  // Everything that is said has its text in these fields.
  const SAID = ['text', 'arguments', 'name', 'reason', 'by', 'interrupted', 'details', 'url', 'id', 'asked'];
  function isFound(node, found, pattern) {
    if (Array.isArray(node)) return node.some(one => isFound(one, found, pattern));
    for (const [key, value] of Object.entries(node)) {
      if (SAID.includes(key)) {
        if (typeof value === 'number' ? found.has(value) : typeof value === 'string' && pattern.test(value)) return true;
      }
      if (value && typeof value === 'object' && isFound(value, found, pattern)) return true;
    }
    return false;
  }

  const escaped = words => words.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

  function chosen() {
    let items = itemsOf(state.of, state.seen).filter(FILTERS[state.show][1]);
    if (state.query) {
      const pattern = new RegExp(escaped(state.query), 'i');
      const found = new Set();
      data.texts.forEach((one, index) => pattern.test(one) && found.add(index));
      items = items.filter(item => isFound([item.content, item.entry, item.cover && item.kind === 'cover' && item.cover.summary].filter(Boolean), found, pattern));
    }
    return items;
  }

  function marked(string) {
    if (!state.query) return [string];
    const pieces = string.split(new RegExp(`(${escaped(state.query)})`, 'i'));
    return pieces.map((piece, index) => (index % 2 ? h('mark', {}, piece) : piece));
  }

  // ---- one message

  // A text of which a part is shown until all of it is wanted.
  function block(key, string, attributes) {
    const whole = visible(string);
    const isOpen = state.open.has(key) || whole.length <= CUT;
    let shown = isOpen ? whole : whole.slice(0, CUT);
    if (!isOpen && state.query) {
      const at = whole.toLowerCase().indexOf(state.query.toLowerCase());
      if (at > CUT - 200) shown = `${whole.slice(0, 200)}\n\u2026\n${whole.slice(at - 200, at + CUT - 400)}`;
    }
    const pre = h('pre', { dir: 'auto', ...attributes }, ...marked(shown));
    if (isOpen) return pre;
    const all = button(`Show all ${count(whole.length)} characters`, () => {
      state.open.add(key);
      list.refresh(all.closest('article'));
    }, { class: 'more' });
    return h('div', {}, pre, all);
  }

  function media(part) {
    if (part.shown) {
      const image = h('img', { alt: `Image, ${part.shown}`, onload: () => list.draw() });
      image.src = `data:${part.shown};base64,${text(part.data)}`;
      return image;
    }
    const known = [part.name, part.media, part.url, part.file].map(text).filter(Boolean).join(', ');
    const size = part.bytes ? `, ${count(part.bytes)} bytes` : '';
    return h('p', { class: 'file', dir: 'auto' }, visible(`${part.type}: ${known}${size}`));
  }

  function partOf(part, key) {
    switch (part.type) {
      case 'text': return block(key, text(part.text));
      case 'thinking': return h('details', { class: 'thinking', ontoggle: () => list.draw() }, h('summary', {}, 'Thinking'), block(key, text(part.text)));
      case 'redacted_thinking': return h('p', { class: 'note' }, 'Thinking that only its provider can read');
      case 'provider_block': return h('details', { ontoggle: () => list.draw() }, h('summary', {}, `Block of ${part.provider}`), block(key, pretty(text(part.text))));
      default: return media(part);
    }
  }

  function contentOf(content, key, patch) {
    if (patch) return [block(key, patched(joined(content), patch), { class: 'seen' }), ...(content.parts || []).filter(part => part.type !== 'text').map((part, index) => partOf(part, `${key}-${index}`))];
    if (content.parts) return content.parts.map((part, index) => partOf(part, `${key}-${index}`));
    return content.text == null ? [] : [block(key, text(content.text))];
  }

  function pretty(json) {
    try {
      return JSON.stringify(JSON.parse(json), null, 2);
    } catch (_) {
      return json;
    }
  }

  function decisionOf(call, key) {
    if (call.decision) {
      const { approved, by, at, reason } = call.decision;
      const words = [approved ? 'Approved' : 'Denied', by != null ? `by ${visible(text(by))}` : '', `at ${clock(at)} UTC`, reason != null ? `because: ${visible(text(reason))}` : ''];
      const line = h('p', { class: approved ? 'decision' : 'decision error' }, words.filter(Boolean).join(' '));
      const other = call.decision.arguments != null && h('div', {}, h('p', { class: 'note' }, 'with other arguments:'), block(`${key}-decided`, pretty(text(call.decision.arguments))));
      return h('div', {}, line, other || '');
    }
    if (call.asked != null) return h('div', {}, h('p', { class: 'decision' }, 'Somebody has been asked to decide about a run with these arguments:'), block(`${key}-asked`, pretty(text(call.asked))));
    return '';
  }

  function resultOf(item, call, slot, key) {
    if (!call.result) return h('p', { class: 'note' }, call.status === 'approved' ? 'Approved, not run yet' : 'No result yet');
    const isError = call.status !== 'ok';
    const heading = h('h4', {}, isError ? `Result: ${call.status}` : 'Result');
    const notes = [];
    let shown = contentOf(call.result, key, item.seen && patchOf(item, slot));
    if (cleared(item, slot)) {
      if (item.seen) shown = [block(key, text(item.of.view.cleared.text), { class: 'seen' })];
      else notes.push(h('p', { class: 'note' }, 'Cleared for the model'));
    } else if (patchOf(item, slot) && !item.seen) notes.push(h('p', { class: 'note' }, 'The model sees other words'));
    return h('div', { class: isError ? 'result error' : 'result' }, heading, ...notes, ...shown);
  }

  function callOf(item, call, slot) {
    const key = `${item.key}-${slot}`;
    const agents = item.of.children.filter(one => one.within && one.within[1] === call.id);
    return h('section', { class: 'call', 'aria-label': `Call of ${visible(call.name)}` },
      h('h3', {}, ...marked(visible(call.name)), h('span', { class: 'note' }, ` ${visible(call.id)}${call.kind ? `, ${call.kind}` : ''}${call.ran ? `, ran ${span(length(call.ran))}` : ''}`)),
      block(`${key}-arguments`, pretty(text(call.arguments))),
      decisionOf(call, key),
      resultOf(item, call, slot, `${key}-result`),
      ...agents.map(agentOf));
  }

  // A sub-agent's conversation under the call that it was made for.
  function agentOf(agent) {
    const words = `Sub-agent ${visible(agent.name)}, ${plural(agent.all.length, 'iteration')}`;
    const inside = h('div', { class: 'agent' });
    return h('details', {
      ontoggle: event => {
        if (event.target.open && !inside.firstChild) {
          const items = itemsOf(agent, state.seen);
          inside.append(...items.slice(0, INLINE).map(item => itemOf(item)), button('Open its conversation', () => open(agent)));
        }
        list.draw();
      },
    }, h('summary', {}, words), inside);
  }

  const LABELS = { user: 'User', assistant: 'Assistant', system: 'System' };

  function headOf(item) {
    const { iteration, entry } = item;
    const notes = [`iteration ${iteration.number}`];
    if (entry === iteration.says[0]) notes.push(`${clock(iteration.from)} UTC`, iteration.to == null ? 'open' : span(iteration.to - iteration.from));
    if (entry.asked) notes.push(`answered in ${span(asked(entry))}`);
    if (entry.model) notes.push(entry.model);
    const usage = usageWords(usageOf([entry]));
    if (usage) notes.push(usage);
    if (entry.finish && !['stop', 'tool_calls'].includes(entry.finish)) notes.push(`ended: ${entry.finish}`);
    return h('header', {}, h('h2', { id: `${item.key}-head` }, LABELS[entry.role]),
      h('span', { class: 'note', dir: 'auto' }, visible(notes.join(' \u00b7 '))),
      h('a', { href: `#${item.key}`, class: 'link', 'aria-label': `Link to this message of iteration ${iteration.number}` }, '#'));
  }

  function coverWords(cover) {
    const range = cover.first === cover.last ? `Iteration ${cover.first}` : `Iterations ${cover.first} to ${cover.last}`;
    return cover.summary ? `${range}: the model sees a summary` : `${range}: hidden from the model`;
  }

  function itemOf(item) {
    const attributes = { id: item.key, class: `message ${item.kind}`, tabindex: '-1' };
    if (item.kind === 'system') {
      const blocks = state.seen ? item.of.view.blocks : [];
      const note = blocks.length ? h('span', { class: 'note' }, `with ${blocks.map(visible).join(', ')}`) : '';
      return h('article', { ...attributes, 'aria-label': 'System prompt' }, h('header', {}, h('h2', {}, 'System'), note), ...contentOf(item.content, item.key));
    }
    if (item.kind === 'failure') {
      return h('article', { ...attributes, 'aria-label': 'Failed request' }, h('header', {}, h('h2', {}, 'Failed request'), h('span', { class: 'note' }, `iteration ${item.iteration.number} \u00b7 ${clock(item.content.at)} UTC`)),
        h('div', { class: 'error' }, block(item.key, text(item.content.text))));
    }
    if (item.kind === 'cover') {
      return h('article', { ...attributes, 'aria-label': coverWords(item.cover) }, h('header', {}, h('h2', {}, coverWords(item.cover))), ...(item.cover.summary ? contentOf(item.cover.summary, item.key) : []));
    }
    const { entry } = item;
    attributes.class += ` ${entry.role}${item.cover ? ' covered' : ''}`;
    attributes['aria-labelledby'] = `${item.key}-head`;
    return h('article', attributes, headOf(item),
      item.cover ? h('p', { class: 'note' }, coverWords(item.cover)) : '',
      ...contentOf(entry, item.key, item.seen && patchOf(item)),
      entry.details != null ? h('details', { ontoggle: () => list.draw() }, h('summary', {}, `Details of ${entry.provider}`), block(`${item.key}-details`, pretty(text(entry.details)))) : '',
      entry.interrupted != null ? h('p', { class: 'error', dir: 'auto' }, `Broke off: ${visible(text(entry.interrupted))}`) : '',
      entry.calls ? h('div', { class: 'calls' }, ...entry.calls.map((call, slot) => callOf(item, call, slot))) : '');
  }

  // ---- lists of which only what is seen is in the document

  class List {
    constructor(element) {
      this.element = element;
      this.items = [];
      this.elements = new Map();
      this.isWhole = false;
    }

    show(items) {
      this.items = items;
      for (const element of this.elements.values()) element.remove();
      this.elements.clear();
      this.known = new Map();
      this.tops = new Float64Array(items.length + 1);
      this.place(0);
      this.draw();
    }

    height(index) {
      const item = this.items[index];
      if (this.known.has(item.key)) return this.known.get(item.key);
      return 90 + ((item.entry && item.entry.calls) ? 260 : 60);
    }

    place(from) {
      for (let index = from; index < this.items.length; index++) this.tops[index + 1] = this.tops[index] + this.height(index);
    }

    at(top) {
      let [low, high] = [0, this.items.length];
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (this.tops[middle] <= top) low = middle;
        else high = middle;
      }
      return low;
    }

    // Puts what is near into the document, measures it, and again where that moved something.
    draw(tries = 4) {
      const top = window.scrollY - this.element.offsetTop;
      const first = this.isWhole ? 0 : this.at(Math.max(0, top - NEAR));
      const last = this.isWhole ? Math.min(this.items.length, PRINTED) - 1 : this.at(top + window.innerHeight + NEAR);
      const wanted = this.items.slice(first, last + 1);
      const keys = new Set(wanted.map(item => item.key));
      for (const [key, element] of this.elements) {
        if (!keys.has(key) && !element.contains(document.activeElement)) {
          element.remove();
          this.elements.delete(key);
        }
      }
      let before = null;
      wanted.forEach((item, index) => {
        let element = this.elements.get(item.key);
        if (!element) {
          element = itemOf(item);
          element.setAttribute('aria-posinset', first + index + 1);
          element.setAttribute('aria-setsize', this.items.length);
          this.elements.set(item.key, element);
          if (before) before.after(element);
          else this.element.prepend(element);
        }
        before = element;
      });
      this.element.style.paddingTop = `${this.tops[first]}px`;
      this.element.style.paddingBottom = this.isWhole ? '0' : `${this.tops[this.items.length] - this.tops[Math.min(last + 1, this.items.length)]}px`;
      const anchor = this.at(Math.max(0, top));
      const [anchored, changed] = [this.tops[anchor], this.measure(wanted, first)];
      if (changed == null || tries === 0 || this.isWhole) return;
      this.place(changed);
      // What is read stays where it is.
      if (changed < anchor) window.scrollBy(0, this.tops[anchor] - anchored);
      this.draw(tries - 1);
    }

    measure(wanted, first) {
      let changed = null;
      wanted.forEach((item, index) => {
        const height = this.elements.get(item.key).getBoundingClientRect().height + 12;
        if (Math.abs(height - this.height(first + index)) > 0.5) {
          this.known.set(item.key, height);
          if (changed == null) changed = first + index;
        }
      });
      return changed;
    }

    // Makes an element anew, with the focus where it was.
    refresh(element) {
      const key = element && [...this.elements].find(([, one]) => one.contains(element))?.[0];
      if (!key) return;
      const fresh = itemOf(this.items.find(item => item.key === key));
      const old = this.elements.get(key);
      for (const name of ['aria-posinset', 'aria-setsize']) fresh.setAttribute(name, old.getAttribute(name));
      old.replaceWith(fresh);
      this.elements.set(key, fresh);
      this.draw();
      fresh.focus({ preventScroll: true });
    }

    go(index) {
      const room = document.querySelector('.bar').offsetHeight + 12;
      for (let tries = 0; tries < 4; tries++) {
        window.scrollTo(0, this.element.offsetTop + this.tops[index] - room);
        this.draw();
      }
      const element = this.elements.get(this.items[index].key);
      if (element) element.focus({ preventScroll: true });
    }

    // The item at the top of the window, or the one that has the focus.
    current() {
      const focused = document.activeElement.closest('.message');
      const at = focused ? this.items.findIndex(item => item.key === focused.id) : -1;
      return at >= 0 ? at : this.at(window.scrollY - this.element.offsetTop + document.querySelector('.bar').offsetHeight + 24);
    }
  }

  // Rows of one height in a box that scrolls.
  const ROW = 34;
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
      this.inside.replaceChildren(...this.rows.slice(first, last).map((row, index) => {
        const made = this.make(row);
        made.setAttribute('aria-posinset', first + index + 1);
        made.setAttribute('aria-setsize', this.rows.length);
        return made;
      }));
    }
  }

  const SVG = 'http://www.w3.org/2000/svg';
  // A bar of several pieces, each with a class and a share of the whole.
  function bar(pieces) {
    const svg = document.createElementNS(SVG, 'svg');
    svg.setAttribute('class', 'chart');
    svg.setAttribute('aria-hidden', 'true');
    let left = 0;
    for (const [name, share] of pieces) {
      const rect = document.createElementNS(SVG, 'rect');
      const size = { class: name, x: `${left}%`, width: `${Math.max(share * 100, share > 0 ? 0.5 : 0)}%`, height: '100%' };
      for (const [key, value] of Object.entries(size)) rect.setAttribute(key, value);
      svg.append(rect);
      left += share * 100;
    }
    return svg;
  }

  // How long the model, people and tools took. Parallel calls count once.
  function spent(iteration) {
    const times = { model: 0, people: 0, tools: 0 };
    for (const entry of iteration.says) {
      times.model += asked(entry);
      const calls = entry.calls || [];
      const ran = calls.map(call => call.ran).filter(Boolean);
      if (ran.length) times.tools += length([ran.reduce((min, [from]) => Math.min(min, from), Infinity), ran.reduce((max, [, to]) => Math.max(max, to), 0)]);
      const decided = calls.map(call => call.decision && call.decision.at).filter(Boolean);
      if (entry.asked && decided.length) times.people += length([entry.asked[1], decided.reduce((max, at) => Math.max(max, at), 0)]);
    }
    return times;
  }

  function timeline(of) {
    const rows = of.all.map((iteration, index) => {
      const before = of.all[index - 1];
      const waited = before && before.to != null && iteration.turn === iteration.number ? Math.max(0, iteration.from - before.to) : 0;
      return { iteration, waited, took: iteration.to == null ? 0 : Math.max(0, iteration.to - iteration.from), ...spent(iteration) };
    });
    const most = Math.max(1, ...rows.slice(0, 100000).map(row => row.took));
    return { rows, most };
  }

  function timeRow({ iteration, took, waited, model, people, tools }, most) {
    const calls = iteration.says.flatMap(entry => entry.calls || []);
    const failed = calls.some(call => !['ok', 'pending', 'approved'].includes(call.status)) || iteration.says.some(entry => entry.interrupted != null) || iteration.failures != null;
    const words = [iteration.to == null ? 'open' : span(took)];
    if (model) words.push(`model ${span(model)}`);
    if (people >= 1000) words.push(`${span(people)} of waiting for a decision`);
    if (calls.length) words.push(plural(calls.length, 'call') + (tools ? ` ${span(tools)}` : ''));
    if (waited >= 1000) words.push(`after ${span(waited)} of waiting for the user`);
    if (coverOf(state.of, iteration.number)) words.push('not in view');
    if (iteration.failures) words.push(...new Set(iteration.failures.map(failure => failure.kind.replaceAll('_', ' '))));
    else if (failed) words.push('error');
    return h('div', { role: 'listitem' }, button(h('span', {}, h('b', {}, String(iteration.number)), ` ${clock(iteration.from).slice(11)} ${words.join(', ')}`), () => jump(iteration.number), { class: failed ? 'row failed' : 'row' }), bar([['model', model / most], ['people', people / most], ['tools', tools / most], [failed ? 'bad' : 'took', Math.max(0, took - model - people - tools) / most]]));
  }

  function turnsOf(of) {
    const turns = new Map();
    for (const iteration of of.all) {
      const turn = turns.get(iteration.turn) || { number: iteration.turn, entries: [], iterations: 0 };
      turn.entries.push(...iteration.says);
      turn.iterations++;
      turns.set(iteration.turn, turn);
    }
    return [...turns.values()].map(turn => ({ ...turn, usage: usageOf(turn.entries) }));
  }

  function turnRow(turn, most, dearest) {
    const { input, cached, output, cost } = turn.usage;
    const share = input ? ` (${Math.round(cached / input * 100)}% cached)` : '';
    const tokens = input + output ? `${count(input)} in${share}, ${count(output)} out` : 'no tokens reported';
    const words = cost == null ? tokens : `${tokens}, ${money(cost)}`;
    const bars = [bar([['cached', cached / most], ['input', (input - cached) / most], ['output', output / most]])];
    if (cost != null) bars.push(bar([['cost', cost / dearest]]));
    return h('div', { role: 'listitem' }, button(h('span', {}, h('b', {}, `from ${turn.number}`), ` ${words}`), () => jump(turn.number), { class: 'row', title: `${plural(turn.iterations, 'iteration')}, ${usageWords(turn.usage)}` }), ...bars);
  }

  function tree(roots) {
    return h('ul', {}, ...roots.map(one => {
      const words = one.within ? `sub-agent, ${plural(one.all.length, 'iteration')}` : one.origin ? `from iteration ${one.origin[1]}, ${plural(one.all.length, 'iteration')}` : plural(one.all.length, 'iteration');
      return h('li', {}, button(h('span', { dir: 'auto' }, visible(one.name)), () => open(one), { 'aria-current': one === state.of ? 'true' : null }), h('span', { class: 'note' }, ` ${words}`), one.children.length ? tree(one.children) : '');
    }));
  }

  // ---- a diff of two conversations

  function comparison(one, other) {
    let common = 0;
    while (common < one.all.length && common < other.all.length && (one.all[common] === other.all[common] || JSON.stringify(one.all[common]) === JSON.stringify(other.all[common]))) common++;
    const column = of => {
      const own = new Set(of.all.slice(common));
      const items = itemsOf(of, state.seen).filter(item => (item.iteration ? own.has(item.iteration) : item.kind === 'cover'));
      const shown = items.slice(0, INLINE).map(item => {
        const element = itemOf(item);
        element.id = `diff-${item.key}`;
        return element;
      });
      const rest = items.length > INLINE ? h('p', { class: 'note' }, `${plural(items.length - INLINE, 'message')} more`) : '';
      return h('section', { 'aria-label': `Only in ${visible(of.name)}` }, h('h3', {}, visible(of.name)), ...(shown.length ? shown : [h('p', { class: 'note' }, 'Nothing more')]), rest);
    };
    const words = common ? `Both have the first ${plural(common, 'iteration')}.` : 'They have no iteration in common.';
    const prompts = text((one.system || {}).text) === text((other.system || {}).text) ? '' : h('p', {}, 'Their system prompts differ.');
    return h('div', {}, h('p', { id: 'common' }, words), prompts, h('div', { class: 'columns' }, column(one), column(other)));
  }

  function compare() {
    const pick = (label, selected) => {
      const select = h('select', { name: label, onchange: () => update() }, ...conversations.map(one => h('option', { value: one.index, selected: one === selected }, visible(one.name))));
      return [select, h('label', {}, `${label} `, select)];
    };
    const [first, firstLabel] = pick('Compare', conversations[0]);
    const [second, secondLabel] = pick('with', conversations[1]);
    const result = h('div', {});
    const update = () => result.replaceChildren(comparison(conversations[first.value], conversations[second.value]));
    update();
    return h('div', {}, h('p', {}, firstLabel, ' ', secondLabel), result);
  }

  // ---- the request

  function requestBody() {
    return data.request.chunks.map(chunk => (typeof chunk === 'string' ? chunk : Array.isArray(chunk) ? data.texts[chunk[0]] : JSON.stringify(data.texts[chunk]))).join('');
  }

  function request() {
    const { provider, problem, report, bytes, left_out: leftOut, interrupted } = data.request;
    if (problem) return h('p', { class: 'error' }, `No request can be made for ${provider}: ${problem}`);
    const rows = report.map(one => h('tr', {}, h('td', {}, String(one.iteration)), h('td', {}, one.change), h('td', { dir: 'auto' }, visible(one.from).slice(0, CUT)), h('td', { dir: 'auto' }, visible(one.to || '').slice(0, CUT))));
    const table = rows.length ? h('table', {}, h('caption', {}, 'What it changes of the conversation'), h('thead', {}, h('tr', {}, ...['Iteration', 'Change', 'From', 'To'].map(name => h('th', { scope: 'col' }, name)))), h('tbody', {}, ...rows.slice(0, 500))) : h('p', {}, 'It changes nothing of the conversation.');
    const body = h('pre', { id: 'request-body', dir: 'auto' });
    let shown = 0;
    const whole = visible(pretty(requestBody()));
    const more = button('', () => {
      body.append(whole.slice(shown, shown + 50000));
      shown += 50000;
      more.textContent = `Show more of ${count(whole.length)} characters`;
      more.hidden = shown >= whole.length;
    });
    more.click();
    return h('div', {},
      h('p', {}, `The messages as they go to ${provider}: ${count(bytes)} bytes.`, interrupted ? ' Calls that wait for their results are interrupted in it.' : '', leftOut ? ` ${count(leftOut)} bytes of long texts are left out here.` : ''),
      table, body, more);
  }

  // ---- the page

  const status = h('p', { role: 'status', 'aria-live': 'polite', class: 'note' });
  const feed = h('div', { role: 'feed', 'aria-label': 'Messages', class: 'feed' });
  const list = new List(feed);
  const panel = h('div', { class: 'panel' });
  const search = h('input', { type: 'search', name: 'search', 'aria-label': 'Search in all messages', placeholder: 'Search  ( / )', oninput: () => { clearTimeout(search.timer); search.timer = setTimeout(update, 150); } });
  const filter = h('select', { name: 'show', 'aria-label': 'Show', onchange: update }, ...Object.entries(FILTERS).map(([name, [label]]) => h('option', { value: name }, label)));
  const switched = button('', () => { state.seen = !state.seen; update(); }, { class: 'switch', 'aria-pressed': 'false' });
  // Which request's view is shown; the first is that of the next request.
  const which = h('select', { name: 'view', 'aria-label': 'What the model saw in', onchange: update });
  const side = h('nav', { 'aria-label': 'Overview', class: 'side' });

  const viewWords = view => {
    if (view.to == null) return 'as of now';
    return view.from === view.to ? `request of iteration ${view.from}` : `requests of iterations ${view.from} to ${view.to}`;
  };

  function choices() {
    which.replaceChildren(...state.of.views.map((view, index) => h('option', { value: index }, viewWords(view))));
    which.value = 0;
  }

  function update() {
    which.hidden = !state.seen || state.of.views.length < 2;
    state.of.view = state.of.views[which.hidden ? 0 : which.value];
    state.query = search.value.trim();
    state.show = filter.value;
    switched.textContent = state.seen ? 'Showing what the model sees' : 'Showing what was said';
    switched.setAttribute('aria-pressed', String(state.seen));
    state.items = chosen();
    list.show(state.items);
    const shown = plural(state.items.length, 'message');
    status.textContent = state.query || state.show !== 'all' ? `${shown} found` : shown;
  }

  function open(of) {
    state.of.view = state.of.views[0];
    state.of = of;
    choices();
    overview();
    update();
    window.scrollTo(0, 0);
  }

  function jump(number) {
    const find = () => state.items.findIndex(item => item.kind === 'cover' ? item.cover.first <= number && number <= item.cover.last : item.iteration && item.iteration.number >= number);
    if (find() < 0 && (state.query || state.show !== 'all')) unfilter();
    const at = find();
    if (at >= 0) list.go(at);
  }

  function nextError() {
    const isError = FILTERS.errors[1];
    const after = list.current() + 1;
    const at = [...state.items.keys()].find(index => index >= after && isError(state.items[index]));
    if (at != null) list.go(at);
  }

  function unfilter() {
    search.value = '';
    filter.value = 'all';
    update();
  }

  // Shows the message that the address names.
  function follow() {
    const named = /^#c(\d+)-(i(\d+)-m\d+|i\d+-cover|system)$/.exec(location.hash);
    const of = named && conversations[Number(named[1])];
    if (!of) return;
    if (of !== state.of) open(of);
    const find = () => state.items.findIndex(item => `#${item.key}` === location.hash);
    if (find() < 0) unfilter();
    if (find() < 0 && state.seen) { state.seen = false; update(); }
    const at = find();
    if (at >= 0) list.go(at);
    else if (named[3]) jump(Number(named[3]));
  }

  // The overview at the side, of which one part is open.
  let part = 'Iterations';
  function overview() {
    const parts = { Iterations: iterations, Tokens: tokens };
    if (conversations.length > 1) Object.assign(parts, { Branches: () => panel.append(tree(conversations.filter(one => !one.within && !one.origin))), Compare: () => panel.append(compare()) });
    if (data.request) parts.Request = () => panel.append(request());
    const tabs = Object.keys(parts).map(name => button(name, () => { part = name; overview(); side.querySelector('[aria-selected=true]').focus(); }, { role: 'tab', 'aria-selected': String(name === part), tabindex: name === part ? '0' : '-1' }));
    const tablist = h('div', { role: 'tablist', 'aria-label': 'Overview', onkeydown: event => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) tabs[(tabs.findIndex(tab => tab === event.target) + step + tabs.length) % tabs.length].click();
    } }, ...tabs);
    panel.replaceChildren();
    panel.className = `panel ${part.toLowerCase()}`;
    document.body.classList.toggle('wide', part === 'Compare' || part === 'Request');
    side.replaceChildren(tablist, panel);
    parts[part]();
  }

  function iterations() {
    const { rows, most } = timeline(state.of);
    if (rows.some(row => row.model)) panel.append(h('p', { class: 'legend' }, ...['model', 'people', 'tools', 'took'].map(name => h('span', { class: name }, name === 'took' ? 'rest' : name))));
    new Rows(panel, row => timeRow(row, most)).show(rows);
  }

  function tokens() {
    const turns = turnsOf(state.of);
    const most = turns.reduce((max, { usage }) => Math.max(max, usage.input + usage.output), 1);
    const dearest = turns.reduce((max, { usage }) => Math.max(max, usage.cost || 0), 1e-9);
    panel.append(h('p', { class: 'legend' }, ...['cached', 'input', 'output', 'cost'].map(name => h('span', { class: name }, name))));
    new Rows(panel, turn => turnRow(turn, most, dearest)).show(turns);
  }

  const KEYS = {
    j: ['next message', () => list.go(Math.min(list.current() + 1, list.items.length - 1))],
    k: ['message before', () => list.go(Math.max(list.current() - 1, 0))],
    '/': ['search', () => search.focus()],
    v: ['what was said, or what the model sees', () => switched.click()],
    e: ['next error', () => nextError()],
    g: ['first message', () => list.go(0)],
    G: ['last message', () => list.go(list.items.length - 1)],
    '?': ['these keys', () => help.showModal()],
  };
  const help = h('dialog', { 'aria-label': 'Keys' }, h('h2', {}, 'Keys'), h('dl', {}, ...Object.entries(KEYS).flatMap(([key, [label]]) => [h('dt', {}, h('kbd', {}, key)), h('dd', {}, label)])), h('form', { method: 'dialog' }, h('button', {}, 'Close')));

  document.addEventListener('keydown', event => {
    if (event.key === 'Escape' && event.target === search) { unfilter(); search.blur(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || help.open || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const known = Object.hasOwn(KEYS, event.key) && KEYS[event.key];
    if (known && (state.items.length || !'jkegG'.includes(event.key))) { event.preventDefault(); known[1](); }
  });
  let drawing = false;
  const soon = () => { if (!drawing) { drawing = true; requestAnimationFrame(() => { drawing = false; list.draw(); }); } };
  window.addEventListener('scroll', soon, { passive: true });
  window.addEventListener('resize', () => { list.known.clear(); list.place(0); soon(); });
  window.addEventListener('hashchange', follow);
  window.addEventListener('beforeprint', () => { list.isWhole = true; list.draw(); });
  window.addEventListener('afterprint', () => { list.isWhole = false; list.draw(); });

  const all = usageOf(state.of.all.flatMap(iteration => iteration.says));
  const facts = [plural(state.of.all.length, 'iteration'), `begun ${clock(state.of.created)} UTC`, `last changed ${clock(state.of.updated)} UTC`, usageWords(all)];
  const masked = state.of.view.masks ? [`${plural(state.of.view.masks, 'mask')} in force`] : [];
  document.body.prepend(
    h('a', { href: '#messages', class: 'skip' }, 'Skip to the messages'),
    h('header', { class: 'top' }, h('h1', { dir: 'auto' }, document.title), h('p', { class: 'note', dir: 'auto' }, [...facts, ...masked].filter(Boolean).join(' \u00b7 '))),
    h('div', { class: 'bar', role: 'search' }, search, filter, switched, which, button('Keys', () => help.showModal()), status),
    h('div', { class: 'page' }, side, h('main', { id: 'messages', tabindex: '-1' }, feed)),
    help);
  document.getElementById('readable').remove();
  choices();
  overview();
  update();
  follow();
})();

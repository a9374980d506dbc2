'use strict';
// Shows the conversations of the script tag "data". What they hold only ever becomes text nodes and, for images, data
// URLs; the page's policy forbids anything else.
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const CUT = 1500; // characters of a text that are shown at first
  const PROSE = 100000; // characters of a text that are looked through for Markdown
  const FIRST = 30; // messages that are in the document before the page is ready
  const SLICE = 12; // milliseconds in which others are made before the browser gets to draw
  const INLINE = 50; // messages of a sub-agent that are shown under its call

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
  // Times are those of the reader's clock.
  const padded = number => String(number).padStart(2, '0');
  function clock(at) {
    const time = new Date(at);
    const day = [time.getFullYear(), time.getMonth() + 1, time.getDate()].map(padded).join('-');
    return `${day} ${[time.getHours(), time.getMinutes(), time.getSeconds()].map(padded).join(':')}`;
  }
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || 'local time';

  function span(millis) {
    if (millis < 1000) return `${millis} ms`;
    if (millis < 60000) return `${(millis / 1000).toFixed(1)} s`;
    if (millis < 3600000) return `${Math.floor(millis / 60000)} min ${Math.floor(millis / 1000) % 60} s`;
    return `${Math.floor(millis / 3600000)} h ${Math.floor(millis / 60000) % 60} min`;
  }

  const length = ([from, to]) => Math.max(0, to - from);
  const asked = entry => (entry.asked ? length(entry.asked) : 0);

  const money = cost => `$${cost.toFixed(cost < 1 ? 4 : 2)}`;

  // Characters that would turn a text round, or that cannot be seen, get a sign. Joiners within a script or a picture that needs them, and
  // the one selector behind a picture, are left.
  const HIDDEN = /[\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u00ad\u034f\u115f\u1160\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/gu;
  const sign = letter => `\u27e6U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}\u27e7`;
  const isSeen = letter => letter !== undefined && letter > '\x7f' && !letter.match(HIDDEN);
  function signed(letter, at, whole) {
    const before = whole.codePointAt(at - 2) > 0xffff ? String.fromCodePoint(whole.codePointAt(at - 2)) : whole[at - 1];
    const after = at + letter.length < whole.length ? String.fromCodePoint(whole.codePointAt(at + letter.length)) : undefined;
    const isVariant = letter >= '\ufe00' && letter <= '\ufe0f' || letter >= '\u{e0100}' && letter.length === 2;
    if (isVariant && isBase(before)) return letter;
    const isJoiner = letter === '\u200c' || letter === '\u200d';
    if (isJoiner && (isSeen(before) || before === '\ufe0f') && isSeen(after)) return letter;
    return sign(letter);
  }
  // What a variant can be of: letters and pictures, and the digits of keys.
  const isBase = letter => isSeen(letter) || letter !== undefined && /[0-9#*]/.test(letter);
  const visible = string => string.replaceAll('\r\n', '\n').replace(HIDDEN, signed);

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

  // A sub-agent is called as the tool is that it worked for.
  const callsOf = iteration => iteration.says.flatMap(entry => entry.calls || []);
  for (const one of conversations.filter(one => one.within && one.within[1])) {
    const of = conversations[one.within[0]];
    of.byCall = of.byCall || new Map(of.all.flatMap(callsOf).map(call => [call.id, call.name]));
    one.tool = of.byCall.get(one.within[1]);
  }
  const nameOf = one => visible(one.tool || one.name);

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
    for (const key of ['input', 'cached', 'written', 'output', 'reasoning']) sum[key] += usage[key] || 0;
    if (entry.cost != null) sum.cost = (sum.cost || 0) + entry.cost / 1e12;
    return sum;
  }

  const usageOf = entries => entries.reduce(addUsage, { input: 0, cached: 0, written: 0, output: 0, reasoning: 0, cost: null });

  function usageWords(usage) {
    const words = [];
    if (usage.input) words.push(`${count(usage.input)} tokens in`);
    if (usage.cached) words.push(`${count(usage.cached)} of them from the cache`);
    if (usage.written) words.push(`${count(usage.written)} written to it`);
    if (usage.output) words.push(`${count(usage.output)} out`);
    if (usage.reasoning) words.push(`${count(usage.reasoning)} of them thought`);
    if (usage.cost != null) words.push(money(usage.cost));
    return words.join(', ');
  }

  // ---- searching and filtering

  const state = { of: conversations.find(one => one.active) || conversations[0], seen: false, query: '', show: 'all', items: [] };

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
    let items = itemsOf(state.of, state.seen);
    if (state.until) items = items.filter(({ iteration, entry, cover }) => (iteration ? iteration.number < state.until[0] || iteration.number === state.until[0] && entry && entry.at < state.until[1] : !cover || cover.last < state.until[0]));
    items = items.filter(FILTERS[state.show][1]);
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

  // What a text begins with, and the rest of it, which waits for a click, for the browser's own search and for the printer.
  function folded(shown, rest, length) {
    if (!rest.length) return shown;
    if (state.query && rest.some(one => one.textContent.toLowerCase().includes(state.query.toLowerCase()))) return [...shown, ...rest];
    const more = h('div', { hidden: 'until-found', class: 'rest', onbeforematch: () => all.remove() }, ...rest);
    const all = button(`Show all ${count(length)} characters`, () => { more.removeAttribute('hidden'); all.remove(); }, { class: 'more' });
    return [...shown, more, all];
  }

  // A text as it is.
  function block(string, attributes) {
    const whole = visible(string);
    const pre = piece => h('pre', { dir: 'auto', ...attributes }, ...marked(piece));
    return folded([pre(whole.slice(0, CUT))], whole.length > CUT ? [pre(whole.slice(CUT))] : [], whole.length);
  }

  // ---- Markdown: its blocks, made of text nodes

  const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([\w+#.-]*)/;
  const KINDS = [['heading', /^ {0,3}#{1,6} /], ['item', /^\s*([-*+]|\d{1,9}[.)]) /], ['quote', /^ {0,3}>/], ['table', /^ {0,3}\|/]];

  function blocksOf(string) {
    const blocks = [];
    let [last, fence] = [null, null];
    const open = (kind, line, more) => { last = { kind, lines: line == null ? [] : [line], ...more }; blocks.push(last); };
    for (const line of string.split('\n')) {
      if (fence) {
        const end = line.trim();
        if (end.startsWith(fence) && end === fence[0].repeat(end.length)) fence = last = null;
        else last.lines.push(line);
        continue;
      }
      const begun = FENCE.exec(line);
      if (begun) {
        fence = begun[1];
        open('code', null, { language: begun[2] });
        continue;
      }
      if (!line.trim()) { last = null; continue; }
      const known = KINDS.find(([, pattern]) => pattern.test(line));
      const kind = known ? known[0] : 'paragraph';
      const joins = last && (kind === 'paragraph' ? last.kind !== 'heading' && last.kind !== 'table' : last.kind === kind && kind !== 'heading' && kind !== 'item');
      if (joins) last.lines.push(line);
      else open(kind, line);
    }
    return blocks;
  }

  function inline(string) {
    return string.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).flatMap((piece, index) => {
      if (index % 2 === 0) return marked(piece);
      return piece[0] === '`' ? [h('code', {}, ...marked(piece.slice(1, -1)))] : [h('strong', {}, ...marked(piece.slice(2, -2)))];
    });
  }

  const cells = line => line.trim().replace(/^\||\|$/g, '').split('|').map(cell => cell.trim());
  function tableOf(lines) {
    const rows = lines.map(cells);
    const row = (kind, of) => h('tr', {}, ...of.map(cell => h(kind, kind === 'th' ? { scope: 'col' } : {}, ...inline(cell))));
    return h('table', {}, h('thead', {}, row('th', rows[0])), h('tbody', {}, ...rows.slice(2).map(of => row('td', of))));
  }

  function shownBlock({ kind, lines, language }) {
    const string = lines.join('\n');
    switch (kind) {
      case 'code': return h('pre', { class: 'code', 'data-language': language || null, dir: 'auto' }, ...marked(string));
      case 'heading': return h('p', { class: 'heading', dir: 'auto' }, ...inline(string.replace(/^ {0,3}#{1,6} /, '')));
      case 'item': return h('p', { class: 'item', dir: 'auto' }, ...inline(string));
      case 'quote': return h('blockquote', { dir: 'auto' }, ...inline(string.replace(/^ {0,3}> ?/gm, '')));
      case 'table': if (lines.length > 2 && /^[\s|:-]+$/.test(lines[1])) return tableOf(lines); // falls through
      default: return h('p', { class: 'prose', dir: 'auto' }, ...inline(string));
    }
  }

  function prose(string) {
    const whole = visible(string);
    if (whole.length > PROSE) return block(string);
    const [shown, rest] = [[], []];
    let room = CUT;
    for (const one of blocksOf(whole)) {
      const long = one.lines.join('\n');
      // A long block is cut, where that does not take it apart.
      if (room > 0 && long.length > room + CUT && ['code', 'paragraph'].includes(one.kind)) {
        shown.push(shownBlock({ ...one, lines: [long.slice(0, room)] }));
        rest.push(shownBlock({ ...one, lines: [long.slice(room)] }));
      } else (room > 0 ? shown : rest).push(shownBlock(one));
      room -= long.length;
    }
    return folded(shown, rest, whole.length);
  }

  function media(part) {
    if (part.shown) {
      const image = h('img', { alt: `Image, ${part.shown}` });
      image.src = `data:${part.shown};base64,${text(part.data)}`;
      return image;
    }
    const known = [part.name, part.media, part.url, part.file].map(text).filter(Boolean).join(', ');
    const size = part.bytes ? `, ${count(part.bytes)} bytes` : '';
    return h('p', { class: 'file', dir: 'auto' }, visible(`${part.type}: ${known}${size}`));
  }

  // Words are Markdown, or JSON, or neither.
  function partOf(part, words) {
    switch (part.type) {
      case 'text': return words(text(part.text));
      case 'thinking': return [h('details', { class: 'thinking' }, h('summary', {}, 'Thinking'), ...prose(text(part.text)))];
      case 'redacted_thinking': return [h('p', { class: 'note' }, 'Thinking that only its provider can read')];
      case 'provider_block': return [h('details', {}, h('summary', {}, `Block of ${part.provider}`), ...block(pretty(text(part.text))))];
      default: return [media(part)];
    }
  }

  function contentOf(content, patch, words = prose) {
    if (patch) return [...block(patched(joined(content), patch), { class: 'seen' }), ...(content.parts || []).filter(part => part.type !== 'text').flatMap(part => partOf(part, words))];
    if (content.parts) return content.parts.flatMap(part => partOf(part, words));
    return content.text == null ? [] : words(text(content.text));
  }

  const json = string => block(pretty(string));

  // JSON with a line for each of its values, and every value as it was written: a number read and written again may be another one.
  function pretty(json) {
    if (!/^\s*[[{]/.test(json)) return json;
    try {
      JSON.parse(json);
    } catch (_) {
      return json;
    }
    const pieces = [];
    let [depth, at] = [0, 0];
    const line = () => pieces.push('\n', '  '.repeat(depth));
    const after = from => { while (/\s/.test(json[from])) from++; return from; };
    while (at < json.length) {
      const letter = json[at];
      let next = at + 1;
      if (letter === '"') {
        while (json[next] !== '"') next += json[next] === '\\' ? 2 : 1;
        next++;
        pieces.push(json.slice(at, next));
      } else if (letter === '{' || letter === '[') {
        next = after(next);
        pieces.push(letter);
        if (json[next] === '}' || json[next] === ']') pieces.push(json[next++]);
        else { depth++; line(); }
      } else if (letter === '}' || letter === ']') {
        depth--;
        line();
        pieces.push(letter);
      } else if (letter === ',') {
        pieces.push(letter);
        line();
      } else if (letter === ':') pieces.push(': ');
      else if (!/\s/.test(letter)) pieces.push(letter);
      at = next;
    }
    return pieces.join('');
  }

  function decisionOf(call) {
    if (call.decision) {
      const { approved, by, at, reason } = call.decision;
      const words = [approved ? 'Approved' : 'Denied', by != null ? `by ${visible(text(by))}` : '', `at ${clock(at)}`, reason != null ? `because: ${visible(text(reason))}` : ''];
      const line = h('p', { class: approved ? 'decision' : 'decision error' }, words.filter(Boolean).join(' '));
      const other = call.decision.arguments != null && h('div', {}, h('p', { class: 'note' }, 'with other arguments:'), ...json(text(call.decision.arguments)));
      return h('div', {}, line, other || '');
    }
    if (call.asked != null) return h('div', {}, h('p', { class: 'decision' }, 'Somebody has been asked to decide about a run with these arguments:'), ...json(text(call.asked)));
    return '';
  }

  function resultOf(item, call, slot) {
    if (!call.result) return h('p', { class: 'note' }, call.status === 'approved' ? 'Approved, not run yet' : 'No result yet');
    const isError = call.status !== 'ok';
    const heading = h('h4', {}, isError ? `Result: ${call.status}${call.error ? `, ${visible(call.error)}` : ''}` : 'Result');
    const notes = [];
    let shown = contentOf(call.result, item.seen && patchOf(item, slot), json);
    if (cleared(item, slot)) {
      if (item.seen) shown = block(text(item.of.view.cleared.text), { class: 'seen' });
      else notes.push(h('p', { class: 'note' }, 'Cleared for the model'));
    } else if (patchOf(item, slot) && !item.seen) notes.push(h('p', { class: 'note' }, 'The model sees other words'));
    return h('div', { class: isError ? 'result error' : 'result' }, heading, ...notes, ...shown);
  }

  function callOf(item, call, slot) {
    const agents = item.of.children.filter(one => one.within && one.within[1] === call.id);
    return h('div', { class: 'call', role: 'group', 'aria-label': `Call of ${visible(call.name)}` },
      h('h3', {}, ...marked(visible(call.name)), h('span', { class: 'note' }, ` ${visible(call.id)}${call.kind ? `, ${call.kind}` : ''}${call.ran ? `, ran ${span(length(call.ran))}` : ''}`)),
      ...json(text(call.arguments)),
      decisionOf(call),
      resultOf(item, call, slot),
      ...agents.map(agentOf));
  }

  // A sub-agent's conversation under the call that it was made for.
  function agentOf(agent) {
    const words = `Sub-agent ${nameOf(agent)}, ${plural(agent.all.length, 'iteration')}, ${outcomeOf(agent).words}`;
    const inside = h('div', { class: 'agent' });
    return h('details', {
      ontoggle: event => {
        if (event.target.open && !inside.firstChild) {
          const items = itemsOf(agent, state.seen);
          inside.append(...items.slice(0, INLINE).map(item => itemOf(item)), button('Open its conversation', () => open(agent)));
        }
      },
    }, h('summary', {}, words), inside);
  }

  // ---- what was asked

  const isAsked = iteration => iteration.failures != null || iteration.says.some(entry => entry.asked);
  function requestOf(of, number) {
    const since = (of.requests || []).filter(one => one.since <= number).at(-1);
    return since && { fields: JSON.parse(text(since.fields) || '{}'), tools: JSON.parse(text(since.tools) || '[]') };
  }

  const viewAt = (of, number) => Math.max(0, of.views.findIndex(view => view.from <= number && number <= view.to));
  const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

  // What a request has otherwise than the one before it.
  function differences(of, iteration) {
    const before = of.all.slice(0, of.all.indexOf(iteration)).reverse().find(isAsked);
    if (!before) return ['the first request'];
    const [now, then] = [requestOf(of, iteration.number), requestOf(of, before.number)];
    const words = [];
    const flat = ({ fields }) => new Map(Object.entries({ ...fields, ...fields.body }).filter(([key]) => key !== 'body'));
    const [fields, others] = [flat(now), flat(then)];
    for (const key of new Set([...fields.keys(), ...others.keys()])) {
      if (!same(fields.get(key), others.get(key))) words.push(`${key}: ${JSON.stringify(others.get(key)) || 'nothing'} \u2192 ${JSON.stringify(fields.get(key)) || 'nothing'}`);
    }
    const named = tools => new Map(tools.map(tool => [tool.name, tool]));
    const [tools, earlier] = [named(now.tools), named(then.tools)];
    for (const [name, tool] of tools) if (!earlier.has(name)) words.push(`tool ${name} is new`); else if (!same(tool, earlier.get(name))) words.push(`tool ${name} is another one`);
    for (const name of earlier.keys()) if (!tools.has(name)) words.push(`tool ${name} is gone`);
    if (viewAt(of, iteration.number) !== viewAt(of, before.number)) words.push('another view of the messages');
    const [from, to] = [of.all.indexOf(before), of.all.indexOf(iteration)];
    const between = of.all.slice(from, to + 1).flatMap(one => one.says.filter(entry => (one !== before || entry.role === 'assistant') && (one !== iteration || entry.role !== 'assistant')));
    const results = between.flatMap(entry => entry.calls || []).filter(call => call.result).length;
    words.push(`${plural(between.length, 'message')} more${results ? `, with ${plural(results, 'result')}` : ''}`);
    return words;
  }

  function askedOf(item) {
    const { of, iteration, entry } = item;
    if (!entry.asked || !(of.requests || []).some(one => one.since <= iteration.number)) return '';
    const inside = h('div', { class: 'request' });
    const fill = () => {
      if (inside.firstChild) return;
      const now = requestOf(of, iteration.number);
      inside.append(
        h('p', { class: 'note' }, 'Otherwise than the request before:'),
        h('ul', {}, ...differences(of, iteration).map(words => h('li', { dir: 'auto' }, visible(words).slice(0, CUT)))),
        h('p', { class: 'note' }, 'Whom was asked, and the fields of the body beside messages and tools:'), ...json(JSON.stringify(now.fields)),
        h('p', { class: 'note' }, plural(now.tools.length, 'tool')), ...now.tools.map(tool => h('details', {}, h('summary', {}, visible(String(tool.name))), ...json(JSON.stringify(tool)))),
        button('Show its messages', () => showRequest(item)));
    };
    return h('details', { ontoggle: event => event.target.open && fill() }, h('summary', {}, 'What was asked'), inside);
  }

  const LABELS = { user: 'User', assistant: 'Assistant', system: 'System' };

  function headOf(item) {
    const { iteration, entry } = item;
    const notes = [`iteration ${iteration.number}`];
    if (entry === iteration.says[0]) notes.push(clock(iteration.from), tookOf(item.of, iteration));
    if (entry.asked) notes.push(`answered in ${span(asked(entry))}${entry.first ? `, began after ${span(length([entry.asked[0], entry.first]))}` : ''}`);
    if (entry.model) notes.push(entry.model);
    const usage = usageWords(usageOf([entry]));
    if (usage) notes.push(usage);
    if (entry.finish && !['stop', 'tool_calls'].includes(entry.finish)) notes.push(`ended: ${entry.finish}`);
    return h('header', {}, h('h2', { id: `${item.key}-head` }, LABELS[entry.role]),
      h('span', { class: 'note', dir: 'auto' }, visible(notes.join(' \u00b7 '))),
      h('a', { href: `#${item.key}`, class: 'link', 'aria-label': `Link to this message of iteration ${iteration.number}` }, '#'));
  }

  // What became of the request at the prompt cache, where less was read than could have been.
  function cacheOf(entry) {
    if (!entry.cache || !entry.cache.line) return '';
    const lost = entry.cache.avoidable ? ` (${money(entry.cache.avoidable / 1e12)} more)` : '';
    return h('p', { class: 'note cache', dir: 'auto' }, `Prompt cache: ${visible(entry.cache.line)}${lost}`);
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
      return h('article', { ...attributes, 'aria-label': 'System prompt' }, h('header', {}, h('h2', {}, 'System'), note), ...contentOf(item.content));
    }
    if (item.kind === 'failure') {
      return h('article', { ...attributes, 'aria-label': 'Failed request' }, h('header', {}, h('h2', {}, 'Failed request'), h('span', { class: 'note' }, `iteration ${item.iteration.number} \u00b7 ${clock(item.content.at)}`)),
        h('div', { class: 'error' }, ...block(text(item.content.text))));
    }
    if (item.kind === 'cover') {
      return h('article', { ...attributes, 'aria-label': coverWords(item.cover) }, h('header', {}, h('h2', {}, coverWords(item.cover))), ...(item.cover.summary ? contentOf(item.cover.summary) : []));
    }
    const { entry } = item;
    attributes.class += ` ${entry.role}${item.cover ? ' covered' : ''}`;
    attributes['aria-labelledby'] = `${item.key}-head`;
    return h('article', attributes, headOf(item),
      item.cover ? h('p', { class: 'note' }, coverWords(item.cover)) : '',
      askedOf(item),
      cacheOf(entry),
      ...contentOf(entry, item.seen && patchOf(item)),
      entry.details != null ? h('details', {}, h('summary', {}, `Details of ${entry.provider}`), ...json(text(entry.details))) : '',
      entry.interrupted != null ? h('p', { class: 'error', dir: 'auto' }, `Broke off: ${visible(text(entry.interrupted))}`) : '',
      axisOf(entry),
      entry.calls ? h('div', { class: 'calls' }, ...entry.calls.map((call, slot) => callOf(item, call, slot))) : '');
  }

  // Calls that ran beside each other, on one axis.
  function axisOf(entry) {
    const ran = (entry.calls || []).filter(call => call.ran);
    if (ran.length < 2) return '';
    const from = Math.min(...ran.map(call => call.ran[0]));
    const whole = Math.max(1, ...ran.map(call => call.ran[1] - from));
    const row = call => h('li', {}, h('span', {}, visible(call.name)), h('span', { class: 'note' }, `${span(call.ran[0] - from)} to ${span(call.ran[1] - from)}`), bar([['none', (call.ran[0] - from) / whole], [call.status === 'ok' ? 'tools' : 'bad', length(call.ran) / whole]]));
    return h('ul', { class: 'axis', 'aria-label': 'When the calls ran' }, ...ran.map(row));
  }

  // ---- the list of messages: all of them are in the document, and the browser lays out what is seen

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
      const fresh = [];
      for (let index = this.made.length; index < end; index++) {
        const element = itemOf(this.items[index]);
        element.setAttribute('aria-posinset', index + 1);
        element.setAttribute('aria-setsize', this.items.length);
        this.made.push(element);
        fresh.push(element);
      }
      this.element.append(...fresh);
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

  // How a conversation stands, and when it came to that.
  function outcomeOf(of) {
    const last = of.all.at(-1);
    const entry = last && last.says.at(-1);
    const failure = last && (last.failures || []).at(-1);
    const waiting = (entry && entry.calls || []).find(call => !call.result);
    if (waiting) return { words: waiting.asked != null || waiting.decision == null && waiting.status === 'pending' && of.all.some(iteration => callsOf(iteration).some(call => call.decision)) ? 'waits for a decision' : 'waits for results', at: of.updated };
    if (failure && !(entry && entry.asked && entry.asked[1] >= failure.at)) return { words: `failed: ${failure.kind.replaceAll('_', ' ')}`, at: failure.at, bad: true };
    if (!entry) return { words: of.all.length > 1 ? 'waits for the model' : 'empty', at: of.updated };
    if (entry.interrupted != null) return { words: 'broke off', at: entry.asked ? entry.asked[1] : of.updated, bad: true };
    if (entry.role === 'assistant') return { words: 'answered', at: entry.asked ? entry.asked[1] : last.to || of.updated };
    return { words: 'waits for the model', at: of.updated };
  }

  // How long an iteration took. The last one is complete when the next message comes, which need not happen.
  function endOf(of, iteration) {
    if (iteration.to != null) return iteration.to;
    const entry = iteration.says.at(-1);
    const isOver = entry && entry.role === 'assistant' && (entry.calls || []).every(call => call.result);
    if (isOver) return entry.asked ? entry.asked[1] : of.updated;
    const failure = (iteration.failures || []).at(-1);
    return failure ? failure.at : null;
  }

  function tookOf(of, iteration) {
    const end = endOf(of, iteration);
    return end == null ? outcomeOf(of).words : span(Math.max(0, end - iteration.from));
  }

  const isBad = call => !['ok', 'pending', 'approved'].includes(call.status);

  function timeline(of) {
    const rows = of.all.map((iteration, index) => {
      const before = of.all[index - 1];
      const waited = before && before.to != null && iteration.turn === iteration.number ? Math.max(0, iteration.from - before.to) : 0;
      const end = endOf(of, iteration);
      return { of, iteration, waited, took: end == null ? 0 : Math.max(0, end - iteration.from) };
    });
    const most = rows.reduce((max, row) => Math.max(max, row.took), 1);
    return { rows, most };
  }

  // The first words of somebody, and the tools that were called: what one looks for at night.
  const begin = entry => visible(joined(entry).slice(0, 1000)).replace(/[#*`]+/g, '').trim().replace(/\s+/g, ' ').slice(0, 80);
  function whatOf(iteration) {
    const words = [];
    const user = iteration.says.find(entry => entry.role === 'user');
    if (user) words.push(`\u201c${begin(user)}\u201d`);
    const called = new Map();
    for (const call of callsOf(iteration)) called.set(call.name, (called.get(call.name) || 0) + 1);
    if (called.size) words.push([...called].map(([name, times]) => (times > 1 ? `${visible(name)} \u00d7${times}` : visible(name))).join(', '));
    const answer = iteration.says.find(entry => entry.role === 'assistant' && begin(entry));
    if (answer) words.push(begin(answer));
    return words.join(' \u2192 ');
  }

  function timeRow({ of, iteration, took, waited }, most) {
    const { model, people, tools } = spent(iteration);
    const failed = callsOf(iteration).some(isBad) || iteration.says.some(entry => entry.interrupted != null) || iteration.failures != null;
    const words = [tookOf(of, iteration)];
    if (model) words.push(`model ${span(model)}`);
    if (people >= 1000) words.push(`${span(people)} of waiting for a decision`);
    if (tools) words.push(`tools ${span(tools)}`);
    if (waited >= 1000) words.push(`after ${span(waited)} of waiting for the user`);
    if (coverOf(of, iteration.number)) words.push('not in view');
    if (iteration.failures) words.push(...new Set(iteration.failures.map(failure => failure.kind.replaceAll('_', ' '))));
    else if (failed) words.push('error');
    return h('div', { role: 'listitem' }, button(h('span', {}, h('b', {}, String(iteration.number)), ` ${clock(iteration.from).slice(11)} ${words.join(', ')}`), () => jump(iteration.number), { class: failed ? 'row failed' : 'row' }),
      h('p', { class: 'what', dir: 'auto' }, whatOf(iteration)), bar([['model', model / most], ['people', people / most], ['tools', tools / most], [failed ? 'bad' : 'took', Math.max(0, took - model - people - tools) / most]]));
  }

  const requestsOf = of => of.all.flatMap(iteration => iteration.says.filter(entry => entry.usage).map(entry => ({ of, iteration, entry, usage: usageOf([entry]) })));

  function requestRow({ of, iteration, entry, usage }, most, dearest) {
    const { input, cached, written, output, cost } = usage;
    const share = input ? ` (${Math.round(cached / input * 100)}% cached)` : '';
    const words = `${count(input)} in${share}, ${count(output)} out${cost == null ? '' : `, ${money(cost)}`}`;
    const bars = [bar([['cached', cached / most], ['written', written / most], ['input', Math.max(0, input - cached - written) / most], ['output', output / most]])];
    if (cost != null) bars.push(bar([['cost', cost / dearest]]));
    const to = () => list.go(find(item => item.key === anchor(of, iteration, entry)));
    return h('div', { role: 'listitem' }, button(h('span', {}, h('b', {}, String(iteration.number)), ` ${words}`), to, { class: 'row', title: usageWords(usage) }), h('p', { class: 'what' }, [entry.model, entry.asked && span(asked(entry))].filter(Boolean).join(' \u00b7 ')), ...bars);
  }

  function tree(roots) {
    return h('ul', {}, ...roots.map(one => {
      const words = one.within ? `sub-agent${one.tool ? ` (${visible(one.name)})` : ''}, ${plural(one.all.length, 'iteration')}` : one.origin ? `from iteration ${one.origin[1]}, ${plural(one.all.length, 'iteration')}` : plural(one.all.length, 'iteration');
      return h('li', {}, button(h('span', { dir: 'auto' }, nameOf(one)), () => open(one), { 'aria-current': one === state.of ? 'true' : null }), h('span', { class: 'note' }, ` ${words}`), one.children.length ? tree(one.children) : '');
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
      return h('section', { 'aria-label': `Only in ${visible(of.name)}` }, h('h2', {}, visible(of.name)), ...(shown.length ? shown : [h('p', { class: 'note' }, 'Nothing more')]), rest);
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

  const told = h('p', { class: 'note', dir: 'auto' });
  const next = button('', () => nextError(), { hidden: true });
  const status = h('p', { role: 'status', 'aria-live': 'polite', class: 'note' });
  const feed = h('div', { role: 'feed', 'aria-label': 'Messages', class: 'feed' });
  const list = new List(feed);
  const panel = h('div', { class: 'panel' });
  const search = h('input', { type: 'search', name: 'search', 'aria-label': 'Search in all messages', placeholder: 'Search  ( / )', oninput: () => { clearTimeout(search.timer); search.timer = setTimeout(update, 150); } });
  const filter = h('select', { name: 'show', 'aria-label': 'Show', onchange: update }, ...Object.entries(FILTERS).map(([name, [label]]) => h('option', { value: name }, label)));
  const switched = button('', () => { state.seen = !state.seen; state.until = null; update(); }, { class: 'switch', 'aria-pressed': 'false' });
  // Which request's view is shown; the first is that of the next request.
  const which = h('select', { name: 'view', 'aria-label': 'What the model saw in', onchange: () => { state.until = null; update(); } });
  const receipt = h('p', { class: 'note', dir: 'auto', hidden: true });
  const side = h('nav', { 'aria-label': 'Overview', class: 'side' });

  const viewWords = view => {
    if (view.to == null) return 'as of now';
    return view.from === view.to ? `request of iteration ${view.from}` : `requests of iterations ${view.from} to ${view.to}`;
  };

  // What the chosen view does not show, and where that is for the model; a text of the data is shown as it is.
  const receiptWords = view => {
    const words = [];
    const hidden = view.covers.filter(cover => !cover.verdict).length;
    if (hidden) words.push(`${plural(hidden, 'range')} of iterations not in view`);
    for (const { kind, cause, at, first, last } of view.shortened || []) words.push(`${first} to ${last} ${kind} since iteration ${at}: ${cause === 'window' ? 'the request was longer than the model’s window' : 'the provider refused the request as too long'}`);
    if (view.receipt) {
      const { visible: seen, recall, masked, gone, facts } = view.receipt;
      if (seen + recall + masked + gone) words.push(`of the facts not shown where they were said, ${seen} visible elsewhere, ${recall} one recall away, ${masked} masked, ${gone} gone${facts.length ? `: ${facts.map(visible).join('; ')}${recall + gone > facts.length ? ' …' : ''}` : ''}`);
    }
    for (const { verdict } of view.covers) if (verdict) words.push(`a summary has ${verdict.kept} of ${plural(verdict.facts, 'fact')}${verdict.wrong.length ? ` and says what is not there: ${verdict.wrong.map(visible).join('; ')}` : ''}`);
    if (view.pins) words.push(`pinned: ${view.pins.map(visible).join('; ')}`);
    const recalls = state.of.all.filter(one => view.to == null || (view.from <= one.number && one.number <= view.to)).reduce((sum, one) => sum + callsOf(one).filter(call => call.name === 'recall').length, 0);
    if (recalls) words.push(plural(recalls, 'recall'));
    return words.join(' · ');
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
    receipt.textContent = state.seen ? receiptWords(state.of.view) : '';
    receipt.hidden = !receipt.textContent;
    const shown = plural(state.items.length, 'message');
    const of = state.until ? ` in the request of iteration ${state.until[0]}` : '';
    status.textContent = (state.query || state.show !== 'all' ? `${shown} found` : shown) + of;
  }

  // The messages of a request, as the model read them.
  function showRequest({ of, iteration, entry }) {
    if (of !== state.of) open(of);
    state.seen = true;
    state.until = [iteration.number, entry.at];
    which.value = viewAt(of, iteration.number);
    update();
    list.go(Math.max(0, state.items.length - 1));
  }

  function open(of) {
    state.until = null;
    state.of.view = state.of.views[0];
    state.of = of;
    choices();
    summary(of);
    overview();
    update();
    window.scrollTo(0, 0);
  }

  // Where an item is, if it has to be also without the search and the filter.
  function find(isIt) {
    const at = state.items.findIndex(isIt);
    if (at >= 0 || !state.query && state.show === 'all') return at;
    unfilter();
    return state.items.findIndex(isIt);
  }

  function jump(number) {
    const at = find(item => (item.kind === 'cover' ? item.cover.first <= number && number <= item.cover.last : item.iteration && item.iteration.number >= number));
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
    const isIt = item => `#${item.key}` === location.hash;
    let at = find(isIt);
    if (at < 0 && state.seen) { state.seen = false; update(); at = find(isIt); }
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
    if (state.of.all.some(isAsked)) panel.append(h('p', { class: 'legend' }, ...['model', 'people', 'tools', 'took'].map(name => h('span', { class: name }, name === 'took' ? 'rest' : name))));
    new Rows(panel, row => timeRow(row, most)).show(rows);
  }

  function tokens() {
    const requests = requestsOf(state.of);
    if (!requests.length) panel.append(h('p', { class: 'note' }, 'No tokens were reported.'));
    const most = requests.reduce((max, { usage }) => Math.max(max, usage.input + usage.output), 1);
    const dearest = requests.reduce((max, { usage }) => Math.max(max, usage.cost || 0), 1e-9);
    panel.append(h('p', { class: 'legend' }, ...['cached', 'written', 'input', 'output', 'cost'].map(name => h('span', { class: name }, name))));
    new Rows(panel, row => requestRow(row, most, dearest)).show(requests);
  }

  // What became of the conversation, in a line.
  function summary(of) {
    const entries = of.all.flatMap(iteration => iteration.says);
    const outcome = outcomeOf(of);
    const failed = of.all.reduce((sum, iteration) => sum + (iteration.failures || []).reduce((all, failure) => all + (failure.count || 1), 0), 0);
    const calls = of.all.flatMap(callsOf);
    const errors = failed + calls.filter(isBad).length;
    const models = [...new Set(entries.map(entry => entry.model).filter(Boolean))].map(visible);
    const usage = usageOf(entries);
    const facts = [
      errors ? h('span', { class: 'error' }, plural(errors, 'error')) : 'no errors',
      plural(of.all.length, 'iteration'), plural(calls.length, 'call'),
      models.join(', '), `${span(Math.max(0, outcome.at - of.created))} in all`, usageWords(usage),
    ];
    const masked = of.view.masks ? [`${plural(of.view.masks, 'mask')} in force`] : [];
    const line = [h('strong', { class: outcome.bad ? 'error' : '' }, outcome.words), ...facts, ...masked, `begun ${clock(of.created)}, last changed ${clock(of.updated)} (${zone})`];
    told.replaceChildren(...line.filter(Boolean).flatMap((one, index) => (index ? [' \u00b7 ', one] : [one])));
    next.hidden = !errors;
    next.textContent = `Next of ${plural(errors, 'error')} ( e )`;
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
  window.addEventListener('hashchange', follow);
  // Paper has no summaries to click on.
  let closed = [];
  window.addEventListener('beforeprint', () => {
    list.make(list.items.length);
    closed = [...document.querySelectorAll('#messages details:not([open])')];
    for (const one of closed) one.open = true;
  });
  window.addEventListener('afterprint', () => { for (const one of closed) one.open = false; });

  document.body.prepend(
    h('a', { href: '#messages', class: 'skip' }, 'Skip to the messages'),
    h('header', { class: 'top' }, h('h1', { dir: 'auto' }, document.title), told),
    h('div', { class: 'bar', role: 'search' }, search, filter, switched, which, next, button('Keys', () => help.showModal()), status),
    receipt,
    h('div', { class: 'page' }, side, h('main', { id: 'messages', tabindex: '-1' }, feed)),
    help);
  document.getElementById('readable').remove();
  choices();
  summary(state.of);
  overview();
  update();
  follow();
})();

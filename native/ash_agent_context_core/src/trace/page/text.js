// Texts as they are, and Markdown in blocks that are made of text nodes. The rest of a long one waits for a click.

const CUT = 1500; // characters of a text that are shown at first
const PROSE = 100000; // characters of a text that are looked through for Markdown

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

// The page: its bar, its side and its keys.

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

// A message of the list, with its head and its notes.

const LABELS = { user: 'User', assistant: 'Assistant', system: 'System' };

function headOf(item) {
  const { iteration, entry } = item;
  const notes = [`iteration ${iteration.number}, message ${entry.at + 1}`];
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
  const article = (label, heading, note, ...inside) => h('article', { ...attributes, 'aria-label': label },
    h('header', {}, h('h2', {}, heading), note && h('span', { class: 'note' }, note)), ...inside);
  if (item.kind === 'system') {
    const blocks = state.seen ? item.of.view.blocks : [];
    return article('System prompt', 'System', blocks.length ? `with ${blocks.map(visible).join(', ')}` : '', ...contentOf(item.content));
  }
  if (item.kind === 'failure') return article('Failed request', 'Failed request', `iteration ${item.iteration.number} \u00b7 ${clock(item.content.at)}`, h('div', { class: 'error' }, ...block(text(item.content.text))));
  if (item.kind === 'cover') return article(coverWords(item.cover), coverWords(item.cover), '', ...(item.cover.summary ? contentOf(item.cover.summary) : []));
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

// What was asked for an answer, and what differs from the request before.

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

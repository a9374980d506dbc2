// How long things took and what they cost, in bars.

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
  if (waiting) return { words: waiting.was_asked || waiting.decision == null && waiting.status === 'pending' && of.all.some(iteration => callsOf(iteration).some(call => call.decision)) ? waiting.question ? 'waits for an answer' : 'waits for a decision' : 'waits for results', at: of.updated };
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

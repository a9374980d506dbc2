// The conversations of the script tag "data", and what a list of their messages shows.

const conversations = data.conversations;
for (const [index, one] of conversations.entries()) {
  const origin = one.origin && conversations[one.origin[0]];
  one.index = index;
  one.all = origin ? origin.all.slice(0, one.origin[1]).concat(one.iterations) : one.iterations;
  one.children = [];
  // The view of now, and those that requests were made from.
  one.views = [one.view || { covers: [], seen: {}, blocks: [] }, ...(one.asked || [])];
  for (const view of one.views) view.seen ||= one.views[view.as].seen;
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
  of.byCall ||= new Map(of.all.flatMap(callsOf).map(call => [call.id, call.name]));
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

const USAGE = { input: 'tokens in', cached: 'of them from the cache', written: 'written to it', output: 'out', reasoning: 'of them thought' };

function usageOf(entries) {
  const sum = { cost: null };
  for (const key of Object.keys(USAGE)) sum[key] = entries.reduce((all, { usage }) => all + (usage?.[key] ?? 0), 0);
  for (const { cost } of entries) if (cost != null) sum.cost += cost / 1e12;
  return sum;
}

function usageWords(usage) {
  const words = Object.keys(USAGE).filter(key => usage[key]).map(key => `${count(usage[key])} ${USAGE[key]}`);
  return [...words, ...(usage.cost == null ? [] : [money(usage.cost)])].join(', ');
}

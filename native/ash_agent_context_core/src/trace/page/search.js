// Which messages are searched for or chosen by a filter.

const state = { of: conversations.find(one => one.active) || conversations[0], seen: false, query: '', show: 'all', items: [] };

const FILTERS = {
  all: ['Everything', () => true],
  user: ['User', item => item.kind === 'message' && item.entry.role === 'user'],
  assistant: ['Assistant', item => item.kind === 'message' && item.entry.role === 'assistant'],
  tools: ['Tool calls', item => item.entry && item.entry.calls],
  errors: ['Errors and interruptions', item => item.kind === 'failure' || item.entry && (item.entry.interrupted != null || (item.entry.calls || []).some(isBad))],
  decisions: ['Decisions', item => item.entry && (item.entry.calls || []).some(call => call.decision || call.was_asked)],
  changed: ['What a model sees otherwise', item => item.kind === 'cover' || item.cover || isChanged(item)],
};

function isChanged(item) {
  if (item.kind !== 'message') return false;
  return patchOf(item) || (item.entry.calls || []).some((call, slot) => call.result && (cleared(item, slot) || patchOf(item, slot)));
}

// Everything that is said has its text in these fields.
const SAID = ['text', 'arguments', 'name', 'reason', 'by', 'interrupted', 'details', 'url', 'id', 'asked'];
function isFound(node, found, pattern) {
  return Object.entries(node).some(([key, value]) => {
    if (value && typeof value === 'object') return isFound(value, found, pattern);
    const isSaid = SAID.includes(key);
    return isSaid && (typeof value === 'number' ? found.has(value) : typeof value === 'string' && pattern.test(value));
  });
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

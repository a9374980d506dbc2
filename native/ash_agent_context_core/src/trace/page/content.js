// The parts of a message, its calls and their results.

const INLINE = 50; // messages of a sub-agent that are shown under its call

function media(part) {
  if (part.shown) {
    const image = h('img', { alt: `Image, ${text(part.media) || part.shown}` });
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
  } catch {
    return json;
  }
  let depth = 0;
  const line = () => `\n${'  '.repeat(depth)}`;
  return json.match(/"[^"\\]*(?:\\.[^"\\]*)*"|\[\s*\]|\{\s*\}|[[\]{}:,]|[^\s"[\]{}:,]+/g).map(token => {
    if (token === ':') return ': ';
    if (token === ',') return `,${line()}`;
    if (token === '{' || token === '[') { depth++; return token + line(); }
    if (token === '}' || token === ']') { depth--; return line() + token; }
    return '{['.includes(token[0]) ? token[0] + token.at(-1) : token;
  }).join('');
}

function decisionOf(call) {
  if (call.decision) {
    const { approved, answered, by, at, reason } = call.decision;
    const words = [answered ? 'Answered' : approved ? 'Approved' : 'Denied', by != null ? `by ${visible(text(by))}` : '', `at ${clock(at)}`, reason != null ? `because: ${visible(text(reason))}` : ''];
    const line = h('p', { class: approved ? 'decision' : 'decision error' }, words.filter(Boolean).join(' '));
    const other = call.decision.arguments != null && h('div', {}, h('p', { class: 'note' }, answered ? 'to this question:' : 'with other arguments:'), ...json(text(call.decision.arguments)));
    const edited = call.decision.edited != null && h('div', {}, h('p', { class: 'note' }, 'to run with arguments that a person changed:'), ...json(text(call.decision.edited)));
    return h('div', {}, line, other || '', edited || '');
  }
  if (call.asked != null) return h('div', {}, h('p', { class: 'decision' }, call.question ? 'Somebody has been asked this:' : 'Somebody has been asked to decide about a run with these arguments:'), ...json(text(call.asked)));
  if (call.was_asked) return h('p', { class: 'decision' }, call.question ? 'Somebody has been asked' : 'Somebody has been asked to decide about this call');
  return '';
}

function resultOf(item, call, slot) {
  if (!call.result) return h('p', { class: 'note' }, call.status === 'approved' ? 'Approved, not run yet' : 'No result yet');
  if (call.status === 'waiting') {
    const { for: whom, until, question } = call.waiting;
    const line = h('p', { class: 'note' }, ['Answered later', whom != null ? `by ${visible(text(whom))}` : '', until != null ? `until ${clock(until)}` : ''].filter(Boolean).join(' '));
    return question == null ? line : h('div', {}, line, h('p', { class: 'decision' }, 'Somebody has been asked this:'), ...json(text(question)));
  }
  const isError = call.status !== 'ok';
  const heading = h('h4', {}, isError ? `Result: ${call.status}${call.error ? `, ${visible(call.error)}` : ''}` : 'Result');
  const notes = [];
  let shown = contentOf(call.result, item.seen && patchOf(item, slot), json);
  if (cleared(item, slot)) {
    if (item.seen) shown = block(text(item.of.view.cleared.text), { class: 'seen' });
    else notes.push(h('p', { class: 'note' }, 'Cleared for the model'));
  } else if (patchOf(item, slot) && !item.seen) notes.push(h('p', { class: 'note' }, 'The model sees other words'));
  if (call.arrived) notes.push(h('p', { class: 'note' }, `Arrived at ${clock(call.arrived.at)}${call.arrived.from != null ? ` from ${visible(text(call.arrived.from))}` : ''}${call.arrived.awaited_by != null ? `, the call ${visible(call.arrived.awaited_by)} waited for it` : ''}`));
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

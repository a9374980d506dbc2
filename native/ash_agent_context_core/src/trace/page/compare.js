// The tree of conversations, and a comparison of two.

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

// The body that is sent next.

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

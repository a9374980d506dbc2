// Elements, and the words for numbers, times and money. What a conversation holds only ever becomes text nodes and, for images,
// data URLs; the page's policy forbids anything else.

const data = JSON.parse(document.getElementById('data').textContent);

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child != null && child !== ''));
  return element;
}

const button = (label, onclick, attributes) => h('button', { type: 'button', onclick, ...attributes }, label);
const text = ref => (typeof ref === 'number' ? data.texts[ref] : ref || '');
const count = number => number.toLocaleString('en');
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? '' : 's'}`;
// Times are those of the reader's clock.
const padded = number => String(number).padStart(2, '0');
function clock(at) {
  const time = new Date(at);
  const day = [time.getFullYear(), time.getMonth() + 1, time.getDate()].map(padded).join('-');
  return `${day} ${[time.getHours(), time.getMinutes(), time.getSeconds()].map(padded).join(':')}`;
}
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || 'local time';

function span(millis) {
  if (millis < 1000) return `${millis} ms`;
  if (millis < 60000) return `${(millis / 1000).toFixed(1)} s`;
  if (millis < 3600000) return `${Math.floor(millis / 60000)} min ${Math.floor(millis / 1000) % 60} s`;
  return `${Math.floor(millis / 3600000)} h ${Math.floor(millis / 60000) % 60} min`;
}

const length = ([from, to]) => Math.max(0, to - from);
const asked = entry => (entry.asked ? length(entry.asked) : 0);

const money = cost => `$${cost.toFixed(cost < 1 ? 4 : 2)}`;

// Characters that would turn a text round, or that cannot be seen, get a sign. Joiners within a script or a picture that needs them, and
// the one selector behind a picture, are left.
const HIDDEN = /[\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u00ad\u034f\u115f\u1160\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/gu;
const sign = letter => `\u27e6U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}\u27e7`;
const isSeen = letter => letter !== undefined && letter > '\x7f' && !letter.match(HIDDEN);
function signed(letter, at, whole) {
  const before = whole.codePointAt(at - 2) > 0xffff ? String.fromCodePoint(whole.codePointAt(at - 2)) : whole[at - 1];
  const after = at + letter.length < whole.length ? String.fromCodePoint(whole.codePointAt(at + letter.length)) : undefined;
  const isVariant = letter >= '\ufe00' && letter <= '\ufe0f' || letter >= '\u{e0100}' && letter.length === 2;
  if (isVariant && isBase(before)) return letter;
  const isJoiner = letter === '\u200c' || letter === '\u200d';
  if (isJoiner && (isSeen(before) || before === '\ufe0f') && isSeen(after)) return letter;
  return sign(letter);
}
// What a variant can be of: letters and pictures, and the digits of keys.
const isBase = letter => isSeen(letter) || letter !== undefined && /[0-9#*]/.test(letter);
const visible = string => string.replaceAll('\r\n', '\n').replace(HIDDEN, signed);

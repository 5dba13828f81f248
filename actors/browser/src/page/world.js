// Runs in a world of its own beside the page's scripts, which cannot change what it uses.

const failed = (why, about) => ({ failed: why, about: about || '' });

const describe = (el) => {
  let text = el.localName || 'document';
  if (el.id) text += '#' + el.id;
  if (typeof el.className === 'string' && el.className.trim()) {
    text += '.' + el.className.trim().split(/\s+/).slice(0, 3).join('.');
  }
  const label = (el.getAttribute && el.getAttribute('aria-label')) || el.innerText || '';
  const shown = label.trim().replace(/\s+/g, ' ').slice(0, 40);
  return text.slice(0, 100) + (shown ? ' "' + shown + '"' : '');
};

// Calls `each` with every document, open shadow root and document of a frame of the same origin.
const roots = (root, each) => {
  if (each(root)) return true;
  for (const el of root.querySelectorAll('*')) {
    if (el.shadowRoot && roots(el.shadowRoot, each)) return true;
    if (el.localName === 'iframe' || el.localName === 'frame') {
      let inner = null;
      try { inner = el.contentDocument; } catch { /* of another origin */ }
      if (inner && roots(inner, each)) return true;
    }
  }
  return false;
};

const find = (selector, most) => {
  const found = [];
  roots(document, (root) => {
    for (const el of root.querySelectorAll(selector)) {
      found.push(el);
      if (found.length >= most) return true;
    }
    return false;
  });
  return found;
};

// Where a point of a frame is in the page: the sum of the frames around it.
const offset = (view) => {
  let [x, y] = [0, 0];
  for (let frame = view.frameElement; frame; frame = frame.ownerDocument.defaultView.frameElement) {
    const box = frame.getBoundingClientRect();
    const style = frame.ownerDocument.defaultView.getComputedStyle(frame);
    x += box.left + frame.clientLeft + parseFloat(style.paddingLeft);
    y += box.top + frame.clientTop + parseFloat(style.paddingTop);
  }
  return [x, y];
};

const box = (el) => {
  const { left, top, width, height } = el.getBoundingClientRect();
  const [x, y] = offset(el.ownerDocument.defaultView);
  return { x: left + x, y: top + y, width, height };
};

const seen = (el) => {
  const { width, height } = el.getBoundingClientRect();
  return el.checkVisibility({ visibilityProperty: true }) && (width > 0 || el.getClientRects().length > 0);
};

const above = (node) => node.parentNode || (node.nodeType === 11 ? node.host : null);

// True if a hit on `hit` is one on `el`: it is within, also of a shadow root, or a label of it.
const owns = (el, hit) => {
  for (let node = hit; node; node = above(node)) {
    if (node === el || (node.localName === 'label' && node.control === el)) return true;
  }
  return false;
};

// The shadow root of a host: an open one, or a closed one that holds `el`.
const shadow = (host, el) => {
  for (let node = host.shadowRoot ? null : el; node; node = above(node)) {
    if (node.nodeType === 11 && node.host === host) return node;
  }
  return host.shadowRoot;
};

// What a click at a point hits, as far as it can be looked into on the way to `el`.
const deepest = (el, x, y) => {
  let hit = el.ownerDocument.elementFromPoint(x, y);
  for (;;) {
    const root = hit && shadow(hit, el);
    const inner = root && root.elementFromPoint(x, y);
    if (!inner || !root.contains(inner)) return hit;
    hit = inner;
  }
};

// The point to click at, in the page, if nothing covers it there.
const point = (el) => {
  const rect = [...el.getClientRects()].find((it) => it.width > 0 && it.height > 0);
  if (!rect) return failed('hidden', describe(el));
  let [node, view] = [el, el.ownerDocument.defaultView];
  const middle = (from, to, end) => (Math.max(from, 0) + Math.min(to, end)) / 2;
  let x = middle(rect.left, rect.right, view.innerWidth);
  let y = middle(rect.top, rect.bottom, view.innerHeight);
  for (;;) {
    const hit = deepest(node, x, y);
    if (!hit) return failed('outside', describe(el));
    if (!owns(node, hit)) return failed('covered', describe(hit));
    const frame = view.frameElement;
    if (!frame) return { x, y };
    const outer = frame.getBoundingClientRect();
    const style = frame.ownerDocument.defaultView.getComputedStyle(frame);
    x += outer.left + frame.clientLeft + parseFloat(style.paddingLeft);
    y += outer.top + frame.clientTop + parseFloat(style.paddingTop);
    [node, view] = [frame, frame.ownerDocument.defaultView];
  }
};

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
// A frame that does not come is one in which nothing moves: the page is not drawn.
const frame = () => new Promise((done) => {
  const late = setTimeout(done, 2000);
  requestAnimationFrame(() => { clearTimeout(late); done(); });
});

const disabled = (el) => el.matches(':disabled') || el.closest('[aria-disabled="true"]') !== null;

const clickable = async (el) => {
  if (!seen(el)) return failed('hidden', describe(el));
  if (disabled(el)) return failed('disabled', describe(el));
  el.scrollIntoViewIfNeeded(true);
  // One that was begun moves from the next frame on.
  const animated = el.ownerDocument.getAnimations().some((it) => it.playState === 'running');
  if (animated) await frame();
  const before = box(el);
  await frame();
  const after = box(el);
  const moved = ['x', 'y', 'width', 'height'].some((key) => Math.abs(before[key] - after[key]) > 0.5);
  return moved ? failed('moving', describe(el)) : point(el);
};

// What typing into it means.
const kind = (el) => {
  if (el.localName === 'input') {
    if (el.type === 'file') return 'file';
    const other = ['button', 'checkbox', 'color', 'hidden', 'image', 'radio', 'range', 'reset', 'submit'];
    return other.includes(el.type) ? null : 'text';
  }
  if (el.localName === 'textarea') return 'text';
  if (el.localName === 'select') return 'select';
  return el.isContentEditable ? 'rich' : null;
};

// Remembers how it is told whether what was entered is there, and what is there instead.
const entered = (same, shown, form) => { globalThis.entered = { same, shown, form }; };

const changed = (el) => {
  for (const name of ['input', 'change']) el.dispatchEvent(new Event(name, { bubbles: true, composed: true }));
};

const choose = (el, wanted) => {
  const options = [...el.options];
  const label = (it) => it.label.trim();
  const chosen = options.find((it) => it.value === wanted) || options.find((it) => label(it) === wanted.trim());
  if (!chosen) return failed('option', options.slice(0, 20).map(label).join(', ').slice(0, 400));
  if (el.multiple) chosen.selected = true; else el.value = chosen.value;
  entered(() => chosen.selected, () => [...el.selectedOptions].map(label).join(', '));
  changed(el);
  return { kind: 'set' };
};

// Values that have no keys, by types of inputs, with the form that they are given in.
const FORMS = {
  date: '2026-11-27', month: '2026-11', week: '2026-W48', time: '10:30', 'datetime-local': '2026-11-27T10:30',
};

// The value that an input of the type makes of a text.
const taken = (el, text) => {
  if (el.localName !== 'input') return text;
  const other = el.ownerDocument.createElement('input');
  other.type = el.type;
  other.value = text;
  return other.value;
};

const set = (el, args) => {
  const stays = !args.text && !args.clear;
  const value = stays ? el.value : taken(el, args.text);
  const valid = value !== '' || !args.text;
  entered(() => valid && el.value === value, () => el.value, FORMS[el.type]);
  if (valid && !stays) {
    el.value = value;
    changed(el);
  }
  return { kind: 'set' };
};

// What there will be when a text was typed behind what there is.
const expect = (el, what, args) => {
  if (what === 'rich') {
    // Editors make blanks and lines of their own.
    const plain = (text) => text.replace(/[\s\u200b\ufeff]+/g, '');
    const wanted = plain((args.clear ? '' : el.textContent) + args.text);
    return entered(() => plain(el.textContent) === wanted, () => el.innerText);
  }
  const lines = el.localName === 'textarea' ? args.text : args.text.replace(/\n/g, '');
  const wanted = (args.clear ? '' : el.value) + lines;
  const same = () => el.value === wanted || el.value === taken(el, wanted);
  entered(same, () => (el.type === 'password' ? null : el.value));
};

// Whether what was entered is there. Pages may put it there a little later; one that went away has nothing.
const held = async (args) => {
  const end = performance.now() + args.limit_ms;
  while (globalThis.entered && !globalThis.entered.same()) {
    const { shown, form } = globalThis.entered;
    const is = shown();
    if (performance.now() >= end) return { shown: is && is.slice(0, 2000), form };
    await pause(20);
  }
  return null;
};

const writable = async (el, args) => {
  const what = kind(el);
  if (!what) return failed('text', describe(el));
  if (disabled(el)) return failed('disabled', describe(el));
  if (what === 'file') return { kind: 'file' };
  if (!seen(el)) return failed('hidden', describe(el));
  if (el.readOnly) return failed('readonly', describe(el));
  el.scrollIntoViewIfNeeded(true);
  if (what === 'select') return choose(el, args.text);
  el.focus();
  if (el.getRootNode().activeElement !== el && !owns(el, el.getRootNode().activeElement)) {
    return failed('focus', describe(el));
  }
  if (what === 'text' && FORMS[el.type]) return set(el, args);
  expect(el, what, args);
  const empty = what === 'text' ? el.value === '' : el.textContent === '';
  if (what === 'rich') {
    const range = el.ownerDocument.createRange();
    range.selectNodeContents(el);
    if (!args.clear) range.collapse(false);
    const selection = el.ownerDocument.defaultView.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  } else if (args.clear) {
    el.select();
  } else {
    try {
      el.setSelectionRange(el.value.length, el.value.length);
    } catch {
      return { kind: what, end: el.value !== '' };
    }
  }
  return { kind: what, erase: args.clear && !empty };
};

// Tries until the element is as it has to be, or the time is over; answers with the last reason then.
const until = async (args, given, tried) => {
  const end = performance.now() + args.limit_ms;
  for (;;) {
    const el = given || find(args.selector, 1)[0];
    if (given && !given.isConnected) return failed('gone');
    const now = el ? await tried(el, args) : failed('missing');
    if (!now.failed || performance.now() >= end) return now;
    await pause(50);
  }
};

const ready = (args, given) => until(args, given, clickable);
const written = (args, given) => until(args, given, writable);

// The element alone, for what is done by its handle.
const element = (args, given) => given || find(args.selector, 1)[0] || null;
const elements = (args) => find(args.selector, args.most);

const info = (list) => list.map((el) => {
  const attributes = {};
  for (const { name, value } of [...el.attributes].slice(0, 32)) attributes[name.slice(0, 100)] = value.slice(0, 500);
  const text = (el.innerText || el.textContent || '').trim().replace(/\s+/g, ' ').slice(0, 200);
  return { tagName: el.tagName.toLowerCase().slice(0, 100), attributes, text, visible: seen(el), boundingBox: box(el) };
});

const count = (args) => {
  let all = 0;
  roots(document, (root) => { all += root.querySelectorAll(args.selector).length; return false; });
  return all;
};

// Whole place of an element in the page, scrolled to.
const place = (args, given) => {
  const el = element(args, given);
  if (!el) return failed('missing');
  if (!seen(el)) return failed('hidden', describe(el));
  el.scrollIntoViewIfNeeded(true);
  const at = box(el);
  return { x: at.x + window.scrollX, y: at.y + window.scrollY, width: at.width, height: at.height };
};

const holds = (args) => {
  const matching = args.selector ? find(args.selector, 100) : null;
  let good = true;
  if (matching && args.state === 'attached') good = matching.length > 0;
  if (matching && args.state === 'visible') good = matching.some(seen);
  if (matching && args.state === 'hidden') good = !matching.some(seen);
  if (!good || !args.text) return good;
  const within = (el) => (el.innerText || '').includes(args.text);
  if (matching && args.state !== 'hidden') return matching.some(within);
  return roots(document, (root) => root.body ? within(root.body) : [...root.children].some(within));
};

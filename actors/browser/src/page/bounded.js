function (most) {
  const plain = (key, value) => {
    if (typeof value === 'bigint') return String(value);
    if (typeof value === 'function') return String(value).slice(0, 200);
    if (value instanceof Map) return [...value];
    if (value instanceof Set) return [...value];
    if (value instanceof Node) return '<' + String(value.nodeName).toLowerCase() + '>';
    if (value instanceof Error) return String(value);
    return value;
  };
  let text;
  try { text = JSON.stringify(this, plain); } catch (error) { return { text: String(error).slice(0, 500), json: false }; }
  if (text === undefined) return { text: String(this).slice(0, most), json: false };
  return text.length > most ? { text: text.slice(0, most), json: false, cut: true } : { text, json: true };
}

// A file is read from its first byte to its last before the browser sends it. Fields for files are
// disabled until this script is there, and a sentence says so.
const parsed = bytes => {
  const value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("no object");
  return value;
};
const hex = bytes => [...bytes].map(byte => byte.toString(16).padStart(2, "0")).join("");
// JSON: one object, and one line break after it.
const isDocument = bytes => {
  const [brace, end] = bytes.subarray(-2);
  return brace === 0x7d && end === 0x0a && parsed(bytes) !== null;
};
// Binary: magic, version, length of the header; header; content of a known length; end.
const isContainer = (bytes, shape) => {
  const n = new DataView(bytes.buffer).getUint32(12, true);
  if (bytes.length !== 16 + n + shape.content + shape.end) return false;
  const names = Object.keys(parsed(bytes.subarray(16, 16 + n)));
  return names.length === shape.header.length && names.every(name => shape.header.includes(name));
};
const isFile = (bytes, shape) =>
  hex(bytes.subarray(0, shape.start.length / 2)) === shape.start &&
  ("content" in shape ? isContainer(bytes, shape) : isDocument(bytes));
const isOurs = async field => {
  const file = field.files[0];
  if (!file) return true;
  if (file.size > Number(field.dataset.maxBytes)) return false;
  const bytes = new Uint8Array(await file.arrayBuffer());
  return JSON.parse(field.dataset.shapes).some(shape => {
    try {
      return isFile(bytes, shape);
    } catch {
      return false;
    }
  });
};
for (const form of document.querySelectorAll("form")) {
  const fields = form.querySelectorAll("input[data-shapes]");
  if (!fields.length) continue;
  const note = document.createElement("div");
  note.className = "alert stop";
  note.setAttribute("role", "alert");
  note.hidden = true;
  form.prepend(note);
  const check = async () => {
    note.hidden = true;
    for (const field of fields) {
      if (await isOurs(field).catch(() => false)) continue;
      note.textContent = `${field.files[0].name} is not ${field.dataset.what}, from its first byte to its last. No byte of it left this machine.`;
      note.hidden = false;
      field.value = "";
      field.focus();
      return false;
    }
    return true;
  };
  form.addEventListener("change", event => event.target.matches("[data-shapes]") && check());
  form.addEventListener("submit", event => {
    event.preventDefault();
    check().then(good => good && form.submit());
  });
  for (const part of form.querySelectorAll("[data-shapes], button")) part.disabled = false;
  for (const part of form.querySelectorAll("[data-without-scripts]")) part.remove();
}

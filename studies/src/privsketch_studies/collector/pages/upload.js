for (const form of document.querySelectorAll("form")) {
  const fields = form.querySelectorAll("input[data-starts]");
  if (!fields.length) continue;
  const note = document.createElement("div");
  note.className = "alert stop";
  note.setAttribute("role", "alert");
  note.hidden = true;
  form.prepend(note);
  const isOurs = async field => {
    const file = field.files[0];
    if (!file) return true;
    const bytes = new Uint8Array(await file.slice(0, 64).arrayBuffer());
    const digits = [...bytes].map(byte => byte.toString(16).padStart(2, "0")).join("");
    return field.dataset.starts.split(" ").some(start => digits.startsWith(start));
  };
  const check = async () => {
    note.hidden = true;
    for (const field of fields) {
      if (await isOurs(field).catch(() => false)) continue;
      note.textContent = `${field.files[0].name} is not ${field.dataset.what}. No byte of it left this machine.`;
      note.hidden = false;
      field.value = "";
      field.focus();
      return false;
    }
    return true;
  };
  form.addEventListener("change", check);
  form.addEventListener("submit", event => {
    event.preventDefault();
    check().then(good => good && form.submit());
  });
}

"""How pages look: on a desk, on a phone, in the dark, on paper. Nothing is loaded from anywhere."""

# A row of a table becomes a heading with its cells below; T stands for the tables, N for
# how many cells are beside each other.
_FOLDED = """
T,T caption,T tbody { display:block; }
T thead { position:absolute; width:1px; height:1px; overflow:hidden; clip-path:inset(50%); }
T tr { display:grid; grid-template-columns:repeat(var(N),1fr); padding:4px 0;
        border-bottom:1px solid var(--faint); }
T th,T td { border:0; padding-right:4px; } T td { text-align:left; padding-left:5px; }
T th[scope=rowgroup] { grid-column:1/-1; padding-left:0; }
T th[scope=row] { grid-column:1/-1; max-width:none; padding-left:0; }
T th[scope=row] small { display:inline; margin-left:6px; }
T td::before { content:attr(data-k); display:block; font-size:11px; color:var(--muted);
        overflow-wrap:anywhere; }
"""

_LOOKS = """
:root { color-scheme:light dark; --ink:#24292f; --muted:#57606a; --faint:#d0d7de; --soft:#f6f8fa;
        --page:#fff; --accent:#3366cc; --warn:#bf8700; --warn-soft:#fff8e5; --mark:#57606a;
        --heat:51,102,204; --cool:220,106,30; }
@media (prefers-color-scheme:dark) { :root { --ink:#e6edf3; --muted:#9da7b3; --faint:#3d444d;
        --soft:#161b22; --page:#0d1117; --accent:#6ea0ff; --warn:#d29922; --warn-soft:#272115;
        --mark:#b6c0cc; --heat:88,140,240; --cool:226,130,60; } }
@media print { :root { color-scheme:light; --ink:#24292f; --muted:#57606a; --faint:#d0d7de;
        --soft:#f6f8fa; --page:#fff; --accent:#3366cc; --warn:#bf8700; --warn-soft:#fff8e5;
        --mark:#57606a; --heat:51,102,204; --cool:220,106,30; } }
* { box-sizing:border-box; }
body { margin:0; font:15px/1.55 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;
       color:var(--ink); background:var(--page); }
main { max-width:960px; margin:0 auto; padding:32px 24px 64px; overflow-wrap:break-word; }
h1 { font-size:26px; line-height:1.25; margin:0 0 4px; }
h2 { font-size:19px; margin:40px 0 8px; } h3 { font-size:15px; margin:24px 0 4px; }
.sub { color:var(--muted); margin:0 0 24px; }
.cards { display:grid; grid-template-columns:repeat(auto-fit,minmax(140px,1fr)); gap:12px; }
.card { background:var(--soft); border:1px solid var(--faint); border-radius:8px;
        padding:10px 14px; }
.card b { display:block; font-size:20px; } .card span { color:var(--muted); font-size:13px; }
table { border-collapse:collapse; font-size:13.5px; font-variant-numeric:tabular-nums; }
th,td { padding:4px 8px; border-bottom:1px solid var(--faint); text-align:right;
        vertical-align:top; }
th { font-weight:600; } th:first-child,td:first-child { text-align:left; }
caption { text-align:left; color:var(--muted); font-size:13px; padding:4px 0; }
.words td,.words th { text-align:left; }
.words td:first-child,.words td:last-child,.words th[scope=row] { overflow-wrap:anywhere; }
.words td:first-child { min-width:6em; } .words th[scope=row] { min-width:7em; }
.parts { width:100%; margin:8px 0; } .parts tr { break-inside:avoid; }
.narrow { width:auto; } .parts th[scope=row] { max-width:190px; overflow-wrap:anywhere; }
.parts th small,.parts td small { display:block; font-weight:400; line-height:1.3; }
.parts th.of { font-weight:400; padding-left:20px; } .parts .group { border-bottom:0; }
.parts td { line-height:1.35; } .parts .p { position:relative; padding-bottom:12px; }
.parts .p::after { content:""; position:absolute; left:3px; right:3px; bottom:3px; height:5px;
        border-radius:2px; print-color-adjust:exact; -webkit-print-color-adjust:exact; }
.parts .h { background:rgba(var(--heat),calc(.04 + .5*var(--p))); print-color-adjust:exact;
        -webkit-print-color-adjust:exact; }
.parts .h::after { background:linear-gradient(to right,transparent calc(100%*var(--p) - 1.5px),
        var(--ink) 0 calc(100%*var(--p) + 1.5px),transparent 0),linear-gradient(to right,
        transparent calc(100%*(var(--p) - var(--w,0))),rgba(var(--heat),.55) 0
        calc(100%*(var(--p) + var(--w,0))),transparent 0),rgba(128,138,150,.18); }
.parts .s::after { background:linear-gradient(to right,var(--accent) calc(100%*var(--p)),
        rgba(128,138,150,.18) 0); }
.parts .d { background:rgba(var(--tone),calc(.6*var(--p))); print-color-adjust:exact;
        -webkit-print-color-adjust:exact; }
small { color:var(--muted); font-size:12px; }
.parts .h small,.parts .d small { color:var(--ink); }
.scroll { overflow-x:auto; } pre { white-space:pre-wrap; overflow-wrap:anywhere;
        background:var(--soft); padding:12px; font-size:13px; }
.dot { display:inline-block; width:10px; height:10px; border-radius:5px; margin-right:6px;
       print-color-adjust:exact; -webkit-print-color-adjust:exact; }
.portraits { list-style:none; padding:0; margin:8px 0 16px; }
.portraits li { display:grid; grid-template-columns:3.2em 4em 1fr; padding:3px 0;
        border-bottom:1px solid var(--faint); }
.portraits b { font-weight:600; }
.bar { display:block; width:120px; max-width:100%; margin-top:7px; background:var(--soft); }
.bar i { display:block; height:9px; min-width:1px; background:var(--accent);
         print-color-adjust:exact; -webkit-print-color-adjust:exact; }
summary { cursor:pointer; margin:16px 0 8px; }
.note { border-left:4px solid var(--accent); background:var(--soft); padding:8px 14px;
        margin:12px 0; } .note.warn { border-color:var(--warn); background:var(--warn-soft); }
svg { max-width:100%; height:auto; }
.plots { display:flex; flex-wrap:wrap; gap:4px; }
footer { color:var(--muted); margin-top:48px; font-size:13px; }
FOLDED_ALWAYS@media (max-width:640px) {
  main { padding:20px 14px 48px; }
  .words td,.words th { padding:4px; } .portraits li { grid-template-columns:3.2em 3.4em 1fr; }
  .releases,.releases tbody,.releases tr,.releases td { display:block; }
  .releases thead,.releases td:empty { display:none; }
  .releases tr { border-bottom:1px solid var(--faint); padding:4px 0; }
  .releases td { border:0; padding:0; }
  .releases td::before { content:attr(data-k) " "; color:var(--muted); }
  .steps td:nth-child(3) { display:none; } .steps th { padding-right:8px; }
FOLDED_ON_PHONES}
@media print {
  @page { margin:14mm 12mm; }
  body { font-size:10.5pt; } main { max-width:none; padding:0; }
  table { font-size:9pt; } th,td { padding:3px 5px; } small { font-size:8pt; }
  .cards { grid-template-columns:repeat(auto-fit,minmax(104px,1fr)); }
  h2,h3 { break-after:avoid; } svg,.note,.card { break-inside:avoid; }
  .scroll { overflow:visible; } thead { display:table-header-group; } .plots svg { width:32%; }
}
"""

STYLE = (
    _LOOKS.replace("FOLDED_ALWAYS", _FOLDED.replace("T", ".folding").replace("N", "--wide"))
    .replace("FOLDED_ON_PHONES", _FOLDED.replace("T", ".parts").replace("N", "--narrow"))
    .strip()
)

"""Report, view layer: the style sheet of the report, light and dark. Never a font, image or script from elsewhere."""

STYLE = """
:root{color-scheme:light dark;
--page:#f6f7f9;--card:#fff;--ink:#1c2430;--soft:#5b6675;--faint:#8a94a3;--rule:#e2e6ec;--rule2:#eef1f5;--accent:#5a45d6;
--source:#2f6fdb;--target:#e0701c;--asked:#8a94a3;--served:#e0701c;--pass:#1f9254;--fail:#d5343b;--home:#8547c9;--warn:#a86a00;
--passbg:#e3f5ea;--failbg:#fde8e8;--homebg:#f1e8fb;--warnbg:#fdf2dc;--plainbg:#eceff4;
--g1:#c2410c;--g2:#2563c9;--g3:#0f8a7e;--g4:#8a5a00;--g5:#b4257f;--w0:#e7ebf1;--w1:#fbe3cd;--w2:#f5c394;--w3:#eda25b;--w4:#e0701c}
@media(prefers-color-scheme:dark){:root{
--page:#0f131a;--card:#171d26;--ink:#e4e9f0;--soft:#a3aebd;--faint:#748092;--rule:#2a3340;--rule2:#212935;--accent:#a394ff;
--source:#6ba1ff;--target:#ff9d4d;--asked:#8491a3;--served:#ff9d4d;--pass:#4cc987;--fail:#ff6b70;--home:#c08cff;--warn:#f0b54a;
--passbg:#12301f;--failbg:#3a171a;--homebg:#2a1d3d;--warnbg:#352812;--plainbg:#242c38;
--g1:#ff8f5a;--g2:#6ba1ff;--g3:#3ecfc0;--g4:#e0b050;--g5:#f07ac0;--w0:#242c38;--w1:#46301d;--w2:#6e4520;--w3:#a86127;--w4:#e07f30}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;scroll-padding-top:16px;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-feature-settings:"tnum"}
a{color:inherit}
.shell{display:grid;grid-template-columns:216px minmax(0,1fr);max-width:1400px;margin:0 auto}
nav{position:sticky;top:0;align-self:start;max-height:100vh;overflow:auto;padding:30px 12px 24px 24px;font-size:13.5px}
nav .brand{font-weight:700;letter-spacing:-.01em;font-size:16px;margin-bottom:16px}
nav .brand::before{content:"";display:inline-block;width:10px;height:10px;border-radius:3px;background:var(--target);
box-shadow:-5px 0 0 var(--source);margin:0 8px 0 5px}
nav a{display:block;padding:4px 10px;border-left:2px solid var(--rule);color:var(--soft);text-decoration:none;
overflow:hidden;text-overflow:ellipsis}
nav a:hover{color:var(--ink);border-color:var(--accent)}
nav a.sub{padding-left:22px;font-size:13px}
main{padding:28px 28px 64px;min-width:0}
h1{font-size:27px;line-height:1.2;letter-spacing:-.02em;margin:0 0 4px}
h2{font-size:19px;letter-spacing:-.01em;margin:44px 0 12px}
h3{font-size:14px;margin:0;font-weight:600}
p{margin:0 0 10px;max-width:78ch}
.meta,.note{color:var(--soft);font-size:13.5px}
.note{margin-top:8px}
code,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.9em}
.hash{overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(158px,1fr));gap:12px;margin:22px 0 8px}
.card{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:14px 16px}
.card .label{color:var(--soft);font-size:12.5px}
.card .value{font-size:25px;line-height:1.25;font-weight:650;letter-spacing:-.02em;margin-top:2px}
.card .more{color:var(--faint);font-size:12.5px}
.value.good{color:var(--pass)}.value.bad{color:var(--fail)}.value.homed{color:var(--home)}
.panel{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:14px 16px 10px;min-width:0}
.panel header{margin-bottom:8px}.panel header .legend{margin-top:3px}.panel+.panel.scroll{margin-top:12px}
.grid{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:12px}
.scroll{overflow-x:auto}
.scroll svg{min-width:720px}
section.cell>header{display:flex;flex-wrap:wrap;gap:6px 12px;align-items:center;margin:44px 0 10px}
section.cell>header h2{margin:0}
svg{display:block;width:100%;height:auto;font-family:inherit}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;list-style:none;margin:0;padding:0;color:var(--soft);font-size:12.5px}
.legend li{display:flex;align-items:center;gap:6px}
.key{width:22px;height:8px;flex:none}
.line{fill:none;stroke-width:1.9;stroke-linejoin:round;stroke-linecap:round}
.dashed{stroke-dasharray:4 3.5;stroke-width:1.6}
.line.source{stroke:var(--source)}.line.target{stroke:var(--target)}.line.asked{stroke:var(--asked);stroke-width:1.6}
.line.served{stroke:var(--served)}.line.pass{stroke:var(--pass)}.line.fail{stroke:var(--fail)}
.line.g0{stroke:var(--ink);stroke-width:2.3}.line.g1{stroke:var(--g1)}.line.g2{stroke:var(--g2)}.line.g3{stroke:var(--g3)}
.line.g4{stroke:var(--g4)}.line.g5{stroke:var(--g5)}
.hair{fill:none;stroke:var(--rule2);stroke-width:1}
.axis{stroke:var(--rule);fill:none}
text{font-size:11px;fill:var(--soft)}
text.end{text-anchor:end}text.mid{text-anchor:middle}
text.unit,text.tick{fill:var(--faint)}
text.phase{text-anchor:middle;font-size:10.5px;fill:var(--soft)}
text.empty{text-anchor:middle;fill:var(--faint);font-size:12.5px}
.band{fill:var(--plainbg);opacity:.62}.band.n1{opacity:.22}
.bound{stroke-width:1.1;stroke-dasharray:6 4;fill:none}
.bound.fail{stroke:var(--fail)}.bound.pass{stroke:var(--pass)}
.boundname{font-size:10.5px;font-weight:600}
.boundname.fail,.markname.fail{fill:var(--fail)}.boundname.pass,.markname.pass{fill:var(--pass)}.markname.home{fill:var(--home)}
.mark{stroke-width:1.3;fill:none}.mark.fail{stroke:var(--fail)}.mark.pass{stroke:var(--pass)}.mark.home{stroke:var(--home)}
.markname{font-size:10.5px;font-weight:600}
.seg.w0{fill:var(--w0)}.seg.w1{fill:var(--w1)}.seg.w2{fill:var(--w2)}.seg.w3{fill:var(--w3)}.seg.w4{fill:var(--w4)}
.segname{text-anchor:middle;font-size:11px;fill:var(--ink)}.segname.w4{fill:#fff;font-weight:600}
text.lane{font-size:13px;fill:var(--ink)}
.pin.fail{fill:var(--fail)}.pin.pass{fill:var(--pass)}.pin.home{fill:var(--home)}
.pin{stroke:var(--card);stroke-width:1.6}
.bar.move{fill:var(--target)}.bar.stay{fill:var(--source)}.bar.infeasible{fill:var(--faint)}.bar.bill{fill:var(--accent)}
.barname{font-size:12.5px;fill:var(--ink)}.barvalue{font-size:11.5px;fill:var(--soft);font-variant-numeric:tabular-nums}
.tick.now{stroke:var(--ink);stroke-width:2}.nowname{font-size:11px;fill:var(--ink);font-weight:600}
.swatch{width:14px;height:10px;border-radius:2px;flex:none}
.badge{display:inline-block;padding:1px 9px;border-radius:99px;font-size:12.5px;font-weight:600;white-space:nowrap;
background:var(--plainbg);color:var(--soft)}
.badge.pass{background:var(--passbg);color:var(--pass)}.badge.fail{background:var(--failbg);color:var(--fail)}
.badge.home{background:var(--homebg);color:var(--home)}.badge.warn{background:var(--warnbg);color:var(--warn)}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th{font-weight:600;text-align:left;color:var(--soft);font-size:12.5px;white-space:nowrap}
th,td{padding:7px 12px 7px 0;border-bottom:1px solid var(--rule2);vertical-align:top}
tr:last-child td{border-bottom:0}
td.num,th.num{text-align:right;white-space:nowrap}
td.num{font-variant-numeric:tabular-nums}
td.nowrap{white-space:nowrap}
tr.sum td{font-weight:600;border-top:1px solid var(--rule)}
td.text{overflow-wrap:anywhere;min-width:180px}
details summary{cursor:pointer;color:var(--soft);font-size:13.5px;padding:4px 0}
.why{color:var(--soft);font-size:13.5px}
footer{margin-top:48px;color:var(--faint);font-size:12.5px;border-top:1px solid var(--rule);padding-top:14px}
@media(max-width:1020px){.shell{grid-template-columns:minmax(0,1fr)}
nav{position:static;max-height:none;padding:18px 20px 0;display:flex;flex-wrap:wrap;gap:2px 4px;align-items:baseline}
nav .brand{width:100%;margin-bottom:6px}nav a,nav a.sub{border-left:0;padding:2px 8px}nav a.sub{display:none}main{padding:18px 20px 48px}}
@media(max-width:820px){.grid{grid-template-columns:minmax(0,1fr)}}
@media(max-width:560px){main{padding:14px 12px 40px}h1{font-size:22px}.cards{grid-template-columns:1fr 1fr;gap:8px}.card{padding:10px 12px}
.card .value{font-size:21px}.panel{padding:10px 10px 8px}th,td{padding-right:9px}
text{font-size:12.5px}text.phase,.boundname,.markname{font-size:12px}}
@media print{nav{display:none}.shell{display:block}.panel,.card{break-inside:avoid}}
"""
"""Kept as one string: its SHA-256 stands in the page's content security policy, so no other style can apply."""

"""How pages look: light and dark, at a desk, on a phone and on paper."""

__all__ = ["DARK", "LIGHT", "STYLE"]

# Letters have a contrast of at least 4.5 to 1 on both grounds, and graphics of at least 3.
LIGHT = {
    "ground": "#f6f7f9",
    "card": "#ffffff",
    "ink": "#1b2530",
    "muted": "#566270",
    "lines": "#d5dae1",
    "now": "#2468b0",
    "moved": "#b4510a",
    "reference": "#858f9c",
    "bad": "#a51d1d",
}
DARK = {
    "ground": "#12161b",
    "card": "#1a2027",
    "ink": "#e7ebf0",
    "muted": "#a4afbc",
    "lines": "#39434f",
    "now": "#6aaeed",
    "moved": "#f09b4d",
    "reference": "#76818e",
    "bad": "#ff8f8f",
}


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


STYLE = (
    f"""
:root {{ color-scheme: light dark; {_variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}
@media print {{ :root {{ color-scheme: light; {_variables(LIGHT)} --ground: #ffffff; }} }}
"""
    + """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; print-color-adjust: exact; }
body { font: 16px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; color: var(--ink);
       background: var(--ground); margin: 0; overflow-wrap: anywhere; }
main { max-width: 62rem; margin: 0 auto; padding: 2.2rem 1rem 3rem; }
h1 { font-size: clamp(1.5rem, 1.1rem + 1.9vw, 2.3rem); line-height: 1.22; margin: .2rem 0 1rem;
     font-weight: 650; letter-spacing: -.01em; text-wrap: balance; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .5rem; }
h3 { font-size: 1.05rem; margin: 0 0 .3rem; }
p { margin: .4rem 0; }
.kind { color: var(--muted); margin: 0; }
.answer { font-size: 1.25rem; border-left: 5px solid var(--now); padding: .3rem 1.1rem; }
.note { color: var(--muted); font-size: .92rem; }
.bad { color: var(--bad); font-weight: 600; }
.card, details { background: var(--card); border: 1px solid var(--lines); border-radius: 10px;
                 padding: .9rem 1rem; margin: .8rem 0; }
.cards { display: grid; gap: 0 1rem; align-items: start;
         grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
.facts { display: flex; flex-wrap: wrap; gap: .5rem 2.2rem; margin: 0 0 1rem; padding: 0; }
.facts div { min-width: 0; }
.facts dt { color: var(--muted); font-size: .85rem; }
.facts dd { margin: 0; font-weight: 600; }
.key { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; padding: 0; margin: .3rem 0 .7rem;
       list-style: none; color: var(--muted); font-size: .88rem; }
.key li::before { content: ""; display: inline-block; width: 1.5em; height: .65em;
                  margin-right: .45em; border-radius: 2px; }
.key .now::before { background: var(--now); } .key .moved::before { background: var(--moved); }
.key .reference::before { background: var(--reference); }
.key .mark::before { width: 0; height: 1em; border-left: 2px dashed var(--ink); border-radius: 0;
                     vertical-align: -.15em; }
.key .whisker::before { height: .6em; border: solid var(--ink); border-width: 0 1.5px;
  background: linear-gradient(var(--ink), var(--ink)) center / 100% 1.5px no-repeat;
  border-radius: 0; }
svg { display: block; width: 100%; } .paper { background: #fff; padding: .5rem; }
.paper svg { height: auto; } h3 + svg { margin-top: .6rem; }
details { padding: 0 1rem; } details[open] { padding-bottom: .9rem; }
summary { cursor: pointer; padding: .7rem 0; font-weight: 600; }
.wide { overflow-x: auto; overflow-wrap: normal; } .wide td { white-space: nowrap; }
.names td { white-space: normal; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; margin: .4rem 0 1rem; }
caption { text-align: left; font-weight: 600; padding: .4rem 0; }
th, td { text-align: right; padding: .35rem .6rem; border-bottom: 1px solid var(--lines);
         vertical-align: top; font-variant-numeric: tabular-nums; }
thead th { color: var(--muted); font-weight: 600; }
th:first-child, td:first-child { text-align: left; } tbody th { font-weight: 400; min-width: 7rem; }
.last td:last-child, .last th:last-child { text-align: left; min-width: 13rem;
                                           white-space: normal; }
@media print {
  main { max-width: none; padding: 0; } body { font-size: 11pt; }
  .card, figure, tr { break-inside: avoid; } h2, h3, summary { break-after: avoid; }
  details { border: 0; padding: 0; } summary { list-style: none; }
  details.folded { display: none; }
  details.printed::details-content { content-visibility: visible; display: block; }
}
"""
)

"""What pages of a series need beyond the usual style: charts over time, the heat map, links."""

__all__ = ["HEAT_DARK", "HEAT_LIGHT", "SERIES_STYLE"]

# From far below the threshold to far above it. Lightness alone tells them apart, so that the order
# is the same for everybody; blue and orange are told apart by nearly everybody.
HEAT_LIGHT = ("#e9eef5", "#bcd2ea", "#86aedb", "#d0620c", "#6b2d00")
HEAT_DARK = ("#232c37", "#2f4a68", "#437aae", "#f0913a", "#ffe0b8")


def _variables(colours: tuple[str, ...]) -> str:
    return " ".join(f"--heat{n}: {colour};" for n, colour in enumerate(colours))


SERIES_STYLE = (
    f"""
:root {{ {_variables(HEAT_LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(HEAT_DARK)} }} }}
@media print {{ :root {{ {_variables(HEAT_LIGHT)} }} }}
"""
    + """
a { color: var(--now); text-underline-offset: .15em; }
:focus-visible { outline: 3px solid var(--now); outline-offset: 2px; border-radius: 3px; }
main:focus { outline: none; }
.skip { position: absolute; left: -999rem; top: 0; background: var(--card); padding: .6rem 1rem;
        z-index: 1; }
.skip:focus { left: .5rem; top: .5rem; }
.top { border-bottom: 1px solid var(--lines); background: var(--card); }
.top ul { max-width: 62rem; margin: 0 auto; padding: .45rem 1rem; list-style: none; display: flex;
          flex-wrap: wrap; gap: 0 1.2rem; }
.top a { display: inline-block; padding: .2rem 0; }
.fault { border: 2px solid var(--bad); border-radius: 10px; background: var(--card);
         padding: .8rem 1.1rem; margin: 0 0 1.2rem; }
.fault ul { margin: .3rem 0; padding-left: 1.2rem; }
.plot { padding-left: 2.6rem; } .plot svg { overflow: visible; }
.c-grid { stroke: var(--lines); stroke-opacity: .6; }
.c-tick { fill: var(--muted); font-size: 12px; }
.c-now, .c-reference, .c-limit, .c-below { fill: none; vector-effect: non-scaling-stroke;
  stroke-linejoin: round; stroke-linecap: round; }
.c-now { stroke: var(--now); stroke-width: 2; }
.c-reference { stroke: var(--reference); stroke-width: 1.5; }
.c-limit { stroke: var(--ink); stroke-width: 1.6; stroke-dasharray: 6 4; stroke-linecap: butt; }
.c-below { stroke: var(--reference); stroke-width: 1.6; stroke-dasharray: 2 4; }
.c-band { fill: var(--now); fill-opacity: .2; }
.c-gap { fill: var(--reference); fill-opacity: .35; }
.c-drift { fill: var(--moved); fill-opacity: .12; }
.c-dot { fill: var(--now); pointer-events: none; }
.c-above { fill: var(--moved); stroke: var(--card); pointer-events: none; }
.c-flag { stroke: var(--moved); stroke-width: 2; }
.c-known { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 1 3; stroke-linecap: round; }
.c-alarm { fill: var(--ink); font-size: 12px; font-weight: 600; }
.c-flag, .c-known, .c-alarm { pointer-events: none; }
.c-hit { fill: transparent; } a:hover .c-hit, .c-hit:hover { fill: var(--ink); fill-opacity: .1; }
.key .limit::before { width: 1.6em; height: 0; border-top: 2px dashed var(--ink);
                      border-radius: 0; vertical-align: .3em; }
.key .below::before { width: 1.6em; height: 0; border-top: 2px dotted var(--reference);
                      border-radius: 0; vertical-align: .3em; }
.key .gap::before { background: var(--reference); opacity: .5; width: .9em; height: .9em;
                    vertical-align: -.1em; }
.key .drift::before { background: var(--moved); opacity: .3; width: .9em; height: .9em;
                      vertical-align: -.1em; }
.key .band::before { background: var(--now); opacity: .3; }
.key .dot::before { background: var(--moved); width: .6em; height: .6em; border-radius: 50%; }
.key .flag::before { width: 0; height: 1em; border-left: 2px solid var(--moved); border-radius: 0;
                     vertical-align: -.15em; }
.key .known::before { width: 0; height: 1em; border-left: 2px dotted var(--ink); border-radius: 0;
                      vertical-align: -.15em; }
.h0 { fill: var(--heat0); } .h1 { fill: var(--heat1); } .h2 { fill: var(--heat2); }
.h3 { fill: var(--heat3); } .h4 { fill: var(--heat4); } .hm { fill: var(--reference); }
.key .k0::before { background: var(--heat0); } .key .k1::before { background: var(--heat1); }
.key .k2::before { background: var(--heat2); } .key .k3::before { background: var(--heat3); }
.key .k4::before { background: var(--heat4); }
.key .k0::before, .key .k1::before, .key .k2::before, .key .k3::before, .key .k4::before {
  outline: 1px solid var(--lines); }
.wide .why { text-align: left; white-space: normal; min-width: 14rem; }
.heat { display: grid; grid-template-columns: 1fr; gap: 0; }
.heat .name { font-size: .88rem; margin-top: .45rem; line-height: 1.3; }
.heat .says { color: var(--muted); }
.heat svg { height: 15px; } .heat a:hover { opacity: .7; }
.heat .dates { height: 22px; overflow: visible; }
@media (min-width: 48rem) {
  .heat { grid-template-columns: 13rem 1fr; gap: .3rem .9rem; align-items: center; }
  .heat .name { margin: 0; text-align: right; } .heat .says { display: block; }
  .heat .dates { grid-column: 2; }
}
@media print { .top, .skip { display: none; } }
"""
)

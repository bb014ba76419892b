"""How the report looks, light and dark by the reader's own setting."""

STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --text: #1c2330; --soft: #5b6678; --rule: #d9dee7; --box: #f5f7fa;
  --c0: #2563c9; --c1: #c2570c; --c2: #15803d; --c3: #8b3fc4; --c4: #b0186a; --c5: #47708a;
  --wait: #c3cad6; --prefill: #e08a2c; --decode: #2563c9; --bad: #c81e3a; --good: #15803d; }
@media (prefers-color-scheme: dark) {
  :root { --back: #12161d; --text: #e4e8ef; --soft: #9aa5b6; --rule: #2e3644; --box: #1a202a;
    --c0: #6ea3ff; --c1: #f29b54; --c2: #5cc98a; --c3: #c48cf0; --c4: #f07db4; --c5: #8fb6cc;
    --wait: #4a5466; --prefill: #e8a04e; --decode: #6ea3ff; --bad: #ff6b81; --good: #5cc98a; } }
body { margin: 0 auto; padding: 24px; max-width: 1440px; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 32px 0 8px; }
h3 { font-size: 16px; margin: 24px 0 8px; }
p { margin: 6px 0; } .soft { color: var(--soft); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 16px;
  align-items: start; }
figure { margin: 0; padding: 12px; background: var(--box); border: 1px solid var(--rule); border-radius: 8px; }
figcaption { font-weight: 600; } svg { width: 100%; max-width: 860px; height: auto; display: block; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
.axis { stroke: var(--soft); } .grid { stroke: var(--rule); } .zero { stroke: var(--bad); stroke-dasharray: 4 3; }
.line { fill: none; stroke-width: 2; } .mark { stroke: none; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); }
.c3 { stroke: var(--c3); } .c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); }
.mark.c0, .bar.c0 { fill: var(--c0); } .mark.c1, .bar.c1 { fill: var(--c1); } .mark.c2, .bar.c2 { fill: var(--c2); }
.mark.c3, .bar.c3 { fill: var(--c3); } .mark.c4, .bar.c4 { fill: var(--c4); } .mark.c5, .bar.c5 { fill: var(--c5); }
.bar.wait { fill: var(--wait); } .bar.prefill { fill: var(--prefill); } .bar.decode { fill: var(--decode); }
.bar.bad { fill: var(--bad); }
.scroll { overflow-x: auto; } .tables { display: flex; flex-wrap: wrap; gap: 8px 48px; align-items: flex-start; }
table { border-collapse: collapse; margin: 8px 0; }
th, td { text-align: right; padding: 4px 12px; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { color: var(--soft); font-weight: 600; }
.verdict { display: inline-block; padding: 2px 10px; border-radius: 12px; border: 1px solid currentColor; }
.valid { color: var(--good); } .doubtful { color: var(--c1); } .invalid { color: var(--bad); }
details { margin: 16px 0; } summary { cursor: pointer; font-weight: 600; }
"""

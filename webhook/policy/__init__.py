"""What cluster admins allow: the policy document and the rules in it. No HTTP, no logs, no ConfigMaps.

In: a document as JSON. `document.load` turns it into `model` values, or into errors at their paths (`schema`, `checks`,
`lockout`) and warnings (`lint`). `decide.Judge` compiles a policy: `match` has the compiled matches, `index` finds the
rules that may match, `evaluation` goes through them in order. Out: the rules that matched, as RuleHits. `explain` says
in words what kept the others from it; `limits` and `windows` are for what stands beside rules; `vap` exports what the
API server can enforce by itself. Start with `model` and `decide`.
"""

"""CEL for devices: selectors are checked as the API server checks them, and evaluated on devices as the scheduler does.

Start at `selector.compile_selector`. In the order in which they run: `reader` makes a tree of the nodes in `syntax`,
where `macros` have become loops; `checker` finds the type of each node (`kinds`) and what it may call (`functions`);
`cost` estimates the worst case; `builder` makes closures that work on `values`. `functions` is one table: a row has the
types, the cost and the evaluation. `selector` also has short cuts for the expressions that most people write.

Source: k8s.io/dynamic-resource-allocation/cel, k8s.io/apiserver/pkg/cel and github.com/google/cel-go, in the versions
of Kubernetes 1.37. tests/selectors compares both.
"""

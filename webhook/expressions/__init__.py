"""CEL: parse, check, bound and evaluate. No other room imports the parser library, celpy.

In: the source of an expression and the types of its variables. Out: an Expression that evaluates JSON values to true or
false, within a bounded number of steps. `parser` makes a tree, `engine` finds types and cost and has the entry point,
`compile_expression`: start there. `drivers` reads which drivers a DeviceClass can select.
`selectors` has the CEL of devices, where Kubernetes says what is right.
What an expression is used for is up to the caller.
"""

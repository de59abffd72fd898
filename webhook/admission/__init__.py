"""One review, decided: from bytes to decision to bytes, as pure functions of the request and its context.

In: an AdmissionRequest (decoded by `review`) and an AdmissionContext with the time, the policy and what is known of the
cluster. Out: a Decision with findings, patch and audit annotations, which `review` encodes. Start with `chain`: its
`validate` and `mutate` call the rest in order: field rules, documented rules, the policy (`policy_check`, `rulings`),
the impact guard (`guard`) and advice (`lint`, `cluster_lint`). No I/O, no clock, no logs.
"""

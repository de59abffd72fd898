"""Files in, reports out: manifests are read with the position of each value, and findings printed at those positions.

`read` yields the manifests of files, folders and standard input, by way of `yaml_documents` and `json_documents`;
`spots` maps field paths to lines and columns. `policies` reads a policy, `dump` what manifests say about a cluster. A
run's results are rows of `report`, which `formats` prints: text, JSON, YAML and JUnit (`render`), `github`, `sarif`,
and GitLab's `code_quality`. Start with `read` and `report`. Nothing here decides about an object.
"""

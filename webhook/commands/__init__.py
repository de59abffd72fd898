"""The one-shot verbs: `check`, `explain`, `preview`, `status`, `audit`, `test`, `doctor`, `export-vap`, and more.

A verb is a folder, or one module where that is enough. Its `command` has `command_line()`, the flags, and
`run(options, parser)`, which prints a report and returns an exit code: 0 fine, 1 findings, 2 wrong usage, unreadable
input or no cluster. Start reading at `verbs`, which maps verbs to modules, and at `shared.main`, which calls `run`.
Reading of files and printing of reports are in `files`; rules of the domain are in the rooms below.

Imports within functions load what help, and complaints about flags, do without: it takes most of the time of a start.
"""

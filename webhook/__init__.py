"""Admission webhook and eviction worker that make Kubernetes device taints safe.

To know the code, read it in this order; each line builds on those above it:

1. `api`: the objects. `taints`, `rules`, `claims`, `slices`; a `field.Path` names a place in any of them.
2. `validation.kinds`: what is checked in each kind of object.
3. `inventory`: `pools`, `targets` and `state` say which devices a selector means and who uses them, `impact` what a
   taint hits.
4. `policy`: `model`, then `decide`: who may tolerate and taint what.
5. `admission`: `chain` is one review, `guard` the part of it that keeps a taint from hitting too much.
6. `patches`: `index` is what a ResourceSlicePatch selects, `book` its rules.
7. `eviction`: `plan`, `line`, `sender`: which pod goes next, and how it is asked to.
8. `daemons`: `process`, then `serve`, `evict` and `patch`, which make programs of all this.
9. `commands`: a verb each. Begin with `untaint`, which is short.

`docs/development/architecture.md` walks through one review, one policy, one taint and one patch.
"""

__version__ = "0.1.0"

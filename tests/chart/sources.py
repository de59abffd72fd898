"""Which template of the chart is made of which manifests, and what values change in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.chart.deployments import SERVE, arguments, workload
from tests.chart.edits import Edit, followed, wrapped

_POLICED: Final = "$.Values.networkPolicy.enabled"
_BUDGETED: Final = "$.Values.disruptionBudget.enabled"
_EVICT: Final = "$.Values.evict.enabled"
_PATCH: Final = "$.Values.patch.enabled"
_PATCHES: Final = "$.Values.patches.enabled"
_REPORTS: Final = "$.Values.openReports.enabled"
_MONITORED: Final = "$.Values.monitoring.enabled"
_CERT_MANAGER: Final = 'eq $.Values.certificates.provider "cert-manager"'
_SELF_MANAGED: Final = 'eq $.Values.certificates.provider "self-managed"'


@dataclass(frozen=True, slots=True)
class Template:
    """One file below manifests/helm/templates."""

    target: str
    source: str
    """The manifest, from the root of the tree."""
    condition: str = ""
    """The template's objects are rendered only if this holds."""
    edits: tuple[Edit, ...] = ()
    entries: tuple[tuple[str, str], ...] = ()
    """Entries of webhook configurations that components add: (condition, manifest)."""


# --- edits that more than one manifest needs ----------------------------------------------------

_PULL_SECRETS: Final = followed(
    "automountServiceAccountToken: false\n",
    """\
{{- with $.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
""",
)
_BUDGET: Final = Edit("  maxUnavailable: 1\n", "  maxUnavailable: {{ $.Values.disruptionBudget.maxUnavailable }}\n")
_EGRESS: Final = Edit(
    """\
  - ports:
    - port: 443
      protocol: TCP
    - port: 6443
      protocol: TCP
    - port: 8443
      protocol: TCP
  - ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
    - port: 5353
      protocol: UDP
    - port: 5353
      protocol: TCP
    - port: 8053
      protocol: UDP
    - port: 8053
      protocol: TCP
""",
    '  {{- include "device-taint-webhook.egress" $ | nindent 2 }}\n',
)


# --- the webhook configurations -----------------------------------------------------------------

_INJECTED: Final = followed(
    '    admissions.enforcer/disabled: "true"\n',
    """\
    {{- if eq $.Values.certificates.provider "cert-manager" }}
    cert-manager.io/inject-ca-from: {{ $.Release.Namespace }}/device-taint-webhook
    {{- end }}
""",
)
_SHUT: Final = '(ternary "Fail" "Ignore" $.Values.highAvailability)'


def _failure_policy(entry: str, shipped: str, template: str) -> Edit:
    return Edit(
        f"failurePolicy: {shipped}\n",
        f"failurePolicy: {{{{ {template} }}}}\n",
        after=f"- name: {entry}.validate.devicetaint.io",
    )


_VALIDATING: Final = (
    _INJECTED,
    _failure_policy("rules", "Fail", "$.Values.failurePolicy.rules"),
    _failure_policy("claims", "Ignore", f"$.Values.failurePolicy.claims | default {_SHUT}"),
    _failure_policy("templates", "Ignore", f"$.Values.failurePolicy.templates | default {_SHUT}"),
    _failure_policy("patches", "Fail", "$.Values.failurePolicy.patches"),
)

# --- certificates from cert-manager -------------------------------------------------------------

_LEAF: Final = (
    Edit("  secretName: device-taint-webhook-tls\n", "  secretName: {{ $.Values.certificates.secretName }}\n"),
    Edit(
        """\
  - device-taint-webhook.device-taint-webhook.svc
  - device-taint-webhook.device-taint-webhook.svc.cluster.local
  - device-taint-webhook.device-taint-webhook
""",
        """\
  - device-taint-webhook.{{ $.Release.Namespace }}.svc
  - device-taint-webhook.{{ $.Release.Namespace }}.svc.cluster.local
  - device-taint-webhook.{{ $.Release.Namespace }}
""",
    ),
    Edit("  duration: 2160h0m0s\n", "  duration: {{ $.Values.certificates.certManager.duration }}\n"),
    Edit("  renewBefore: 720h0m0s\n", "  renewBefore: {{ $.Values.certificates.certManager.renewBefore }}\n"),
    Edit(
        "    group: cert-manager.io\n    kind: Issuer\n    name: device-taint-webhook\n",
        """\
    {{- with $.Values.certificates.certManager.issuerRef }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    group: cert-manager.io
    kind: Issuer
    name: device-taint-webhook
    {{- end }}
""",
    ),
)

# --- the audit as a CronJob ---------------------------------------------------------------------

_CRON_JOB: Final = (
    Edit(
        '"--exempt-namespaces=$(POD_NAMESPACE),kube-system"]\n',
        '{{ prepend $.Values.exemptNamespaces "$(POD_NAMESPACE)" | join ","'
        ' | printf "--exempt-namespaces=%s" | quote }}]\n',
    ),
    Edit('  schedule: "*/10 * * * *"\n', "  schedule: {{ $.Values.openReports.schedule | quote }}\n"),
    Edit("image: device-taint-webhook\n", 'image: {{ include "device-taint-webhook.image" $ }}\n'),
    Edit("image: kubectl\n", "image: {{ $.Values.openReports.kubectlImage }}\n"),
    *(
        Edit(
            "imagePullPolicy: IfNotPresent\n",
            "imagePullPolicy: {{ $.Values.image.pullPolicy }}\n",
            after=f"- name: {name}",
        )
        for name in ("audit", "apply")
    ),
    Edit(
        "          nodeSelector:\n            kubernetes.io/os: linux\n",
        """\
          {{- with $.Values.nodeSelector }}
          nodeSelector:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $.Values.tolerations }}
          tolerations:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $.Values.affinity }}
          affinity:
            {{- toYaml . | nindent 12 }}
          {{- end }}
""",
    ),
    *(
        followed(
            f"            {line}\n",
            f"            {{{{- with $.Values.{value} }}}}\n"
            "            {{- toYaml . | nindent 12 }}\n"
            "            {{- end }}\n",
        )
        for line, value in (
            ("istio.io/dataplane-mode: none", "podLabels"),
            ("linkerd.io/inject: disabled", "podAnnotations"),
        )
    ),
)

_BASE: Final = "manifests/base"
_COMPONENTS: Final = "manifests/components"
_POD_SECURITY: Final = '{{ ternary "privileged" "restricted" $.Values.hostNetwork }}'

TEMPLATES: Final = (
    Template(
        "namespace.yaml",
        f"{_BASE}/namespace.yaml",
        "$.Values.namespace.create",
        (
            Edit("  name: device-taint-webhook\n", "  name: {{ $.Release.Namespace }}\n"),
            *(
                Edit(
                    f"    pod-security.kubernetes.io/{mode}: restricted\n",
                    f"    pod-security.kubernetes.io/{mode}: {_POD_SECURITY}\n",
                )
                for mode in ("enforce", "audit", "warn")
            ),
        ),
    ),
    Template("serve/access.yaml", f"{_BASE}/access.yaml", edits=(_PULL_SECRETS,)),
    Template("serve/author-policy.yaml", f"{_BASE}/author-policy.yaml"),
    Template("serve/deployment.yaml", f"{_BASE}/deployment.yaml", edits=SERVE),
    Template("serve/disruption-budget.yaml", f"{_BASE}/disruption-budget.yaml", _BUDGETED, (_BUDGET,)),
    Template(
        "serve/network-policy.yaml",
        f"{_BASE}/network-policy.yaml",
        _POLICED,
        (
            Edit("    - port: 9443\n", "    - port: {{ $.Values.ports.webhook | default 9443 | int }}\n"),
            Edit("    - port: 8081\n", "    - port: {{ $.Values.ports.probes | default 8081 | int }}\n"),
            Edit(
                """\
  # Some providers give pods the API server by name. DNS, at the Service and at the ports behind it that are in use:
  # 5353 on OpenShift, 8053 on Gardener.
""",
                "",
            ),
            _EGRESS,
        ),
    ),
    Template(
        "serve/quota.yaml",
        f"{_BASE}/quota.yaml",
        "and $.Values.quota.enabled $.Values.priorityClassName",
        (Edit("values: [system-cluster-critical]", "values: [{{ $.Values.priorityClassName }}]"),),
    ),
    Template("serve/service.yaml", f"{_BASE}/service.yaml"),
    Template(
        "webhooks/validating.yaml",
        f"{_BASE}/validating-webhook.yaml",
        "not $.Values.lifted",
        _VALIDATING,
        ((_PATCHES, f"{_COMPONENTS}/patches/validating-entry.yaml"),),
    ),
    Template(
        "webhooks/mutating.yaml",
        f"{_BASE}/mutating-webhook.yaml",
        "not $.Values.lifted",
        (_INJECTED,),
        (
            (_PATCHES, f"{_COMPONENTS}/patches/mutating-entry.yaml"),
            ("$.Values.patches.sliceAttributes", f"{_COMPONENTS}/slice-attributes/entry.yaml"),
            ("$.Values.defaultTolerations", f"{_COMPONENTS}/default-tolerations/entry.yaml"),
        ),
    ),
    Template("watch-pods/access.yaml", f"{_COMPONENTS}/watch-pods/access.yaml", "$.Values.watchPods"),
    Template("certificates/self-managed-access.yaml", "certs/self-managed/access.yaml", _SELF_MANAGED),
    Template("certificates/self-managed-secret.yaml", "certs/self-managed/secret.yaml", _SELF_MANAGED),
    Template(
        "certificates/cert-manager-authority.yaml",
        "certs/cert-manager/authority.yaml",
        f"and ({_CERT_MANAGER}) (not $.Values.certificates.certManager.issuerRef)",
        (Edit("  duration: 8760h0m0s\n", "  duration: {{ $.Values.certificates.certManager.caDuration }}\n"),),
    ),
    Template("certificates/cert-manager.yaml", "certs/cert-manager/certificate.yaml", _CERT_MANAGER, _LEAF),
    Template("evict/access.yaml", f"{_COMPONENTS}/evict/access.yaml", _EVICT, (_PULL_SECRETS,)),
    Template(
        "evict/acting.yaml",
        f"{_COMPONENTS}/evict-acting/access.yaml",
        f'and {_EVICT} (ne $.Values.evict.mode "observe")',
        (
            wrapped(
                '- apiGroups: [""]\n  resources: [pods]\n  verbs: [delete]\n'
                '- apiGroups: [""]\n  resources: [pods/status]\n  verbs: [patch]\n',
                "$.Values.evict.allowDelete",
            ),
        ),
    ),
    Template(
        "evict/deployment.yaml",
        f"{_COMPONENTS}/evict/deployment.yaml",
        _EVICT,
        (
            *workload("evict", "50m"),
            Edit("  replicas: 2\n", "  replicas: {{ $.Values.evict.replicas }}\n"),
            arguments(
                "evict, --mode=observe, --leader-elect, --exempt-namespaces=kube-system",
                "evict, --mode={{ $.Values.evict.mode }}, --leader-elect, "
                '{{ $.Values.exemptNamespaces | join "," | printf "--exempt-namespaces=%s" | quote }}',
                "evict",
            ),
        ),
    ),
    Template(
        "evict/disruption-budget.yaml",
        f"{_COMPONENTS}/evict/disruption-budget.yaml",
        f"and {_EVICT} {_BUDGETED}",
        (_BUDGET,),
    ),
    Template("evict/flow-schema.yaml", f"{_COMPONENTS}/evict/flow-schema.yaml", _EVICT),
    Template(
        "evict/network-policy.yaml",
        f"{_COMPONENTS}/evict/network-policy.yaml",
        f"and {_EVICT} {_POLICED}",
        (_EGRESS,),
    ),
    Template("reports/access.yaml", f"{_COMPONENTS}/reports/access.yaml", _REPORTS, (_PULL_SECRETS,)),
    Template("reports/cron-job.yaml", f"{_COMPONENTS}/reports/cron-job.yaml", _REPORTS, _CRON_JOB),
    Template("patches/access.yaml", f"{_COMPONENTS}/patches/access.yaml", _PATCHES),
    Template(
        "patches/definition.yaml",
        f"{_COMPONENTS}/patches/definition.yaml",
        _PATCHES,
        (
            Edit(
                "spec:\n  group: devicetaint.io\n",
                """\
  {{- if $.Values.patches.keepDefinition }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
spec:
  group: devicetaint.io
""",
            ),
        ),
    ),
    Template("patch/access.yaml", f"{_COMPONENTS}/patch-controller/access.yaml", _PATCH, (_PULL_SECRETS,)),
    Template(
        "patch/slice-attributes.yaml",
        f"{_COMPONENTS}/slice-attributes/access.yaml",
        "$.Values.patches.sliceAttributes",
    ),
    Template(
        "patch/deployment.yaml",
        f"{_COMPONENTS}/patch-controller/deployment.yaml",
        _PATCH,
        (
            *workload("patch", "50m"),
            Edit("  replicas: 2\n", "  replicas: {{ $.Values.patch.replicas }}\n"),
            arguments("patch, --leader-elect", "patch, --leader-elect", "patch"),
            followed(
                "              fieldPath: metadata.namespace\n",
                """\
        {{- if $.Values.patches.sliceAttributes }}
        - name: DEVICE_TAINT_WEBHOOK_SLICE_ATTRIBUTES
          value: "true"
        {{- end }}
""",
            ),
        ),
    ),
    Template(
        "patch/disruption-budget.yaml",
        f"{_COMPONENTS}/patch-controller/disruption-budget.yaml",
        f"and {_PATCH} {_BUDGETED}",
        (_BUDGET,),
    ),
    Template("patch/flow-schema.yaml", f"{_COMPONENTS}/patch-controller/flow-schema.yaml", _PATCH),
    Template(
        "patch/network-policy.yaml",
        f"{_COMPONENTS}/patch-controller/network-policy.yaml",
        f"and {_PATCH} {_POLICED}",
        (_EGRESS,),
    ),
    Template(
        "monitoring/scrape.yaml",
        f"{_COMPONENTS}/monitoring/scrape.yaml",
        _MONITORED,
        (
            Edit(
                "---\napiVersion: monitoring.coreos.com/v1\n",
                "{{- if $.Values.monitoring.serviceMonitor.enabled }}\n---\napiVersion: monitoring.coreos.com/v1\n",
            ),
            Edit("    interval: 30s\n", "    interval: {{ $.Values.monitoring.serviceMonitor.interval }}\n"),
            followed("      targetLabel: component\n", "{{- end }}\n"),
            Edit(
                '(list $ "monitoring") | nindent 4 }}\n',
                '(list $ "monitoring") | nindent 4 }}\n'
                "    {{- with $.Values.monitoring.labels }}\n    {{- toYaml . | nindent 4 }}\n    {{- end }}\n",
                after="kind: ServiceMonitor",
            ),
            Edit(
                "---\n# Metrics name no object",
                "{{- if $.Values.networkPolicy.enabled }}\n---\n# Metrics name no object",
            ),
            Edit(
                "    - port: 8080\n      protocol: TCP\n",
                """\
    - port: {{ $.Values.ports.metrics | default 8080 | int }}
      protocol: TCP
    {{- if ne ($.Values.ports.metrics | default 8080 | int) 8080 }}
    - port: 8080
      protocol: TCP
    {{- end }}
{{- end }}
""",
            ),
        ),
    ),
)
COPIES: Final = {
    "files/alerts.yaml": f"{_COMPONENTS}/monitoring/alerts.yaml",
    "files/dashboard.json": f"{_COMPONENTS}/monitoring/dashboard.json",
}
"""Files that templates load as they are, below manifests/helm."""
